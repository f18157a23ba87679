"""The node: it answers a server, as far as its owner's policy allows.

folder    `NodeFolder`: keys and whatever else survives a restart
lifetime  `Cost` and `spent`: what a node's data has cost over all runs
log       `NodeLog`: what it took part in
masking   its side of the masked sum, from what its folder holds
node      `Node`: answers a server, as far as its policy allows
policy    `Policy`: what the node's owner allows
refusals  the policy, applied: why an offer or a round is refused
training  `NodeWork`: a node's work in a round
withheld  refusals whose reasons stay on the node
"""
