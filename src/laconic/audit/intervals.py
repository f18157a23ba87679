"""How large a probability may be, given how often something was seen: the bounds of Clopper and Pearson (1934)."""

from __future__ import annotations


def at_least(seen: int, trials: int, error: float) -> float:
    """A lower bound of the probability; it is too large with probability `error` at most."""
    from scipy.stats import beta

    return float(beta.ppf(error, seen, trials - seen + 1)) if seen else 0.0


def at_most(seen: int, trials: int, error: float) -> float:
    """An upper bound of the probability; it is too small with probability `error` at most."""
    from scipy.stats import beta

    return float(beta.ppf(1 - error, seen + 1, trials - seen)) if seen < trials else 1.0
