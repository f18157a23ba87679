"""Which of its records a client trains on in a private step, and what that is worth: sampler and rate are one object.

The figures of the record accountant hold for samples in which every record comes independently of all others, with a
probability that is a public constant, and for a sum that is divided by a public constant. Then adding one record adds
its clipped gradient to the sum if it is drawn, and changes nothing else: sensitivity S. Where classes have different
rates the largest one is accounted for, since a sample of a smaller rate is dominated by one of a larger rate.

*What a round releases of one record*, where clients protect their records themselves (DP-SGD; CHIL'21, section 3.2). A
step releases a Poisson-sampled Gaussian. A round is `steps` of them, if the record's client takes part at all. Both
classes describe that to the accountant: by Rényi divergences, and by a privacy loss distribution.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from laconic.errors import ConfigError
from laconic.parts import Part, one_of, positive_int, probability, rate

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


BALANCES = ("per-class", "none", "as-published")


@dataclass(frozen=True, kw_only=True)
class RecordSampler(Part):
    """Base. `record_rate` is the largest probability of any record to be drawn in a step: what is accounted for."""

    batch_size: int
    record_rate: float

    caveat: ClassVar[str] = ""

    def __post_init__(self) -> None:
        positive_int(batch_size=self.batch_size)
        rate(record_rate=self.record_rate)

    @property
    def divisor(self) -> float | None:
        """The divisor of the sum of gradients: |B|, a public constant. None: the size of the batch."""
        return float(self.batch_size)

    def draw(self, labels: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """The numbers of the records of one step, sorted; `labels` are those of all the client's records."""
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class PoissonRecords(RecordSampler):
    """Every record with probability q, of any class."""

    def draw(self, labels: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        return np.flatnonzero(rng.random(len(labels)) < self.record_rate)


@dataclass(frozen=True, kw_only=True)
class PerClassPoisson(RecordSampler):
    """Every record of the rarer class with probability q, of the other one with q·p/(1 − p), p the rarer one's share.

    So both classes come equally often where the share is p. It is a public estimate, never counted in the data. Classes
    are 0 and 1, and `prevalence` is the share of class 1.
    """

    prevalence: float

    def __post_init__(self) -> None:
        super().__post_init__()
        probability(prevalence=self.prevalence)

    @property
    def rates(self) -> tuple[float, float]:
        """The rates of class 0 and class 1."""
        odds = self.prevalence / (1 - self.prevalence)
        return self.record_rate * min(1.0, odds), self.record_rate * min(1.0, 1 / odds)

    def draw(self, labels: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        _check_two_classes(labels)
        return np.flatnonzero(rng.random(len(labels)) < np.array(self.rates)[labels])


@dataclass(frozen=True, kw_only=True)
class PublishedBatches(RecordSampler):
    """A batch of |B| random records, of which as many are kept of each class as the rarer one has (CHIL'21 Alg. 6, 7).

    The sum is divided by the number that is kept. For the papers' tables only.
    """

    caveat: ClassVar[str] = (
        "batches have a fixed size and are balanced as published: one record more changes which others are kept and by"
        " what the sum is divided, so every ε here is the published figure, not a proven one"
    )

    @property
    def divisor(self) -> float | None:
        return None

    def draw(self, labels: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        _check_two_classes(labels)
        if self.batch_size > len(labels) * self.record_rate * (1 + 1e-9):
            raise ConfigError(
                f"a client with {len(labels)} records draws batches of {self.batch_size}, more than ⟨record-rate⟩"
                f" {self.record_rate:g} says: raise it to ⟨batch-size⟩ over the fewest records of a client"
            )
        batch = rng.permutation(len(labels))[: self.batch_size]
        classes = [batch[labels[batch] == c] for c in (0, 1)]
        least = min(len(members) for members in classes)
        return np.sort(np.concatenate([members[:least] for members in classes]))


def record_sampler(balance: str, *, batch_size: int, record_rate: float, prevalence: float | None) -> RecordSampler:
    """The sampler that `balance` names: 'per-class' (needs a prevalence), 'none' or 'as-published'."""
    one_of(BALANCES, balance=balance)
    if balance == "per-class":
        if prevalence is None:
            raise ConfigError(
                "⟨balance⟩ per-class needs ⟨prevalence⟩, the share of positives as it is publicly known (0.03, say);"
                " or draw all records alike with ⟨balance⟩ none"
            )
        return PerClassPoisson(batch_size=batch_size, record_rate=record_rate, prevalence=prevalence)
    if prevalence is not None:
        raise ConfigError(f"⟨prevalence⟩ is for ⟨balance⟩ per-class: ⟨balance⟩ {balance} takes none")
    kind = PoissonRecords if balance == "none" else PublishedBatches
    return kind(batch_size=batch_size, record_rate=record_rate)


def _check_two_classes(labels: np.ndarray) -> None:
    if labels.ndim != 1 or labels.dtype.kind != "i" or not np.isin(labels, (0, 1)).all():
        raise ConfigError("balanced batches need targets of two classes, 0 and 1: use ⟨balance⟩ none")
