"""Whether a noisy sum can be one of honest clients.

The codes of s honest clients add up to a vector μ with ‖μ‖ ≤ s·S. The released sum is x = μ + Z, where every coordinate
of Z has the scale v, which is public. For Gaussian noise ‖x‖²/v² is noncentral χ² with m degrees of freedom and
λ = ‖μ‖²/v² ≤ (s·S/v)², and Birgé's bound (2001, Lemma 8.1) gives

    P(‖x‖² ≥ v²·(m + λ + 2·√((m + 2λ)·t) + 2t)) ≤ e^−t.

It follows from the moment generating function alone. That of a discrete Gaussian is no larger, so the bound holds for
noise on integers as well: E exp(a·‖μ + Z‖²) = E_G E_Z exp(√(2a)·⟨G, μ + Z⟩) for a normal G, and Z enters by
E exp(⟨h, Z⟩) ≤ exp(v²·‖h‖²/2). Less noise than planned (attackers that add none) makes the sum shorter.

A sum above the threshold is *spoilt*: it is left out of the step. A *clearly* spoilt one is above it by 4·S more. What
one honest client sends moves a norm by S at most, so such a sum would be spoilt whoever of them were in it; only this
counts as evidence.
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
"""How far a clearly spoilt sum is above the threshold, in units of S."""


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

    @property
    def clear(self) -> float:
        """The norm above which it is clearly so."""
        return self.threshold + MARGIN * self.sensitivity

    @property
    def honest(self) -> float:
        """λ: the squared norm of what honest clients send at most, in units of the noise."""
        return (self.largest * self.sensitivity / self.noise) ** 2

    def _above(self, noncentrality: float) -> float:
        nats = math.log(self.sums / self.false_alarms)
        return 2 * math.sqrt((self.code_size + 2 * noncentrality) * nats) + 2 * nats

    def __call__(self, sums: Tensor) -> Verdict:
        """The verdict on released sums (sums, m). One that is not finite is no honest one."""
        norms = torch.stack([torch.linalg.vector_norm(one, dtype=torch.float64) for one in sums]).cpu().numpy()
        return Verdict(norms, ~(norms <= self.threshold), ~(norms <= self.clear))


def detector_of(
    scheme: Scheme, sampler: Sampler, plan: RoundPlan, *, num_clients: int, code_size: int, false_alarms: float
) -> Detector:
    """The test of the sums of a round. All of it follows from public numbers, so it says nothing of who came."""
    sums, one = len(plan.sums), plan.sums[0]
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
        noise=scheme.noise.released_scale(code_size=code_size, sensitivity=sensitivity, plan=one),
        sums=sums,
        largest=max(1, largest),
        false_alarms=false_alarms,
    )
