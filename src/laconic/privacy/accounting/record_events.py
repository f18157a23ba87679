"""What a round releases of one record, where clients protect their records themselves (DP-SGD; CHIL'21, section 3.2).

A step releases a Poisson-sampled Gaussian. A round is `steps` of them, if the record's client takes part at all. Both
classes describe that to the accountant: by Rényi divergences, and by a privacy loss distribution.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from dp_accounting import DpEvent
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution


@dataclass(frozen=True)
class Occasional:
    """With probability `rate`, `steps` releases of the event; else nothing. It shows which of the two happened.

    A client that takes part brings the noise and the gradients of all its records, so a model may tell that it came.
    Then adjacent releases differ only where it came: with A = "came", the loss is that of the steps under A and 0
    otherwise,

        E[exp((α − 1)·loss)] = 1 − rate + rate·exp((α − 1)·steps·D_α(event)).

    An adversary who cannot tell learns less, by post-processing.
    """

    rate: float
    event: DpEvent
    steps: int

    @property
    def parts(self) -> tuple[DpEvent, ...]:
        return (self.event,)

    def divergences(self, orders: Sequence[float], of_parts: Sequence[Sequence[float]]) -> list[float]:
        found = []
        for order, divergence in zip(orders, of_parts[0], strict=True):
            exponent = (order - 1) * self.steps * divergence
            # ln(1 − rate + rate·e^x), without overflow for large x.
            came = math.log(self.rate) + exponent
            stayed = math.log1p(-self.rate) if self.rate < 1 else -math.inf
            found.append(float(np.logaddexp(came, stayed)) / (order - 1))
        return found

    def distribution(self, of_parts: Sequence[PrivacyLossDistribution]) -> PrivacyLossDistribution:
        from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

        steps = of_parts[0].self_compose(self.steps)
        return PrivacyLossDistribution(self._mixed(steps._pmf_remove), self._mixed(steps._pmf_add))

    def _mixed(self, steps: Any) -> Any:
        """The probabilities of the steps' losses times `rate`, and the rest at a loss of 0."""
        from dp_accounting.pld.pld_pmf import DensePLDPmf

        dense = steps.to_dense_pmf()
        low, high = min(0, dense._lower_loss), max(0, dense._lower_loss + len(dense._probs) - 1)
        probabilities = np.zeros(high - low + 1)
        start = dense._lower_loss - low
        probabilities[start : start + len(dense._probs)] = self.rate * dense._probs
        probabilities[-low] += 1 - self.rate
        infinite = self.rate * dense._infinity_mass
        return DensePLDPmf(dense._discretization, low, probabilities, infinite, pessimistic_estimate=True)


@dataclass(frozen=True)
class FirstThenLater:
    """One release of `first` and `steps` − 1 of `later`: a round as CHIL'21 accounts for it (Theorem 3.1).

    There a record is sampled with q1 = C·|B|/min|D_k| in a round's first step, and with q2 = |B|/min|D_k| in the
    others. That q1 takes for granted that nothing else shows whether the client came; see `Occasional`.
    """

    first: DpEvent
    later: DpEvent
    steps: int

    @property
    def parts(self) -> tuple[DpEvent, ...]:
        return (self.first, self.later) if self.steps > 1 else (self.first,)

    def divergences(self, orders: Sequence[float], of_parts: Sequence[Sequence[float]]) -> list[float]:
        if self.steps == 1:
            return list(of_parts[0])
        return [a + (self.steps - 1) * b for a, b in zip(*of_parts, strict=True)]

    def distribution(self, of_parts: Sequence[PrivacyLossDistribution]) -> PrivacyLossDistribution:
        if self.steps == 1:
            return of_parts[0]
        return of_parts[0].compose(of_parts[1].self_compose(self.steps - 1))


RecordEvent = Occasional | FirstThenLater
