"""Secure aggregation: the server learns the sum of the clients' integer vectors mod 2^b and nothing else.

Read `client.py` and `server.py` first; they are the protocol. `docs/protocol.md` says what it promises.
Provisional: the messages may change from one version to the next.

attempts  which attempts a client has used; the nonces that make every plan new
client    `SecAggClient`: keys, upload, consent, reveal
foretell  predicts the outcome of a round from the dropouts, without masks
messages  the messages as bytes
server    `SecAggServer` and `ServerRound`: from the clients' messages to the sum
session   `InProcessFederation`: both sides in one process, with dropouts, and the bytes counted
shares    the seeds of an upload as encrypted shares, and how they are opened
terms     `Terms` of a run and `SumPlan` of an attempt; committee and neighbours follow from them; what may be claimed
"""
