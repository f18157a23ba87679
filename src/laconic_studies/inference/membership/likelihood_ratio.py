"""The likelihood ratio of two Gaussians that were fitted to a statistic with and without the target.

ℓ(s) = ln N(s; μ_in, τ_in) − ln N(s; μ_out, τ_out), one pair of fits for each target (Carlini et al. 2022). By the lemma
of Neyman and Pearson no other test of s has more true positives at the same false ones, as far as s is Gaussian.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

_SMALLEST = 1e-12
"""A spread below this share of the statistic's size is none: the two worlds are then told apart without a doubt."""


@dataclass(frozen=True, kw_only=True)
class GaussianFit:
    """Mean and standard deviation of a statistic in one world."""

    mean: float
    std: float

    @classmethod
    def to(cls, statistic: np.ndarray, least: float) -> GaussianFit:
        return cls(mean=float(statistic.mean()), std=max(float(statistic.std()), least))

    def log_density(self, statistic: np.ndarray) -> np.ndarray:
        """Without the constant that all Gaussians share."""
        density: np.ndarray = -0.5 * ((statistic - self.mean) / self.std) ** 2 - np.log(self.std)
        return density


@dataclass(frozen=True, kw_only=True)
class LikelihoodRatio:
    """The test of one target."""

    inside: GaussianFit
    outside: GaussianFit

    @classmethod
    def fitted(cls, ins: np.ndarray, outs: np.ndarray) -> LikelihoodRatio:
        """From the statistics of trials in which the target was there, and in which it was not."""
        size = float(np.abs(np.concatenate([ins, outs])).max(initial=0.0))
        least = max(_SMALLEST * size, np.finfo(float).tiny ** 0.25)
        return cls(inside=GaussianFit.to(ins, least), outside=GaussianFit.to(outs, least))

    def scores(self, statistic: np.ndarray) -> np.ndarray:
        ratio: np.ndarray = self.inside.log_density(statistic) - self.outside.log_density(statistic)
        return ratio
