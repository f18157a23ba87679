"""What a federation reveals: attacks on privacy, by an adversary that follows the protocol and only looks.

pictures        pictures of membership inference, reconstructions and property inference; its rows as CSV
property        property inference: the attack, round by round
property_guess  the feature maps `absolute` and `signed`, and what learns from them and guesses
property_setup  from names and numbers to an attack, and its rows; who holds which records
scores          accuracy, balanced accuracy and AUC with confidence intervals
standing        an experiment for each scheme that is asked about, where it stands, and what any client would send
                from there
views           what the adversary sees of a round: one client's code, the sum of the others', or only the new model

`membership/` asks who was there, `reconstruction/` what a client's records look like.
"""
