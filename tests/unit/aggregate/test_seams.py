"""Where attacks and robust rules come in: an aggregator that looks at single codes, and clients that tamper."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import laconic
from conftest import make_population, make_records
from laconic import schemes
from laconic.aggregate.base import Aggregator, WeightedMean
from laconic.clients.simulated import SimulatedClients
from laconic.errors import ConfigError
from laconic.experiment.experiment import Experiment
from laconic.plan import RoundPlan
from laconic.runner.run import Run
from laconic.scheme import Scheme
from laconic.train.engines.engine import Trained, Updates

SIZES = [6, 9, 3, 12, 7, 5, 4, 8] * 3
TRAIN: dict[str, Any] = {"local_lr": 0.3, "local_steps": 3}


@dataclass(frozen=True, kw_only=True)
class CoordinateMedian(Aggregator):
    """The median of each coordinate, whatever a client counts."""

    def combine(self, codes: Tensor, weights: Tensor) -> Tensor:
        return codes.median(dim=0).values


@dataclass(frozen=True, kw_only=True)
class SlowMean(Aggregator):
    """The weighted mean, from single codes."""

    def combine(self, codes: Tensor, weights: Tensor) -> Tensor:
        return WeightedMean().combine(codes, weights)


def run(scheme: Scheme, tamper: Any = None, **options: Any) -> laconic.RunResult:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = nn.Linear(6, 3)
    experiment = Experiment(
        scheme=scheme,
        model=model,
        population=make_population(SIZES),
        sampler=laconic.Poisson(sampling_rate=0.8),
        rounds=4,
        test=make_records(100, seed=1),
        budget=laconic.Budget(delta=1e-5) if scheme.private else None,
        **options,
    )
    return Run(experiment, clients=SimulatedClients(experiment, tamper=tamper)).run()


def weights(result: laconic.RunResult) -> Tensor:
    return torch.cat([p.detach().reshape(-1) for p in result.model.parameters()])


def inverted(plan: RoundPlan, trained: Trained) -> Trained:
    """A quarter of the clients send the opposite, ten times as large."""
    factors = torch.tensor([-10.0 if client % 4 == 0 else 1.0 for client in trained.clients])
    return Updates(trained.clients, factors[:, None] * trained.values, trained.num_records)


@pytest.mark.parametrize("engine", ["one-by-one", "cohort"])
def test_a_mean_of_single_codes_is_the_mean(engine: str) -> None:
    plain = schemes.fl_std(**TRAIN)
    slow = run(replace(plain, aggregator=SlowMean()), engine=engine, workers=2, chunk=3)
    assert torch.allclose(weights(slow), weights(run(plain)), atol=1e-5)
    assert slow.ledger["bytes_up"] == run(plain).ledger["bytes_up"]


def test_a_median_stands_an_attack_that_breaks_the_mean() -> None:
    plain = schemes.fl_std(**TRAIN)
    honest, attacked = run(plain).last["accuracy"], run(plain, inverted).last["accuracy"]
    robust = run(replace(plain, aggregator=CoordinateMedian()), inverted).last["accuracy"]
    assert attacked < 0.6 < robust
    assert robust > honest - 0.1


def test_tampering_comes_before_the_code_is_bounded() -> None:
    """Clients that attack still clip and add noise, if they use this program: the seam is the update."""
    private = schemes.fl_std_dp(clip_norm=0.5, noise_multiplier=0.1, **TRAIN)
    boosted = run(private, lambda plan, t: Updates(t.clients, 1e6 * t.values, t.num_records))
    clipped = run(private, lambda plan, t: Updates(t.clients, 1e3 * t.values, t.num_records))
    assert torch.allclose(weights(boosted), weights(clipped), atol=1e-2)
    masked = run(private, inverted, secagg="masked")
    assert torch.equal(weights(masked), weights(run(private, inverted, noise_draws="per-client")))


def test_an_aggregator_that_looks_at_single_codes_is_refused_with_a_secure_sum() -> None:
    private = schemes.fl_std_dp(clip_norm=0.5, noise_multiplier=1.0, **TRAIN)
    with pytest.raises(ConfigError, match="CoordinateMedian looks at single codes, which a secure sum hides"):
        replace(private, aggregator=CoordinateMedian())


def test_an_aggregator_is_part_of_the_fingerprint_unless_it_is_the_mean() -> None:
    plain = schemes.fl_std(**TRAIN)
    assert "aggregator" not in plain.to_dict()
    median = replace(plain, aggregator=CoordinateMedian())
    assert median.fingerprint != plain.fingerprint
    assert Scheme.from_dict(median.to_dict()) == median
    assert Scheme.from_dict(plain.to_dict()) == plain


def test_clients_are_combined_in_their_order_whatever_the_chunks() -> None:
    seen: list[Tensor] = []

    @dataclass(frozen=True, kw_only=True)
    class NotingMean(Aggregator):
        def combine(self, codes: Tensor, weights: Tensor) -> Tensor:
            seen.append(codes.clone())
            return codes.mean(0)

    plain = replace(schemes.fl_std(**TRAIN), aggregator=NotingMean())
    run(plain, engine="one-by-one", workers=1)
    first, rest = list(seen), len(seen)
    run(plain, engine="one-by-one", workers=2, chunk=2)
    assert rest == 4
    assert all(np.allclose(a, b, atol=1e-5) for a, b in zip(first[:1], seen[rest : rest + 1], strict=True))
