"""Canaries are clients: what they hand in arrives clipped and with noise, and nobody else notices them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from audit_tools import experiment

import laconic
from laconic.audit.canaries import (
    OVERSHOOT,
    Canaries,
    CanaryClients,
    OrthogonalDirections,
    RandomDirections,
    code_when_out,
    hadamard,
)
from laconic.audit.setups import Seen, short_runs, watch, with_canaries
from laconic.catalogue import SCHEMES
from laconic.clients.simulated import SimulatedClients
from laconic.experiment.experiment import Experiment
from laconic.planning import plan_round
from laconic.round import bounded_codes, noise_stream
from laconic.runner.run import Run
from laconic.train.engines.engine import Trained, Updates

PRIVATE = ("fl-std-dp", "fl-sign-dp", "fl-cs-dp", "fl-top-dp", "fl-rnd-dp", "sign-sgd-dp")
"""One for every codec; the others are in the slow test."""
OTHERS = sorted(
    name for name, entry in SCHEMES.items() if entry.private and not entry.record_level and name not in PRIVATE
)


def short(one: Experiment, seed: int = 0) -> Seen:
    laid = short_runs(one)
    clients = CanaryClients(replace(laid.experiment, seed=seed), bystanders=True)
    coins = np.arange(laid.lanes) % 3 == 0
    directions = OrthogonalDirections(clients)
    canaries = Canaries(0, coins, code_when_out(laid.experiment.sampler), directions)
    return watch(Run(clients.experiment, clients=clients), clients, canaries)


@pytest.mark.parametrize("name", [*PRIVATE, *(pytest.param(name, marks=pytest.mark.slow) for name in OTHERS)])
def test_a_canary_arrives_at_the_clip_norm_in_every_scheme(name: str) -> None:
    """With hardly any noise, a sum has S along the canaries that are in, and nothing else."""
    seen = short(experiment(name, sigma=0.01, rounds=2))
    for view in (seen.server, seen.outsider):
        assert view.along[:, 0, seen.coins] == pytest.approx(1.0, abs=0.06)
        assert view.along[:, 0, ~seen.coins] == pytest.approx(0.0, abs=0.06)
        assert view.free * 0.01 == pytest.approx(0.0, abs=0.06) and view.free.size > 100
    assert seen.there.all() and seen.most == 2


def test_a_replaced_canary_has_the_opposite_code() -> None:
    seen = short(experiment("fl-std-dp", sigma=0.01, sampler=laconic.FixedSize(cohort_size=40)))
    assert seen.server.along[:, 0, ~seen.coins] == pytest.approx(-1.0, abs=0.06)


def test_who_is_not_drawn_is_not_in_the_sum() -> None:
    seen = short(experiment("fl-std-dp", sigma=0.01, rate=0.3, rounds=4))
    assert np.array_equal(seen.there, seen.drawn) and 0.2 < seen.there.mean() < 0.4
    expected = np.where(seen.there & seen.coins, 1.0, 0.0)
    assert seen.server.along[:, 0] == pytest.approx(expected, abs=0.06)


@pytest.mark.usefixtures("noise_by_seed")
@pytest.mark.parametrize("name", ["fl-std-dp", "fl-sign-dp", "fl-top-dp", "fl-cs-dp"])
def test_honest_clients_do_as_they_did(name: str) -> None:
    """Beside canaries they send the same codes, to the bit, and the audit knows their sum."""
    one = experiment(name, sigma=0.5)
    plain, clients = SimulatedClients(one), CanaryClients(with_canaries(one, 10))
    clients.work.canaries = Canaries(40, np.ones(10, dtype=bool), 0.0, RandomDirections(clients))
    weights = plain.model.initial
    plan = plan_round(one.scheme, one.sampler, streams=plain.streams, round=1, num_clients=40, shared=plain.shared())
    expected = torch.cat([chunk.values for chunk in plain.work.codes(plan, weights)])
    found = torch.cat([chunk.values for chunk in clients.work.codes(plan, weights)])
    assert torch.equal(expected, found)
    trained = torch.cat([chunk.values for chunk in plain.work.each(plan, plan.cohort, weights, _kept)])
    streams = [noise_stream(plain.streams, plan, client) for client in range(40)]
    codes = bounded_codes(one.scheme, plan, trained, streams=streams)
    assert clients.work.known is not None
    assert torch.allclose(clients.work.known, codes.double().sum(0, keepdim=True), atol=1e-5)


def _kept(trained: Trained) -> Updates:
    return Updates(trained.clients, trained.values.clone(), trained.num_records)


def test_random_canaries_are_nearly_orthogonal_and_far_too_long() -> None:
    clients = CanaryClients(with_canaries(experiment("fl-std-dp"), 50))
    directions, plan = RandomDirections(clients), clients.experiment.typical_plan()
    codes = directions.codes(plan, np.arange(50))
    products = codes @ codes.T
    assert torch.allclose(products.diagonal(), torch.ones(50), atol=1e-5)
    assert float((products - products.diagonal().diag()).abs().max()) < 0.6  # in 83 dimensions
    long = directions.updates(plan, np.arange(50)).norm(dim=1)
    assert torch.allclose(long, torch.full((50,), OVERSHOOT * 0.7), rtol=1e-4)


def test_rows_of_the_hadamard_matrix_are_orthogonal() -> None:
    rows = hadamard(64)
    assert torch.equal(rows @ rows.T, 64 * torch.eye(64)) and bool((rows.abs() == 1).all())
