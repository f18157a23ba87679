"""The node: it answers a server within its owner's policy.

backup       a node's folder as one archive, and a folder from it that knows what it does not know
kept         what is kept between messages: records and work in memory, the last answers in the folder
lifetime     `Cost` and `spent`: what a node's data has cost over all runs
node         `Node`: answers a server within its policy
own_model    the model of an offered run, built on the node
own_records  a node's own tables, arrays, pictures and texts, read by its settings
predictions  what the newest weights of a node say about new records
refusals     why an offer or a round is refused for what an outsider would learn
training     `NodeWork`: a node's work in a round
"""
