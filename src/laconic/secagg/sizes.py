"""How many committee members and how many neighbours a cohort needs, from what is assumed of it.

The committee and the order of the ring come from public randomness, so among a fixed set of clients that drop out or
collude, the number that fall on given places is hypergeometric (the argument of Bell, Bonawitz, Gascón, Lepoint and
Raykova, "Secure Single-Server Aggregation with (Poly)Logarithmic Overhead", CCS 2020). The tails are summed exactly.
"""

from __future__ import annotations

from functools import lru_cache
from math import comb

import numpy as np


@lru_cache(maxsize=4096)
def ring_degree(cohort: int, removed: int, security_bits: int) -> int:
    """The least number of neighbours such that the others stay connected when `removed` clients are taken away.

    Clients stand in a ring in random order, and each has the k/2 next ones on either side as neighbours. What is left
    of such a ring falls apart only if at least two runs of k/2 neighbouring places are removed (between two such runs
    every step is at most k/2 long). Two given disjoint runs are removed with probability C(n−k, r−k) / C(n, r), and
    there are fewer than C(n, 2) pairs of them:  k is the least even number with C(n, 2) · P ≤ 2^−security_bits.
    """
    for degree in range(2, cohort - 1, 2):
        if comb(cohort, 2) * _masses(cohort, removed, degree)[degree] <= 2.0**-security_bits:
            return degree
    return cohort - 1


@lru_cache(maxsize=4096)
def committee_size(
    cohort: int,
    dropouts: int,
    colluders: int,
    *,
    signed: bool,
    security_bits: int,
    failure_bits: int,
    certainly: int = 0,
) -> tuple[int, int]:
    """The smallest committee (c, t), drawn at random from the cohort, such that

    fewer than t members answer with probability at most 2^−failure_bits, if `dropouts` clients vanish;
    t members or more collude with probability at most 2^−security_bits, if `colluders` clients do (in signed mode:
    so many that two survivor sets could be signed, 2t ≤ c + colluding members, with that probability);
    and t > c/2. If no smaller one will do, it is the whole cohort.

    In signed mode two sets cannot be signed even if all of `certainly` colluders are members: a server that lies may
    try rounds, attempts and cohorts until the draw suits it.
    """
    for members in range(1, cohort):
        vanished = _tail(cohort, dropouts, members)
        threshold = members - int(np.argmax(vanished <= 2.0**-failure_bits))
        if 2 * threshold <= members:
            continue
        enough = 2 * threshold - members if signed else threshold
        if signed and enough <= certainly:
            continue
        if _tail(cohort, colluders, members)[enough - 1] <= 2.0**-security_bits:
            return members, threshold
    return cohort, whole_threshold(cohort, dropouts, colluders, signed=signed)


def whole_threshold(cohort: int, dropouts: int, colluders: int, *, signed: bool) -> int:
    """t when the whole cohort is the committee: two thirds, fewer if so many may drop out.

    But always more than half of the members and more than the colluders; in signed mode 2t > n + colluders. Where not
    all can be had, the last two count: the round may then fail, but it does not open.
    """
    least = max(cohort // 2, (cohort + colluders) // 2 if signed else colluders) + 1
    return min(max(min(2 * cohort // 3 + 1, cohort - dropouts), least), cohort)


def _tail(cohort: int, marked: int, drawn: int) -> np.ndarray:
    """P[X > x] for x = 0 … drawn, where X of the drawn are marked: summed from the small end."""
    return np.append(np.cumsum(_masses(cohort, marked, drawn)[::-1])[::-1][1:], 0.0)


def _masses(cohort: int, marked: int, drawn: int) -> np.ndarray:
    """P[X = x] = C(marked, x) · C(n − marked, drawn − x) / C(n, drawn) for x = 0 … drawn."""
    marked = min(marked, cohort)
    x = np.arange(drawn + 1)
    possible = (x <= marked) & (drawn - x <= cohort - marked)
    masses = np.zeros(drawn + 1)
    at = x[possible]
    logs = _log_comb(marked, at) + _log_comb(cohort - marked, drawn - at) - _log_comb(cohort, np.array(drawn))
    masses[possible] = np.exp(logs)
    return masses


def _log_comb(n: int, k: np.ndarray) -> np.ndarray:
    from scipy.special import gammaln  # slow to import, and small cohorts do without it

    logs: np.ndarray = gammaln(n + 1) - gammaln(k + 1) - gammaln(n - k + 1)
    return logs
