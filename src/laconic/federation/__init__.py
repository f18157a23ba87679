"""A federation of separate machines: what travels, whatever carries the bytes.

courier      what a server needs of whatever carries messages
entropy      randomness from the operating system; seeds for tests alone
offer        `Offer`: a run as it is proposed to nodes, signed
populations  who holds records, seen from one machine
requests     what travels, as named fields
roster       the keys of all nodes of a run, and the public randomness that follows from them
weights      weights and kept coordinates, as both sides name and send them
"""
