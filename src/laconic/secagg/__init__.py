"""Secure aggregation: the server learns the sum of the clients' integer vectors mod 2^b and nothing else.

Read `client.py` and `server.py` first; they are the protocol. `docs/secure-aggregation.md` says what it promises.
"""

from laconic.secagg.attempts import Attempts, AttemptsInMemory, AttemptsOnDisk
from laconic.secagg.client import SecAggClient
from laconic.secagg.opening import RoundAborted
from laconic.secagg.plan import SumPlan, Terms
from laconic.secagg.server import Opened, SecAggServer, ServerRound
from laconic.secagg.session import InProcessFederation, RoundOutcome, Traffic, Vanishes

__all__ = [
    "Attempts",
    "AttemptsInMemory",
    "AttemptsOnDisk",
    "InProcessFederation",
    "Opened",
    "RoundAborted",
    "RoundOutcome",
    "SecAggClient",
    "SecAggServer",
    "ServerRound",
    "SumPlan",
    "Terms",
    "Traffic",
    "Vanishes",
]
