"""What ε and δ mean to somebody who attacks: the best that any test for one client's (or record's) data can do.

A test has false positives α (it says "in" though the data was not used) and true positives β. If the models are
(ε, δ)-differentially private, every test has

    β ≤ min(e^ε·α + δ,  1 − e^(−ε)·(1 − δ − α)),

whatever it computes and knows (Wasserman and Zhou 2010; Kairouz, Oh and Viswanath 2015). A run has a pair for every δ.
Each bounds every test, so the smallest bound holds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

Pairs = Sequence[tuple[float, float]]
"""(ε, δ), all of the same run; one or more."""


def most_true_positives(false_positives: float, pairs: Pairs) -> float:
    """The largest share of true positives at this share of false ones."""
    bounds = [1.0]
    for epsilon, delta in pairs:
        bounds.append(math.exp(min(epsilon, 700.0)) * false_positives + delta)
        bounds.append(1.0 - math.exp(-epsilon) * (1.0 - delta - false_positives))
    return max(0.0, min(bounds))


def most_certain(pairs: Pairs) -> float:
    """How often a guess can be right at most if both cases are as likely: (1 + the largest β − α) / 2.

    For one pair that difference is largest where both bounds meet: (e^ε − 1 + 2δ)/(e^ε + 1) = 1 − 2·(1 − δ)/(e^ε + 1).
    """
    gaps = [1.0 - 2.0 * (1.0 - delta) / (math.exp(min(epsilon, 700.0)) + 1.0) for epsilon, delta in pairs]
    return (1.0 + min(1.0, *gaps)) / 2.0


def trade_off(pairs: Pairs, least: float) -> list[tuple[float, float]]:
    """(false positives, true positives) of the best test, from `least` false positives on, for a logarithmic axis.

    Where both bounds of a pair meet there is a corner: those are among the points.
    """
    corners = {(1.0 - delta) / (1.0 + math.exp(min(epsilon, 700.0))) for epsilon, delta in pairs}
    places = {least ** (n / _POINTS) for n in range(_POINTS + 1)} | corners
    return [(at, most_true_positives(at, pairs)) for at in sorted(places) if at >= least]


_POINTS = 32
