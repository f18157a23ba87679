"""What guards a node's secrets, in few lines and without torch: its imports from the project are all that it trusts.

noise  clips a vector and draws integer noise around it: tables of the discrete Gaussian, exact to 128 bits
"""
