"""Whether votes have the noise that the accountant counts on: a vote without it, or with less, is caught."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import stats

from laconic import Poisson, schemes
from laconic.experiment.mechanism import Mechanism
from laconic.guard.noise import marks_of
from laconic.plan import RoundPlan
from laconic.privacy.accounting.budget import Budget
from laconic.privacy.mechanism.discrete_gaussian import DiscreteGaussian
from laconic.round import bounded_codes, client_messages, server_step
from laconic.scheme import Scheme
from laconic.streams import Streams

pytestmark = pytest.mark.stat
SIZE, COHORT, SIGMA = 20_000, 12, 1.7
ALPHA = 1e-6


def private() -> Scheme:
    return schemes.fl_top_dp(
        ratio=0.05,
        top_selection="votes",
        vote_block=1,
        vote_noise_multiplier=SIGMA,
        clip_norm=0.4,
        noise_multiplier=0.9,
        local_lr=0.1,
        local_steps=1,
    )


def vote_plan(scheme: Scheme) -> RoundPlan:
    mechanism = Mechanism(
        scheme=scheme,
        sampler=Poisson(sampling_rate=1.0),
        num_clients=COHORT,
        size=SIZE,
        rounds=3,
        budget=Budget(delta=1e-3),
    )
    return mechanism.typical_plan()


def noise_in_votes(spoil: Callable[[Scheme], Scheme] = lambda voting: voting) -> np.ndarray:
    """What is added to the true counts of a vote, through the code of every client and of the server."""
    scheme = private()
    voting, plan = spoil(scheme.at(1)), vote_plan(scheme)
    updates = torch.randn(COHORT, SIZE, generator=torch.Generator().manual_seed(1))
    streams = [Streams(5).stream("noise", client) for client in range(COHORT)]
    sent = client_messages(voting, plan, updates, streams=streams)
    _, state = server_step(
        voting,
        plan,
        sent.sum(0),
        survivors=COHORT,
        total_weight=float(COHORT),
        weights=torch.zeros(SIZE),
        state={},
        stream=Streams(5).stream("release"),
    )
    counts = bounded_codes(scheme.at(1), plan, updates, streams=streams).sum(0)
    assert int(counts.sum()) == COHORT * marks_of(0.05, SIZE)
    return (state["votes"] * COHORT - counts).double().numpy()


def enough(noise: np.ndarray, wanted: float) -> bool:
    """Whether noise of the wanted scale has so small a variance with a chance of α at least."""
    return float((noise**2).sum()) / wanted**2 >= stats.chi2.ppf(ALPHA, len(noise))


def test_votes_have_the_noise_that_is_counted_on() -> None:
    noise, scale = noise_in_votes(), SIGMA * math.sqrt(marks_of(0.05, SIZE))
    assert enough(noise, scale)
    assert noise.std() == pytest.approx(scale, rel=0.03) and abs(noise.mean()) < 5 * scale / math.sqrt(SIZE)


def test_votes_without_noise_or_with_less_are_caught() -> None:
    scale = SIGMA * math.sqrt(marks_of(0.05, SIZE))

    def weaker(voting: Scheme) -> Scheme:
        return replace(voting, noise=DiscreteGaussian(noise_multiplier=0.9 * SIGMA, signs=True))

    def bare(voting: Scheme) -> Scheme:
        return replace(voting, noise=_Bare(noise_multiplier=SIGMA, signs=True))

    assert not enough(noise_in_votes(weaker), scale)
    assert not enough(noise_in_votes(bare), scale)
    # The noise of the training rounds is not that of the votes, either.
    assert not enough(noise_in_votes(lambda voting: replace(voting, noise=private().noise.for_votes(0.9))), scale)


class _Bare(DiscreteGaussian):
    """A sabotaged twin: it claims to be noise, and sends the marks as they are."""

    def share(self, code, *, sensitivity, plan, rng):  # type: ignore[no-untyped-def]
        grid = self.grid(code_size=code.shape[-1], sensitivity=sensitivity, plan=plan)
        return (code.double() * grid.units).long() & (2**grid.bits - 1)
