"""A candidate as the run itself would have it: σ calibrated, both ε accounted, bits and bytes of its messages."""

from __future__ import annotations

from dataclasses import replace

from laconic import schemes
from laconic.advice.question import SERVER, Question
from laconic.advice.search import Candidate, messages
from laconic.advice.setting import (
    CLIP_NORM,
    FARTHER,
    LOCAL_LR,
    LOCAL_STEPS,
    MOMENTUM,
    MOST_ROUNDS,
    PLAIN_CLIP_NORM,
    PRECONDITION,
    Setting,
)
from laconic.advice.steps import noise_ratio, server_lr_of
from laconic.advice.worth import Step, best_step, farthest, of_features
from laconic.experiment.mechanism import Mechanism
from laconic.privacy.accounting.budget import Budget
from laconic.privacy.accounting.calibrate import calibrate_noise
from laconic.privacy.accounting.sampling import Poisson
from laconic.privacy.mechanism.discrete_gaussian import DiscreteGaussian


def exact(question: Question, candidate: Candidate) -> Setting:
    """The setting, with the smallest σ that keeps the promise."""
    alone = question.against == SERVER and candidate.rate < 1
    sigma = calibrate_noise(
        epsilon=question.epsilon,
        delta=question.delta,
        rounds=candidate.rounds,
        sampler=Poisson(sampling_rate=candidate.rate),
        num_clients=question.num_clients,
        participations=candidate.cap if alone else None,
        noise=lambda s: DiscreteGaussian(noise_multiplier=s),
        max_participations=candidate.cap,
    )
    return with_noise(question, candidate, sigma)


def with_noise(question: Question, candidate: Candidate, sigma: float, method: str | None = None) -> Setting:
    """The same with this σ. `method` is the accountant of the outsider's ε; the tight one, unless given."""
    c, sampler = candidate, Poisson(sampling_rate=candidate.rate)
    mechanism = Mechanism(
        scheme=schemes.fl_std_dp(
            clip_norm=_clip_norm(question), noise_multiplier=sigma, local_lr=LOCAL_LR, local_steps=LOCAL_STEPS
        ),
        sampler=sampler,
        num_clients=question.num_clients,
        size=c.weights,
        rounds=c.rounds,
        budget=Budget(delta=question.delta, max_participations=c.cap),
    )
    accountant, grid = mechanism.accountant, mechanism.grid
    assert accountant is not None and grid is not None
    step = best_step(weights=c.weights, noise_multiplier=sigma, cohort=c.cohort * c.kept, rounds=c.rounds)
    few = question.classes is not None and c.rate >= 1 and c.rounds <= MOST_ROUNDS
    if few:
        step = _preconditioned(step, weights=c.weights, sigma=sigma, cohort=c.cohort * c.kept, rounds=c.rounds)
    up, down = messages(question.num_clients, c.cohort, c.weights, sigma)
    taken = c.rounds * c.rate * c.kept
    return Setting(
        cohort=c.cohort,
        sampling_rate=c.rate,
        rounds=c.rounds,
        participations=c.cap if c.cap is not None else (c.rounds if c.rate >= 1 else None),
        features=c.features,
        weights=c.weights,
        noise_multiplier=sigma,
        momentum=step.momentum,
        precondition=PRECONDITION if few else None,
        reach=step.reach,
        server_lr=_server_lr(question, c.rounds, step),
        clip_norm=_clip_norm(question),
        noise=step.noise_ratio * step.reach,
        noise_ratio=step.noise_ratio,
        epsilon_server=accountant.participant_epsilon(busiest(question, c)),
        epsilon_outsider=accountant.released_epsilon(c.rounds, None if c.rate >= 1 else method),
        bits_up=grid.bits,
        bytes_up=taken * up,
        bytes_down=taken * down,
        seconds=None if question.round_seconds is None else question.round_seconds * c.rounds,
        expected_error=of_features(c.features) + step.error,
    )


def _preconditioned(step: Step, *, weights: int, sigma: float, cohort: float, rounds: int) -> Step:
    """The step with the server's preconditioner. Settings are ranked by their plain steps all the same."""
    ratio = noise_ratio(weights, sigma, cohort=cohort, rounds=rounds, momentum=MOMENTUM)
    return replace(step, momentum=MOMENTUM, reach=FARTHER * farthest(ratio), noise_ratio=ratio)


def busiest(question: Question, candidate: Candidate) -> int:
    """How often the client that comes most often takes part: the cap, or what chance exceeds in 1 % of all runs."""
    if candidate.cap is not None or candidate.rate >= 1:
        return candidate.cap or candidate.rounds
    from scipy.stats import binom

    return max(1, int(binom.isf(0.01 / question.num_clients, candidate.rounds, candidate.rate)))


def _clip_norm(question: Question) -> float:
    return PLAIN_CLIP_NORM if question.classes is None else CLIP_NORM


def _server_lr(question: Question, rounds: int, step: Step) -> float:
    """Of a linear layer: as far as the noise lets it go. Of another model: a mean update counts once in all."""
    if question.classes is None:
        return 1 - step.momentum
    return server_lr_of(step.reach, rounds=rounds, momentum=step.momentum, clip_norm=CLIP_NORM)
