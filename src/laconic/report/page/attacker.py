"""What ε and δ mean to somebody who attacks: the best that any test for one client's (or record's) data can do.

A test has false positives α (it says "in" though the data was not used) and true positives β. If the models are
(ε, δ)-differentially private, every test has

    β ≤ min(e^ε·α + δ,  1 − e^(−ε)·(1 − δ − α)),

whatever it computes and knows (Wasserman and Zhou 2010; Kairouz, Oh and Viswanath 2015).
"""

from __future__ import annotations

import math


def most_true_positives(false_positives: float, epsilon: float, delta: float) -> float:
    """The largest share of true positives at this share of false ones."""
    by_growth = math.exp(min(epsilon, 700.0)) * false_positives + delta
    by_rest = 1.0 - math.exp(-epsilon) * (1.0 - delta - false_positives)
    return max(0.0, min(1.0, by_growth, by_rest))


def most_certain(epsilon: float, delta: float) -> float:
    """How often a guess can be right at most if both cases are as likely: (1 + the largest β − α) / 2.

    That difference is largest where both bounds meet: (e^ε − 1 + 2δ) / (e^ε + 1).
    """
    grown = math.exp(min(epsilon, 700.0))
    return min(1.0, (1.0 + (grown - 1.0 + 2.0 * delta) / (grown + 1.0)) / 2.0)


def trade_off(epsilon: float, delta: float, least: float) -> list[tuple[float, float]]:
    """(false positives, true positives) of the best test, from `least` false positives on, for a logarithmic axis.

    The corner, where both bounds meet, is among the points.
    """
    corner = (1.0 - delta) / (1.0 + math.exp(min(epsilon, 700.0)))
    places = {least ** (n / _POINTS) for n in range(_POINTS + 1)} | {corner} - {0.0}
    return [(at, most_true_positives(at, epsilon, delta)) for at in sorted(places) if at >= least]


_POINTS = 32
