"""How much likelier what was seen is with a canary in than out: the scores by which it is told.

Along the direction of a canary, a sum in units of S is normal with the standard deviation s. Its mean is c if the
canary took part in the round: c = 1 if it is in; and if it is out c = 0 (zero-out adjacency: its code is 0), or c = −1
(replace-one: its code is the opposite one). Let ℓ(x, c) = (c·x − c²/2)/s².

*The server* knows who took part: Σ over the canary's rounds of ℓ(x, in) − ℓ(x, out).
*The outsider* does not: Σ over all rounds of ln(1 − q + q·e^ℓ(x, in)) − ln(1 − q + q·e^ℓ(x, out)), for the rate q.
Where a cohort is summed in groups, it does not know the group either: e^ℓ is the mean over the sums of all groups.

By the Neyman–Pearson lemma no test tells the two worlds apart better than a threshold on these sums, as long as nothing
else is in the way (codes of others).
"""

from __future__ import annotations

import numpy as np


def server_scores(seen: np.ndarray, there: np.ndarray, variance: np.ndarray, out: float) -> np.ndarray:
    """(rounds, canaries) → (canaries): `there` says who took part, `variance` is s²."""
    ratio = (1 - out) * (seen - (1 + out) / 2) / variance
    scores: np.ndarray = np.where(there, ratio, 0.0).sum(0)
    return scores


def outsider_scores(seen: np.ndarray, rate: float, variance: np.ndarray, out: float) -> np.ndarray:
    """(rounds, sums, canaries) → (canaries)."""
    inside = _mixed((seen - 0.5) / variance, rate)
    if out:
        inside = inside - _mixed((out * seen - out**2 / 2) / variance, rate)
    scores: np.ndarray = inside.sum(0)
    return scores


def _mixed(ratio: np.ndarray, rate: float) -> np.ndarray:
    """ln(1 − q + q·e^ℓ), also where e^ℓ is too large for a float: (rounds, sums, canaries) → (rounds, canaries)."""
    ratio = np.logaddexp.reduce(ratio, axis=1) - np.log(ratio.shape[1])
    if rate >= 1:
        return ratio
    mixed: np.ndarray = np.logaddexp(np.log1p(-rate), np.log(rate) + ratio)
    return mixed
