"""Which of its records a client trains on in a private step, and what that is worth: sampler and rate are one object.

The figures of the record accountant hold for samples in which every record comes independently of all others, with a
probability that is a public constant, and for a sum that is divided by a public constant. Then adding one record adds
its clipped gradient to the sum if it is drawn, and changes nothing else: sensitivity S. Where classes have different
rates the largest one is accounted for, since a sample of a smaller rate is dominated by one of a larger rate.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from laconic.errors import ConfigError
from laconic.parts import Part, one_of, positive_int, probability, rate

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
        """By what the sum of the gradients is divided: |B|, a public constant. None: by the size of the batch."""
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
