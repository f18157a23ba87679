"""How large a probability may be, given how often something was seen: the bounds of Clopper and Pearson (1934)."""

from __future__ import annotations


def at_least(seen: int, trials: int, error: float) -> float:
    """A lower bound of the probability; it is too large with probability `error` at most."""
    from scipy.special import betaincinv

    return float(betaincinv(seen, trials - seen + 1, error)) if seen else 0.0


def at_most(seen: int, trials: int, error: float) -> float:
    """An upper bound of the probability; it is too small with probability `error` at most."""
    from scipy.special import betainccinv

    return float(betainccinv(seen + 1, trials - seen, error)) if seen < trials else 1.0
