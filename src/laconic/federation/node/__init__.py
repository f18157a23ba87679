"""The node: it answers a server within its owner's policy.

backup       a node's folder as one archive, and a folder from it that knows what it does not know
last_answers  the last answers of a run: asked the same again, a node sends the same bytes
lifetime     `Cost` and `spent`: what a node's data has cost over all runs
masking      the node's side of the masked sum; its state is in the folder
node         `Node`: answers a server within its policy
own_model    the model of an offered run, built on the node
own_records  a node's own tables, arrays, pictures and texts, read by its settings
predictions  what the newest weights of a node say about new records
refusals     the policy, applied: why an offer or a round is refused
training     `NodeWork`: a node's work in a round
withheld     refusals whose reasons stay on the node
"""
