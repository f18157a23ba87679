"""What guards a node's secrets, in few lines and without torch: its imports from the project are all that it trusts.

contract  what a signed offer makes a node keep: who, how often, with which bound and which noise
noise     clips a vector and draws integer noise around it: tables of the discrete Gaussian, exact to 128 bits
protect   a vector or a sum of training, bounded and noised as the contract says
"""
