"""Secure aggregation: the server learns the sum of the clients' integer vectors mod 2^b and nothing else.

Read `client.py` and `server.py` first; they are the protocol. `docs/secure-aggregation.md` says what it promises.

attempts  which attempts a client has used
claims    against whom a sum is claimed to be secure, in one wording
client    `SecAggClient`: keys, upload, consent, reveal
foretell  predicts the outcome of a round from the dropouts, without masks
messages  the messages as bytes
nonces    `Nonces`: what makes every plan new, whatever a client's files say
opening   from the members' answers to the seeds, with checks
server    `SecAggServer` and `ServerRound`: from the clients' messages to the sum
session   `InProcessFederation`: both sides in one process, with dropouts, and the bytes counted
shares    the seeds of an upload as encrypted shares
sizes     how large committee and neighbourhood must be
terms     `Terms` of a run and `SumPlan` of an attempt; neighbours, committee and threshold follow from them
"""
