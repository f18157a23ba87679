"""What a federation reveals: attacks on privacy, by somebody who follows the protocol and only looks.

`membership/` asks who was there, `reconstruction/` what a client's records look like.

asked                 an experiment for each scheme that is asked about, with what was left open settled
pictures              pictures of membership inference and of reconstructions
property              property inference: the attack, round by round
property_classifiers  what learns from emulated updates and guesses about real ones
property_data         who holds which records, and the batches that are drawn
property_features     the feature maps `absolute` and `signed`
property_picture      property inference: its rows as CSV, and a picture of them
property_setup        from names and numbers to an attack, and its rows
scores                accuracy, balanced accuracy and AUC with confidence intervals
standing              where a federation stands, and what any client would send from there
views                 what somebody sees of a round: one client's code, the sum of the others', or only the new model
"""
