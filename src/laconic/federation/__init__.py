"""A federation of separate machines: what is sent, independent of the transport. Provisional: messages may change.

entropy      randomness from the operating system; seeds for tests only
front_ends   `OfferedFrontEnd`: a front end as an offer describes it, and as a node makes it
offer        `Offer`: a run as it is proposed to nodes, signed; whether a node's records mean what it says
populations  the population of a federation, seen from one machine
requests     requests and answers, as named fields; `Courier`: a transport, as the server needs it
weights      weights and kept coordinates: their digests, and how they are sent
"""
