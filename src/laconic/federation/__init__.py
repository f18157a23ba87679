"""A federation of separate machines: what is sent, independent of the transport.

agreement    that a node's records mean what the offer says
courier      the interface of a transport, as the server needs it
entropy      randomness from the operating system; seeds for tests only
front_ends   `OfferedFrontEnd`: a front end as an offer describes it, and as a node makes it
offer        `Offer`: a run as it is proposed to nodes, signed
populations  the population of a federation, seen from one machine
requests     requests and answers, as named fields
weights      weights and kept coordinates: their digests, and how they are sent
"""
