"""Whether a noisy sum can be one of honest clients.

The codes of s honest clients add up to a vector μ with ‖μ‖ ≤ s·S. The released sum is x = μ + Z, where every coordinate
of Z has the scale v, which is public. For Gaussian noise ‖x‖²/v² is noncentral χ² with m degrees of freedom and
λ = ‖μ‖²/v² ≤ (s·S/v)², and Birgé's bound (2001, Lemma 8.1) gives

    P(‖x‖² ≥ v²·(m + λ + 2·√((m + 2λ)·t) + 2t)) ≤ e^−t.

It follows from the moment generating function alone. That of a discrete Gaussian is no larger, so the bound holds for
noise on integers as well: E exp(a·‖μ + Z‖²) = E_G E_Z exp(√(2a)·⟨G, μ + Z⟩) for a normal G, and Z enters by
E exp(⟨h, Z⟩) ≤ exp(v²·‖h‖²/2). Less noise than planned (attackers that add none) makes the sum shorter.

A sum above the threshold τ is *spoilt*: it is left out of the step. A *clearly* spoilt one would be spoilt whoever of
the honest clients were in it, so only this is evidence against those who are. To exchange two honest clients changes a
sum by d with ‖d‖ ≤ 2·S, and its norm by |⟨x, d⟩|/‖x‖ at most, taken before or after. A sum whose norm is x or less has
‖μ‖ ≤ v·√λ(x) but for a chance of e^−t, by Birgé's bound for the other tail, and |⟨Z, d⟩| ≤ v·‖d‖·√(2t) but for 2e^−t.
So the norm changes by 2·S·ρ at most, with

    ρ = min(1, (√λ(x) + 2·S/v + √(2t)) / (τ/v)),

and a clearly spoilt sum is twice that above τ. Noise makes most of a norm where codes are long, so ρ is well below 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from laconic.plan import RoundPlan
from laconic.privacy.accounting.sampling import Sampler
from laconic.scheme import Scheme

MARGIN = 4.0
"""How far a clearly spoilt sum is above the threshold, in units of ρ·S."""


@dataclass(frozen=True)
class Verdict:
    """Of every sum of a round: its norm, whether it is spoilt, and whether that is clear."""

    norms: np.ndarray
    spoilt: np.ndarray
    clear: np.ndarray


@dataclass(frozen=True, kw_only=True)
class Detector:
    """The test of a round with so many sums, of `largest` clients or fewer each.

    `noise` is the scale v of the noise in each of `code_size` coordinates, and `sensitivity` is S. `false_alarms` is
    the probability, at most, that some sum of honest clients alone is taken for spoilt in a round.
    """

    code_size: int
    sensitivity: float
    noise: float
    sums: int
    largest: int
    false_alarms: float

    @cached_property
    def threshold(self) -> float:
        """The norm above which a sum is spoilt."""
        squared = self.code_size + self.honest + self._above(self.honest)
        return self.noise * math.sqrt(squared)

    @cached_property
    def clear(self) -> float:
        """The norm above which it is clearly so: the least that is as far above as sums of that norm can be moved."""
        level = self.threshold
        for _ in range(50):
            level = self.threshold + MARGIN * self.sensitivity * self._moved(level)
        return level

    @property
    def honest(self) -> float:
        """λ: the squared norm of what honest clients send at most, in units of the noise."""
        return (self.largest * self.sensitivity / self.noise) ** 2

    @property
    def nats(self) -> float:
        """t: a bound fails with probability e^−t for one sum, and so `false_alarms` for all."""
        return math.log(self.sums / self.false_alarms)

    def _above(self, noncentrality: float) -> float:
        return 2 * math.sqrt((self.code_size + 2 * noncentrality) * self.nats) + 2 * self.nats

    def hidden(self, norm: float) -> float:
        """λ(x): the largest ‖μ‖²/v² of a sum whose noisy norm is x or less, but for a chance of e^−t.

        It solves m + λ − 2·√((m + 2λ)·t) = x²/v².
        """
        root = 2 * math.sqrt(self.nats)
        rest = max(0.0, root**2 + 2 * (norm / self.noise) ** 2 - self.code_size)
        return max(0.0, ((root + math.sqrt(rest)) ** 2 - self.code_size) / 2)

    def _moved(self, norm: float) -> float:
        """ρ at this norm."""
        longest = math.sqrt(self.hidden(norm)) + 2 * self.sensitivity / self.noise + math.sqrt(2 * self.nats)
        return min(1.0, longest * self.noise / self.threshold)

    def __call__(self, sums: Tensor) -> Verdict:
        """The verdict on released sums (sums, m). One that is not finite is no honest one."""
        norms = torch.stack([torch.linalg.vector_norm(one, dtype=torch.float64) for one in sums]).cpu().numpy()
        return Verdict(norms, ~(norms <= self.threshold), ~(norms <= self.clear))


def detector_of(
    scheme: Scheme,
    sampler: Sampler,
    plan: RoundPlan,
    *,
    sums: int,
    num_clients: int,
    code_size: int,
    false_alarms: float,
) -> Detector:
    """The test of a round with so many sums. All of it follows from public numbers, so it says nothing of who came.

    Of the `plan` of any of the sums only those are used.
    """
    sensitivity = scheme.clip.sensitivity(code_size)
    if sampler.dealt(num_clients):
        largest = math.ceil(sampler.planned_cohort(num_clients) / sums)
    else:  # half of the false alarms are for groups that are larger than that
        from scipy.stats import binom

        false_alarms /= 2
        largest = int(binom.isf(false_alarms / sums, num_clients, sampler.rate_in(num_clients) / sums))
    return Detector(
        code_size=code_size,
        sensitivity=sensitivity,
        noise=scheme.noise.released_scale(code_size=code_size, sensitivity=sensitivity, plan=plan),
        sums=sums,
        largest=max(1, largest),
        false_alarms=false_alarms,
    )
