"""Group testing: which of the groups' noisy sums are spoilt, who spoils them, and who is left out from then on.

detector  whether a noisy sum can be one of honest clients
evidence  what spoilt groups say of the clients in them, round by round, and whom to exclude
forecast  what an attacker below the threshold can do, and how many rounds it takes to find one above it
"""
