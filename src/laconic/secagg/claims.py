"""Against whom a secure sum is claimed to hold. The printed statement and every page say it in these words.

`docs/protocol.md` has the theorem behind each, with its assumptions and the tests that stand for them.
"""

from __future__ import annotations

CURIOUS = "an honest-but-curious server together with up to max_colluders clients of each cohort"
LYING = "a server that lies, together with up to max_colluders of all its clients"
LYING_NEEDS = 'for nodes whose policy says secure_aggregation = "signed" and lists the identities'


def claim(*, signed: bool) -> str:
    """What may be said of a run, as far as its terms go. What a node's policy adds is the node's own."""
    return f"{LYING}, {LYING_NEEDS}; for all others against {CURIOUS}" if signed else CURIOUS
