"""The round as pure functions."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from laconic import schemes
from laconic.errors import PrivacyError, TrainingError
from laconic.plan import RoundPlan
from laconic.planning import plan_round
from laconic.privacy.accounting.sampling import FixedSize, Poisson
from laconic.privacy.mechanism.discrete_gaussian import DiscreteGaussian
from laconic.privacy.mechanism.gaussian import NoNoise
from laconic.round import client_message, client_messages, noise_stream, server_step, uplink_encoding
from laconic.streams import Stream, Streams

PRIVATE = schemes.fl_std_dp(clip_norm=0.5, noise_multiplier=1.2, local_lr=0.1, local_steps=3, batch_size=4)
STREAMS = Streams(3)
NOTHING = torch.zeros(3, dtype=torch.int64)


def plan(number: int = 1, attempt: int = 0, **options: int) -> RoundPlan:
    return plan_round(
        PRIVATE, Poisson(sampling_rate=0.1), streams=STREAMS, round=number, attempt=attempt, num_clients=500, **options
    )


def test_a_plan_depends_on_seed_round_and_attempt_only() -> None:
    assert np.array_equal(plan(1).cohort, plan(1).cohort)
    assert not np.array_equal(plan(1).cohort, plan(2).cohort)
    assert not np.array_equal(plan(1).cohort, plan(1, attempt=1).cohort)
    assert plan(1).round_seed != plan(2).round_seed
    assert plan(1).run_seed == plan(2).run_seed
    assert plan(1).fingerprint == PRIVATE.fingerprint


def test_the_public_seed_is_not_the_secret_one() -> None:
    """Whoever knows the public seeds must not be able to derive cohort or noise from them."""
    public = plan(1)
    assert STREAMS.key("cohort", 1, 0) not in (public.run_seed, public.round_seed)
    again = Streams(public.round_seed).numpy("cohort", 1, 0)
    assert not np.array_equal(Poisson(sampling_rate=0.1).draw(500, again), public.cohort)


def test_exhausted_clients_are_dropped_after_the_draw() -> None:
    drawn = plan(1).cohort
    kept = plan_round(
        PRIVATE,
        Poisson(sampling_rate=0.1),
        streams=STREAMS,
        round=1,
        num_clients=500,
        exhausted=drawn[:3],
    )
    assert np.array_equal(kept.cohort, drawn[3:])
    assert kept.planned_cohort == 50.0
    assert kept.noise_shares == len(drawn) - 3


def test_noise_is_sized_for_those_who_stay() -> None:
    sized = plan(1, max_dropouts=4, max_colluders=2)
    assert sized.noise_shares == len(sized.cohort) - 6
    assert sized.viable
    assert 7 <= sized.least_cohort < 20
    assert not plan(1, max_dropouts=len(sized.cohort)).viable


def test_one_message_is_a_row_of_many() -> None:
    updates = torch.randn(4, 20, generator=torch.Generator().manual_seed(0))
    noise = [noise_stream(STREAMS, plan(), client) for client in range(4)]
    together = client_messages(PRIVATE, plan(), updates, streams=noise)
    for row in range(4):
        assert torch.equal(client_message(PRIVATE, plan(), updates[row], stream=noise[row]), together[row])


def test_messages_are_clipped_before_the_noise() -> None:
    quiet = dataclasses.replace(PRIVATE, noise=NoNoise())
    updates = torch.full((2, 20), 3.0)
    codes = client_messages(quiet, plan(), updates, streams=[noise_stream(STREAMS, plan(), 0)] * 2)
    assert torch.all(torch.linalg.vector_norm(codes.double(), dim=1) <= 0.5)
    assert float(codes[0].norm()) == pytest.approx(0.5, rel=1e-5)


def everyone(**options: int) -> RoundPlan:
    return plan_round(PRIVATE, FixedSize(cohort_size=50), streams=STREAMS, round=1, num_clients=500, **options)


def step(total: torch.Tensor, *, survivors: int, chosen: RoundPlan) -> torch.Tensor:
    new, _ = server_step(
        PRIVATE,
        chosen,
        total,
        survivors=survivors,
        total_weight=float(survivors),
        weights=torch.zeros(len(total)),
        state={},
        stream=Stream(1),
    )
    return new


def units(chosen: RoundPlan, size: int) -> float:
    assert isinstance(PRIVATE.noise, DiscreteGaussian)
    return PRIVATE.noise.grid(code_size=size, sensitivity=0.5, plan=chosen).units


def test_the_private_denominator_is_public() -> None:
    """q·N under Poisson sampling, whoever came; and with everyone there the server adds no noise."""
    total = torch.tensor([50, 100, -50])
    expected = torch.tensor([1.0, 2.0, -1.0]) / units(plan(), 3)
    assert torch.allclose(step(total, survivors=len(plan().cohort), chosen=plan()), expected)


def test_only_residues_count() -> None:
    """A masked sum is known mod 2^b alone: it gives the same weights, bit for bit."""
    bits = uplink_encoding(PRIVATE, 4, plan()).bits
    total = torch.tensor([3, -3, 2 ** (bits - 1) - 1, -(2 ** (bits - 1))])
    opened = step(total, survivors=len(plan().cohort), chosen=plan())
    assert torch.equal(opened, step(total % 2**bits, survivors=len(plan().cohort), chosen=plan()))
    assert torch.equal(opened, step(total + 5 * 2**bits, survivors=len(plan().cohort), chosen=plan()))
    assert torch.equal(opened.sign(), total.sign().float())


def test_a_float_sum_of_integer_noise_is_refused() -> None:
    with pytest.raises(TypeError, match="summed in integers"):
        step(torch.zeros(3), survivors=len(plan().cohort), chosen=plan())


def test_messages_are_residues() -> None:
    """Integers mod 2^b, of which the sum is that of the codes up to the stated noise."""
    chosen, size = plan(), 1000
    bits = uplink_encoding(PRIVATE, size, chosen).bits
    update = torch.linspace(-1, 1, size)
    update *= 0.4 / update.norm()
    messages = [
        client_message(PRIVATE, chosen, update, stream=noise_stream(STREAMS, chosen, int(c))) for c in chosen.cohort
    ]
    assert all(m.dtype == torch.int64 and m.min() >= 0 and m.max() < 2**bits for m in messages)
    released = step(torch.stack(messages).sum(0), survivors=len(messages), chosen=chosen) * chosen.planned_cohort
    noise = released.double() - len(messages) * update.double()
    assert float(noise.std()) == pytest.approx(0.5 * 1.2, rel=0.15)


def test_an_under_noised_sum_is_not_opened() -> None:
    with pytest.raises(PrivacyError, match="not opened"):
        step(NOTHING, survivors=3, chosen=plan())
    # Colluders can subtract their shares, so dropouts must not eat into what is kept for them.
    slack = everyone(max_dropouts=4, max_colluders=6)
    assert (slack.noise_shares, slack.min_survivors) == (40, 46)
    with pytest.raises(PrivacyError, match="not opened"):
        step(NOTHING, survivors=45, chosen=slack)


@pytest.mark.parametrize("survivors", [0, 46, 50])
def test_what_is_released_has_the_same_noise_whoever_came(survivors: int) -> None:
    """The shares that are there and the server's top-up together: a constant variance."""
    chosen, size = everyone(max_dropouts=4, max_colluders=6), 200_000
    noise = [noise_stream(STREAMS, chosen, client) for client in range(survivors)]
    total = torch.zeros(size, dtype=torch.int64)
    for stream in noise:
        total += client_message(PRIVATE, chosen, torch.zeros(size), stream=stream)
    released = step(total, survivors=survivors, chosen=chosen) * chosen.planned_cohort
    expected = 0.5 * 1.2 * (50 / 40) ** 0.5
    assert float(released.std()) == pytest.approx(expected, rel=0.01)


def test_plain_averaging_divides_by_the_weights_that_came() -> None:
    scheme = schemes.fl_std(local_lr=0.1, local_steps=1)
    fixed = plan_round(scheme, FixedSize(cohort_size=5), streams=STREAMS, round=1, num_clients=10)
    new, _ = server_step(
        scheme,
        fixed,
        torch.tensor([30.0]),
        survivors=2,
        total_weight=15.0,
        weights=torch.ones(1),
        state={},
        stream=Stream(1),
    )
    assert torch.equal(new, torch.tensor([3.0]))


def test_momentum_and_learning_rate_of_the_server() -> None:
    scheme = schemes.fl_std(local_lr=0.1, local_steps=1, server_lr=0.5, momentum=0.9)
    state = scheme.rule.init(1, 1, torch.device("cpu"))
    weights = torch.zeros(1)
    seen = []
    for _ in range(3):
        weights, state = server_step(
            scheme, plan(), torch.ones(1), survivors=1, total_weight=1.0, weights=weights, state=state, stream=Stream(1)
        )
        seen.append(float(weights))
    assert seen == pytest.approx([0.5, 0.5 + 0.95, 0.5 + 0.95 + 0.5 * 2.71])


def test_divergence_is_named() -> None:
    scheme = schemes.fl_std(local_lr=0.1, local_steps=1)
    with pytest.raises(TrainingError, match="lower --local-lr"):
        server_step(
            scheme,
            plan(),
            torch.tensor([float("nan")]),
            survivors=1,
            total_weight=1.0,
            weights=torch.ones(1),
            state={},
            stream=Stream(1),
        )
