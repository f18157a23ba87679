"""Whether a server with weights of its choice finds out from an evaluation who took part: not beyond the stated ε.

The worst case is a membership test: weights that are right on all records of one client, and on nothing else. The sum
then differs by a whole unit between the world with that client and the one without it.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from laconic import Poisson, schemes
from laconic.audit.bounds import at_least, at_most
from laconic.codecs.queries import Evaluations
from laconic.experiment.mechanism import Mechanism
from laconic.privacy.accounting.budget import Budget
from laconic.privacy.mechanism.discrete_gaussian import DiscreteGaussian
from laconic.round import noisy_codes, released_sums
from laconic.scheme import Scheme
from laconic.streams import Streams

pytestmark = pytest.mark.stat
COHORT, SIGMA, DELTA, TRIALS, ERROR = 5, 1.5, 1e-3, 3000, 1e-6


def private(sigma: float = SIGMA) -> Mechanism:
    scheme = schemes.fl_std_dp(clip_norm=0.4, noise_multiplier=50.0, local_lr=0.1, local_steps=1)
    return Mechanism(
        scheme=replace(scheme, evaluations=Evaluations(every=2, noise_multiplier=sigma)),
        sampler=Poisson(sampling_rate=1.0),
        num_clients=COHORT,
        size=20,
        rounds=2,
        budget=Budget(delta=DELTA),
    )


def released(measuring: Scheme, *, there: bool) -> np.ndarray:
    """Sums of an evaluation in which the client has all right, or nothing to measure: every cell is one trial."""
    plan, streams = private().typical_plan(), Streams(int(there))
    cells = torch.zeros(COHORT, TRIALS)
    cells[0] = float(there)
    sent = noisy_codes(measuring, plan, cells, streams=[streams.stream("noise", client) for client in range(COHORT)])
    sums = released_sums(measuring, plan, sent.sum(0)[None], survivors=[COHORT], stream=streams.stream("release"))
    return sums[0].numpy()


def shown(measuring: Scheme) -> float:
    """At least this ε, by the best threshold; each of the thresholds with a share of the error."""
    with_, without = (released(measuring, there=there) for there in (True, False))
    found = 0.0
    thresholds = np.linspace(-1.0, 3.0, 9)
    for threshold in thresholds:
        hits, alarms = int((with_ > threshold).sum()), int((without > threshold).sum())
        true = at_least(hits, TRIALS, ERROR / len(thresholds))
        false = at_most(alarms, TRIALS, ERROR / len(thresholds))
        if true > DELTA:
            found = max(found, math.log((true - DELTA) / false))
    return found


def test_a_membership_test_stays_within_the_stated_figure() -> None:
    mechanism = private()
    assert mechanism.client_evaluation is not None and mechanism.client_evaluation.accountant is not None
    stated = mechanism.client_evaluation.accountant.participant_epsilon(1)
    found = shown(mechanism.scheme.client_evaluation)
    assert 0.2 < found <= stated, "the test itself must be able to see something"


def test_noise_that_is_too_small_or_missing_is_caught() -> None:
    mechanism = private()
    assert mechanism.client_evaluation is not None and mechanism.client_evaluation.accountant is not None
    stated = mechanism.client_evaluation.accountant.participant_epsilon(1)
    weak = replace(mechanism.scheme.client_evaluation, noise=DiscreteGaussian(noise_multiplier=SIGMA / 5))
    assert shown(weak) > stated
