"""What a federation reveals: attacks on privacy, by somebody who follows the protocol and only looks.

views  what somebody sees of a round: one client's code, the sum of the others', or only the new model
"""
