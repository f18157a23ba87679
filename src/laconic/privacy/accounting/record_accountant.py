"""The accountant of one record, where each client protects its records itself by DP-SGD (CHIL'21, section 3.2).

Every step of a client is a Gaussian release of a Poisson sample of its records, and its updates reach the server in the
clear. So both adversaries are assumed to see who took part in which round; they differ in what is asked about:

*Released*: the ε of a run before its cohorts are drawn. A record's client takes part in each round with probability C,
and only then is anything of the record released (`Occasional`).
*Participant*: the ε of a record whose client took part so often: that many times local_steps steps, all of them seen.

CHIL's Theorem 3.1 has the record sampled with C·q in a round's first step, as if records were drawn independently of
each other from all clients. But the records of one client come together: if the others' gradients are large, a model
shows whether the client came, and then only q hides the record. With CHIL's settings for ε = 1 (σ = 1.08), the theorem
gives 1.02 by moments and 0.28 by pld, `Occasional` 7.03 and 5.02. So the theorem's figures are given beside the others
as `published`, and are the released ones only under `AsPublished` sampling.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from laconic.parts import positive, positive_int, probability, rate
from laconic.privacy.accounting.accountant import METHODS, Figures, epsilon
from laconic.privacy.accounting.promise import Promise, record_promise
from laconic.privacy.accounting.record_events import FirstThenLater, Occasional, RecordEvent
from laconic.privacy.accounting.sampling import Sampler

if TYPE_CHECKING:
    from dp_accounting import DpEvent


@dataclass(frozen=True, kw_only=True)
class RecordAccountant:
    """Answers for one record under DP-SGD with σ, Poisson samples of rate q at most, and T_gd steps a round."""

    sampler: Sampler
    """Who takes part; not to be confused with which records do."""
    record_rate: float
    noise_multiplier: float
    local_steps: int = 1
    num_clients: int
    num_records: int | None = None
    """Of all clients together, if that is known."""
    delta: float
    max_participations: int | None = None
    cohort_dependent: bool = False
    """Whether the run may stop because of who took part: then its length depends on the cohorts."""
    caveat: str = ""
    """What the way in which records are drawn leaves unproven."""

    figures: ClassVar[tuple[str, ...]] = METHODS

    def __post_init__(self) -> None:
        probability(delta=self.delta)
        rate(record_rate=self.record_rate)
        positive(noise_multiplier=self.noise_multiplier)
        positive_int(num_clients=self.num_clients, local_steps=self.local_steps)
        self.sampler.check(self.num_clients)

    @property
    def units(self) -> int:
        """There are no fewer records than clients."""
        return self.num_clients if self.num_records is None else self.num_records

    @property
    def honest_cohort(self) -> float | None:
        return None

    @property
    def method(self) -> str:
        """The preferred method: the tightest."""
        return self.figures[-1]

    @property
    def promise(self) -> Promise:
        as_published = not self.sampler.proven
        unproven = (
            "the released ε is that of CHIL'21, Theorem 3.1, which takes for granted that no model shows which clients"
            " took part: the published figure, not a proven one"
        )
        caveats = [text for text in (unproven if as_published else "", self.caveat) if text]
        return record_promise(as_published=as_published, caveats=tuple(caveats))

    def released(self, rounds: int, most: int | None = None) -> Figures:
        """ε of so many rounds before their cohorts are drawn; `most` is how often the busiest client took part."""
        return self._all(lambda method: self.released_epsilon(rounds, method, most))

    def participant(self, participations: int) -> Figures:
        """ε of a record whose client took part so often."""
        return self._all(lambda method: self.participant_epsilon(participations, method))

    def published(self, rounds: int) -> float | None:
        """ε by CHIL'21, Theorem 3.1 (moments, as there); None where that is the released one anyway."""
        if not self.sampler.proven:
            return None
        return _epsilon(self._theorem, rounds, self.delta, "moments")

    def released_epsilon(self, rounds: int, method: str | None = None, most: int | None = None) -> float:
        chosen = method or self.method
        if not self.sampler.proven:
            return _epsilon(self._theorem, rounds, self.delta, chosen)
        if not self.amplified(rounds):
            capped = min(x for x in (rounds, self.max_participations, most) if x is not None)
            return self.participant_epsilon(capped, chosen)
        found = _epsilon(Occasional(self._sampling_rate, self._step, self.local_steps), rounds, self.delta, chosen)
        # Nobody takes part more often than the cap allows, and in no more than all rounds.
        most_often = min(rounds, self.max_participations or rounds)
        return min(found, self.participant_epsilon(most_often, chosen))

    def participant_epsilon(self, participations: int, method: str = "pld") -> float:
        return _epsilon(self._step, participations * self.local_steps, self.delta, method)

    def amplified(self, rounds: int) -> bool:
        """Whether the released ε has the chance in it that the client is not drawn."""
        return not self.cohort_dependent

    def _all(self, ask: Callable[[str], float]) -> Figures:
        return Figures(**{method: ask(method) for method in METHODS})

    @property
    def _sampling_rate(self) -> float:
        return self.sampler.rate_in(self.num_clients)

    @property
    def _step(self) -> DpEvent:
        return self._sampled(self.record_rate)

    @property
    def _theorem(self) -> RecordEvent:
        return FirstThenLater(self._sampled(self._sampling_rate * self.record_rate), self._step, self.local_steps)

    def _sampled(self, probability: float) -> DpEvent:
        from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent

        noise = GaussianDpEvent(self.noise_multiplier)
        return PoissonSampledDpEvent(probability, noise) if probability < 1 else noise


def _epsilon(event: DpEvent | RecordEvent, count: int, delta: float, method: str) -> float:
    return epsilon(event, count, delta, method) if count else 0.0
