"""What a predicted probability refers to: by what training changed the odds of the classes, and how that is undone.

A classifier that is trained on shares s of the classes, and is asked about a population with shares t, is right about
the odds there after log(t_y/s_y) is added to the logit of class y (Elkan, IJCAI 2001, theorem 2; Saerens, Latinne and
Decaestecker, Neural Computation 2002). Training that counts class y with weight a_y sees s_y ∝ a_y·p_y, with p the
shares of the classes among its records. So log(1/a_y) leads back to p, for any p, and log(t_y/(a_y·p_y)) to t.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from laconic.errors import ConfigError, worded
from laconic.privacy.accounting.record_sampling import PerClassPoisson, PublishedBatches
from laconic.scheme import Scheme
from laconic.train.local import LocalDPSGD, LocalSGD, UnitGradients, check_shares


@dataclass(frozen=True)
class Prior:
    """Weights a of the classes in training (none: all alike), and the declared shares p (none: not declared)."""

    weights: tuple[float, ...] = ()
    shares: tuple[float, ...] = ()
    balanced: bool = False
    """Whether every client's batches count both classes alike, for any shares."""

    @classmethod
    def of(cls, scheme: Scheme) -> Prior:
        train = scheme.train
        if isinstance(train, UnitGradients):
            return cls(train.class_weights, train.prevalence)
        if isinstance(train, LocalDPSGD) and isinstance(train.records, PerClassPoisson):
            share = train.records.prevalence
            return cls(train.records.rates, (1 - share, share))
        published = isinstance(train, LocalDPSGD) and isinstance(train.records, PublishedBatches)
        if published or (isinstance(train, LocalSGD) and train.balance != "none"):
            return cls(shares=(0.5, 0.5), balanced=True)
        return cls()

    def declared(self, prevalence: float | None) -> Prior:
        """With the share of class 1 of two that a schema declares, where training declared none."""
        return self if prevalence is None or self.shares else replace(self, shares=(1 - prevalence, prevalence))

    def shifts(self, classes: int, wanted: Sequence[float] = ()) -> list[float]:
        """What is added to the logit of each class, for a population with the wanted shares; none: that of training."""
        weights = self.weights if len(self.weights) == classes and 0 not in self.weights else (1.0,) * classes
        check_shares(tuple(wanted))
        if not wanted:
            return [-math.log(weight) for weight in weights]
        if len(wanted) != classes:
            raise ConfigError(
                f"⟨prevalence⟩ is for {len(wanted)} classes, but the model has {classes}: give one for each"
            )
        if len(self.shares) != classes:
            raise ConfigError(
                "⟨prevalence⟩ moves probabilities away from the share that the training records were declared to have,"
                " and this run declares none: train with ⟨prevalence⟩, or with prevalence = SHARE in the schema"
            )
        return [
            math.log(share / (weight * known))
            for share, weight, known in zip(wanted, weights, self.shares, strict=True)
        ]

    def meaning(self, outcome: str, wanted: Sequence[float] = ()) -> str:
        """What the number in the column 'probability' is, in a sentence."""
        what = f"the probability of {outcome}" if outcome else "the probability of the class"
        if wanted:
            known = _share(self.shares)
            return f"{what} where {_share(wanted)} of the records have it; training was declared to have {known}"
        if self.balanced:
            return worded(f"{what} where half of the records have it, as in training; ⟨prevalence⟩ gives another share")
        said = f"{what} where it is as frequent as among the training records"
        said += f" (declared: {_share(self.shares)})" if self.shares else ""
        if 0 in self.weights:
            return f"{said}, without the classes whose weight is 0"
        return said + "; the weights of the classes in training are taken out" if self.weights else said


def _share(shares: Sequence[float]) -> str:
    """Of two classes the second one's."""
    return f"{shares[1]:.4g}" if len(shares) == 2 else ", ".join(f"{share:.4g}" for share in shares)
