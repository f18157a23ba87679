"""σ of a scheme that leaves it open: the smallest that keeps the promised ε, with the scheme's own noise."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from laconic.codecs.votes import VotedSubset
from laconic.errors import ConfigError
from laconic.experiment.mechanism import evaluated_of, excludes_by_cohort, taking_turns, votes_of
from laconic.privacy.accounting.accountant import RunAccountant
from laconic.privacy.accounting.budget import Budget
from laconic.privacy.accounting.calibrate import calibrate_noise, smallest_noise
from laconic.privacy.accounting.correlated import CorrelatedAccountant
from laconic.privacy.accounting.sampling import Sampler
from laconic.privacy.mechanism.correlated import CorrelatedGaussian
from laconic.scheme import Scheme

VOTE_SHARE = 0.25
"""Of ε, for the votes of FL-TOP, unless said otherwise: see docs/results/votes.md."""
EVALUATION_SHARE = 0.1
"""Of ε, for the evaluations, unless said otherwise."""

MakeScheme = Callable[[float], Scheme]
"""From σ to the scheme."""


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """The public numbers of a run whose σ is sought: a model of `size` weights, and a `budget` with an ε.

    `slack` is how many of a cohort the noise does not count on. The integers of the scheme are accounted for as such,
    so the ε of the run is the asked one or less.

    Args:
        sampler: who takes part in a round.
        num_clients: the size of the population.
        rounds: how many, spare ones included.
        spare_rounds: how many of them are only for rounds that are repeated.
        size: weights of the model.
        budget: with an `epsilon` and a `delta`.
        slack: dropouts and colluders that the noise allows for.
        group_testing: whether attackers are excluded by group testing.
        loses_by_cohort: whether a round may be lost because of who took part.
        vote_share: of ε, for the votes of FL-TOP.
        evaluation_share: of ε, for the evaluations.

    Examples:
        >>> asked = laconic.Calibration(sampler=laconic.Poisson(sampling_rate=0.1), num_clients=1000, rounds=50,
        ...                             size=650, budget=laconic.Budget(delta=1e-5, epsilon=4.0))
        >>> asked.epsilon
        4.0
    """

    sampler: Sampler
    num_clients: int
    rounds: int
    size: int
    budget: Budget
    spare_rounds: int = 0
    slack: int = 0
    group_testing: bool = False
    loses_by_cohort: bool = False
    vote_share: float = VOTE_SHARE
    evaluation_share: float = EVALUATION_SHARE

    @property
    def epsilon(self) -> float:
        if self.budget.epsilon is None:
            raise ConfigError("without an epsilon there is nothing to calibrate the noise to: give --epsilon")
        return self.budget.epsilon

    def noise_multiplier(self, make: MakeScheme) -> float:
        """σ of training: with it, the scheme's votes and its evaluations, all rounds are within ε."""
        example = make(1.0)
        if example.record_level:
            return self._of_records(make)
        if example.noise.central:
            return self._of_correlated(make)
        return calibrate_noise(
            noise=lambda sigma: make(sigma).noise,
            sensitivity=example.clip.sensitivity(example.codec.code_size(self.size)),
            epsilon=self.epsilon,
            rounds=self.rounds,
            method=self.budget.accountant,
            votes=votes_of(example, self.size),
            evaluations=evaluated_of(example),
            horizon=self.rounds - self.spare_rounds,
            groups=example.groups,
            **self._setting,
        )

    def vote_noise_multiplier(self, make: MakeScheme) -> float:
        """σ of the votes: the smallest with which they alone cost their share of ε."""
        example = make(1.0)
        voting = example.at(1)
        return calibrate_noise(
            noise=lambda sigma: make(sigma).at(1).noise,
            sensitivity=voting.clip.sensitivity(voting.codec.code_size(self.size)),
            epsilon=self.vote_share * self.epsilon,
            rounds=example.codec.vote_rounds,
            groups=example.groups,
            **self._setting,
        )

    def evaluation_noise_multiplier(self, make: MakeScheme) -> float:
        """σ of the evaluations: the smallest with which they alone cost their share of ε."""
        example = make(1.0)
        return calibrate_noise(
            noise=lambda sigma: make(sigma).noise.for_cells(sigma),
            sensitivity=example.measuring.clip.sensitivity(example.evaluations.cells),
            epsilon=self.evaluation_share * self.epsilon,
            rounds=example.num_evaluations(self.rounds - self.spare_rounds),
            groups=example.groups,
            **self._setting,
        )

    @property
    def _setting(self) -> dict[str, Any]:
        """What votes, evaluations and training have in common: who takes part, and what may go wrong."""
        return {
            "slack": self.slack,
            "cohort_dependent": self._cohort_dependent,
            "max_participations": self.budget.max_participations,
            "delta": self.budget.delta,
            "sampler": self.sampler,
            "num_clients": self.num_clients,
        }

    @property
    def _cohort_dependent(self) -> bool:
        excludes = self.group_testing and excludes_by_cohort(self.sampler, self.num_clients, self.slack)
        return self.loses_by_cohort or excludes

    def _of_correlated(self, make: MakeScheme) -> float:
        """Repeats are one more release each, so spare rounds count as such: `horizon` is what is planned."""

        def accountant(sigma: float) -> RunAccountant:
            noise = make(sigma).noise
            assert isinstance(noise, CorrelatedGaussian)
            return CorrelatedAccountant(
                sampler=taking_turns(self.sampler),
                noise=noise,
                num_clients=self.num_clients,
                delta=self.budget.delta,
                horizon=self.rounds - self.spare_rounds,
            )

        return smallest_noise(
            accountant,
            epsilon=self.epsilon,
            delta=self.budget.delta,
            rounds=self.rounds,
            method=self.budget.accountant,
        )

    def _of_records(self, make: MakeScheme) -> float:
        budget = Budget(delta=self.budget.delta, max_participations=self.budget.max_participations)

        def accountant(sigma: float) -> RunAccountant:
            train = make(sigma).train
            found = train.accountant(sampler=self.sampler, num_clients=self.num_clients, budget=budget)
            assert found is not None
            return replace(found, cohort_dependent=self._cohort_dependent)

        return smallest_noise(
            accountant,
            epsilon=self.epsilon,
            delta=budget.delta,
            rounds=self.rounds,
            method=self.budget.accountant,
        )


def calibrated(scheme: Scheme, asked: Calibration) -> Scheme:
    """The scheme with σ, and with that of its votes and evaluations; one whose σ is decided stays as it is.

    Args:
        scheme: one whose σ is open.
        asked: the public numbers of the run.

    Returns:
        The same scheme with the smallest σ that keeps to ε.

    Examples:
        >>> asked = laconic.Calibration(sampler=laconic.Poisson(sampling_rate=0.1), num_clients=1000, rounds=50,
        ...                             size=650, budget=laconic.Budget(delta=1e-5, epsilon=4.0, accountant="rdp"))
        >>> scheme = laconic.schemes.fl_std_dp(clip_norm=0.5, local_lr=0.5, local_steps=5)
        >>> scheme.open, laconic.calibrated(scheme, asked).noise_multiplier > 0.5
        (True, True)
    """
    if not scheme.open:
        return scheme
    codec = scheme.codec
    if isinstance(codec, VotedSubset) and codec.noise_multiplier is None:
        sigma = asked.vote_noise_multiplier(scheme.with_noise_multiplier)
        scheme = replace(scheme, codec=replace(codec, noise_multiplier=sigma))
    if scheme.num_evaluations(asked.rounds - asked.spare_rounds) and scheme.evaluations.noise_multiplier is None:
        sigma = asked.evaluation_noise_multiplier(scheme.with_noise_multiplier)
        scheme = replace(scheme, evaluations=replace(scheme.evaluations, noise_multiplier=sigma))
    return scheme.with_noise_multiplier(asked.noise_multiplier(scheme.with_noise_multiplier))
