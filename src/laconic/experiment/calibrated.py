"""σ of a scheme that leaves it open: the smallest that keeps the promised ε, with the scheme's own noise."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from laconic.codecs.scaling import Moments
from laconic.errors import ConfigError
from laconic.experiment.mechanism import accountant_of, excludes_by_cohort
from laconic.privacy.accounting.accountant import RunAccountant
from laconic.privacy.accounting.budget import Budget, of_phase, smallest_noise
from laconic.privacy.accounting.releases import TRAINING, VOTES
from laconic.privacy.accounting.sampling import Sampler
from laconic.scheme import Scheme

VOTE_SHARE = 0.25
"""Of ε, for the votes of FL-TOP, unless said otherwise: see docs/results/votes.md."""
EVALUATION_SHARE = 0.1
"""Of ε, for the evaluations, unless said otherwise."""

SCALING_SHARE = 0.3
"""Of ε, for private scaling by itself. With it, training has 95 % of what it had alone."""

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
        scaling_share: of ε, for private scaling.

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
    scaling_share: float = SCALING_SHARE

    @property
    def epsilon(self) -> float:
        if self.budget.epsilon is None:
            raise ConfigError("without an epsilon there is nothing to calibrate the noise to: give ⟨epsilon⟩")
        return self.budget.epsilon

    def noise_multiplier(self, make: MakeScheme, phase: str = TRAINING, share: float = 1.0) -> float:
        """σ of a phase: the smallest with which the whole run, or a phase by itself, costs this share of ε at most.

        `make` has the σ that is sought and all others. Rounds that are repeated are of the phase with the least noise.
        """

        def accountant(sigma: float) -> RunAccountant:
            whole = self._accountant(make(sigma))
            return whole if phase == TRAINING else of_phase(whole, phase)[0]

        if phase == TRAINING:
            rounds, method = self.rounds, self.budget.accountant
        else:  # of a share no more is known than that it is one, so the tightest method says what it is
            rounds, method = make(1.0).planned(self.rounds - self.spare_rounds)[phase], None
        return smallest_noise(accountant, epsilon=share * self.epsilon, rounds=rounds, method=method)

    def _accountant(self, scheme: Scheme) -> RunAccountant:
        excludes = self.group_testing and excludes_by_cohort(self.sampler, self.num_clients, self.slack)
        return accountant_of(
            scheme,
            sampler=self.sampler,
            num_clients=self.num_clients,
            size=self.size,
            budget=self.budget,
            slack=self.slack,
            horizon=self.rounds - self.spare_rounds,
            cohort_dependent=self.loses_by_cohort or excludes,
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
    scheme = with_shares(scheme, asked)
    return scheme.with_noise_multiplier(asked.noise_multiplier(scheme.with_noise_multiplier))


def with_shares(scheme: Scheme, asked: Calibration) -> Scheme:
    """The scheme whose votes and evaluations have the smallest σ with which they alone cost their share of ε."""
    planned = scheme.planned(asked.rounds - asked.spare_rounds)
    shares = {VOTES: asked.vote_share, Moments.name: asked.scaling_share}
    for phase in scheme.phases[:-1]:
        if planned[phase.name] and scheme.own_noise_multiplier(phase.name) is None:
            share = shares.get(phase.name, asked.evaluation_share)
            sigma = asked.noise_multiplier(scheme.with_noise_multiplier, phase.name, share)
            scheme = scheme.with_noise_multiplier(sigma, phase.name)
    return scheme
