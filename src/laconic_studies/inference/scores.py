"""How well an adversary guesses a yes or no: accuracy, balanced accuracy and AUC, each with a confidence interval."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

_LEVEL = 0.95


class Figure(NamedTuple):
    """A measured figure and its 95 % confidence interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, kw_only=True)
class Score:
    """Guesses about `positives` observations that have the property and `negatives` that do not.

    `accuracy` is on a balanced set: all of the rarer kind and as many of the other, drawn at random. `p_value` is the
    probability that tossed coins are at least as far from ½ on that set.
    """

    positives: int
    negatives: int
    accuracy: Figure
    balanced_accuracy: Figure
    auc: Figure
    p_value: float

    def flat(self) -> dict[str, Any]:
        """One column for every number, rounded: four digits, and three that count for the p-value."""
        columns: dict[str, Any] = {"positives": self.positives, "negatives": self.negatives}
        for key in ("accuracy", "balanced_accuracy", "auc"):
            figure: Figure = getattr(self, key)
            named = zip((key, f"{key}_low", f"{key}_high"), figure, strict=True)
            columns |= {name: round(value, 4) for name, value in named}
        return columns | {"p_value": float(f"{self.p_value:.3g}")}


def scored(scores: np.ndarray, guesses: np.ndarray, truth: np.ndarray, rng: np.random.Generator) -> Score:
    """From how sure the guesser was (`scores`), what it said (`guesses`) and what is true, all (observations,)."""
    yes, no = np.flatnonzero(truth == 1), np.flatnonzero(truth == 0)
    count = min(len(yes), len(no))
    balanced = np.concatenate([rng.permutation(yes)[:count], rng.permutation(no)[:count]])
    hits = int((guesses[balanced] == truth[balanced]).sum())
    return Score(
        positives=len(yes),
        negatives=len(no),
        accuracy=proportion(hits, 2 * count),
        balanced_accuracy=_balanced(guesses, yes, no),
        auc=auc(scores[yes], scores[no]),
        p_value=coin_p_value(hits, 2 * count),
    )


def proportion(hits: int, count: int) -> Figure:
    """Clopper and Pearson's interval: it holds at least as often as it says."""
    from scipy.stats import beta

    tail = (1 - _LEVEL) / 2
    low = 0.0 if hits == 0 else float(beta.ppf(tail, hits, count - hits + 1))
    high = 1.0 if hits == count else float(beta.ppf(1 - tail, hits + 1, count - hits))
    return Figure(hits / count, low, high)


def coin_p_value(hits: int, count: int) -> float:
    """P(|H − count/2| ≥ |hits − count/2|) for H of that many fair coins: exact, two-sided."""
    from scipy.stats import binomtest

    return float(binomtest(hits, count, 0.5).pvalue)


def auc(yes: np.ndarray, no: np.ndarray) -> Figure:
    """The probability that a positive scores above a negative, ties counted as ½; variance by DeLong et al. (1988)."""
    from scipy.stats import rankdata

    ranks = rankdata(np.concatenate([yes, no]))
    # Of each positive: which share of the negatives is below it. Of each negative: which share of positives is above.
    above = (ranks[: len(yes)] - rankdata(yes)) / len(no)
    below = 1 - (ranks[len(yes) :] - rankdata(no)) / len(yes)
    value = float(above.mean())
    return _normal(value, _variance_of_mean(above) + _variance_of_mean(below))


def _balanced(guesses: np.ndarray, yes: np.ndarray, no: np.ndarray) -> Figure:
    """(true positive rate + true negative rate) / 2."""
    rates = [float((guesses[yes] == 1).mean()), float((guesses[no] == 0).mean())]
    variance = sum(rate * (1 - rate) / len(rows) for rate, rows in zip(rates, (yes, no), strict=True)) / 4
    return _normal(sum(rates) / 2, variance)


def _variance_of_mean(values: np.ndarray) -> float:
    return float(values.var(ddof=1)) / len(values) if len(values) > 1 else 0.0


def _normal(value: float, variance: float) -> Figure:
    from scipy.stats import norm

    reach = float(norm.ppf((1 + _LEVEL) / 2)) * math.sqrt(variance)
    return Figure(value, max(0.0, value - reach), min(1.0, value + reach))
