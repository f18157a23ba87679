"""Noise drawn per sum: what is counted, what is refused, and that neither workers nor attackers change its meaning."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scheme_tools
import torch
from scheme_tools import scheme
from scipy import stats

from conftest import make_population
from laconic.adversary.attacks.gradient_ascent import SignInversion
from laconic.audit.setups import short_runs
from laconic.clients.simulated import SimulatedClients
from laconic.errors import ConfigError, PrivacyError, RunFolderError
from laconic.experiment.experiment import Experiment
from laconic.guard.noise import Tables
from laconic.privacy.accounting.budget import Budget
from laconic.privacy.accounting.sampling import Poisson
from laconic.privacy.mechanism import discrete_gaussian
from laconic.runner.run import Run

PRIVATE = ("fl-std-dp", "fl-sign-dp", "fl-top-dp")


def experiment(name: str = "fl-std-dp", **options: Any) -> Experiment:
    defaults: dict[str, Any] = {
        "scheme": scheme(name),
        "model": scheme_tools.model(),
        "population": make_population(scheme_tools.SIZES),
        "public": scheme_tools.make_records(12, seed=2),
        "sampler": Poisson(sampling_rate=1.0),
        "budget": Budget(delta=1e-5),
        "rounds": 3,
        "workers": 1,
    }
    return Experiment(**(defaults | options))


def weights(e: Experiment) -> torch.Tensor:
    run = Run(e)
    run.run()
    return run.state.weights


@pytest.mark.parametrize("name", PRIVATE)
def test_a_simulation_draws_once_for_a_coordinate(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[int] = []
    draw = Tables.draw

    def noted(self: Tables, rows: Any, count: int, *others: Any) -> torch.Tensor:
        drawn.append(count)
        return draw(self, rows, count, *others)

    monkeypatch.setattr(Tables, "draw", noted)
    for how, clients in (("auto", 1), ("per-client", 40)):
        e = experiment(name, rounds=1, noise_draws=how)
        drawn.clear()
        weights(e)
        tables = 1 if name == "fl-sign-dp" else 2
        assert sum(drawn) == tables * clients * e.code_size


@pytest.mark.parametrize("name", PRIVATE[:2])
def test_sums_are_exact_so_workers_and_repetition_change_no_bit(name: str) -> None:
    one = weights(experiment(name, engine="one-by-one"))
    assert torch.equal(one, weights(experiment(name, engine="one-by-one", workers=3)))
    assert not torch.equal(one, weights(experiment(name, engine="one-by-one", noise_draws="per-client")))


@pytest.mark.parametrize(("first", "then"), [("auto", "per-client"), ("per-client", "per-sum")])
def test_a_run_is_not_resumed_with_other_draws(first: str, then: str, tmp_path: Path) -> None:
    def interrupt(row: dict[str, Any]) -> None:
        raise KeyboardInterrupt

    options: dict[str, Any] = {"out": tmp_path / "run", "rounds": 2}
    with pytest.raises(KeyboardInterrupt):
        scheme_tools.run(scheme("fl-std-dp"), observer=interrupt, noise_draws=first, **options)
    with pytest.raises(RunFolderError, match="another noise draws"):
        scheme_tools.run(scheme("fl-std-dp"), resume=True, noise_draws=then, **options)
    scheme_tools.run(scheme("fl-std-dp"), resume=True, noise_draws=first, **options)


def test_the_distance_from_the_shares_is_counted_in_delta(monkeypatch: pytest.MonkeyPatch) -> None:
    e = experiment()
    slack, far = e.delta_slack(), e.mechanism.shares_distance()
    assert 0 < far < slack < 1e-15
    assert slack < experiment(noise_draws="per-client").delta_slack()
    # If shares could be so narrow that their sum is another distribution, the run would be refused.
    monkeypatch.setattr(discrete_gaussian, "SMALLEST_SHARE", 1.0)
    with pytest.raises(PrivacyError, match="would add"):
        e.delta_slack()


def test_the_statement_says_how_the_noise_was_drawn() -> None:
    at_once, each = (Run(experiment(noise_draws=how)).run().statement for how in ("per-sum", "per-client"))
    assert "drew the noise of each sum at once" in at_once["secure_aggregation"]
    assert any("drawn at once, from the distribution of their sum up to" in text for text in at_once["assumptions"])
    assert "at once" not in str(each)
    assert at_once["released"]["epsilon"]["pld"] == pytest.approx(each["released"]["epsilon"]["pld"], rel=1e-9)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"secagg": "masked"}, "masks a share of its own"),
        ({"scheme": scheme("fl-std"), "budget": None}, "fl-std has none"),
        ({"scheme": scheme("fl-std-record-dp")}, "fl-std-record-dp has none"),
    ],
)
def test_noise_per_sum_is_refused_where_clients_send_shares_or_none(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        experiment(noise_draws="per-sum", **options)


def test_masked_sums_are_drawn_per_client_and_so_are_their_audits() -> None:
    assert not experiment(secagg="masked").draws_per_sum
    assert not short_runs(experiment(secagg="masked")).experiment.draws_per_sum
    assert short_runs(experiment()).experiment.draws_per_sum


@pytest.mark.parametrize("how", ["per-sum", "per-client"])
@pytest.mark.parametrize("groups", [1, 4])
def test_attackers_that_leave_out_their_noise_leave_it_out_of_the_sum(how: str, groups: int) -> None:
    """Nobody learns anything here, so codes are 0 and a sum is noise: half of it, as half of the clients attack."""
    still = replace(scheme("fl-std-dp", local_lr=1e-12), groups=groups)
    attack = SignInversion(fraction=0.5, collude=True)
    assert attack.omit_noise
    e = experiment(scheme=still, attack=attack, noise_draws=how)
    clients, run = SimulatedClients(e), Run(e)
    run.begin()
    grid, squares = e.grid, []
    assert grid is not None
    for number in range(1, 25):
        plan = run.plan(number)
        sent = clients.collect(plan, run.state.weights)
        for one, total in zip(plan.sums, sent.total.reshape(len(plan.sums), -1), strict=True):
            honest = len(one.cohort) - len(np.intersect1d(one.cohort, e.malicious))
            noise = ((total + 2 ** (grid.bits - 1)) & (2**grid.bits - 1)) - 2 ** (grid.bits - 1)
            scale = grid.share_scale(one.noise_shares) * honest**0.5
            squares.append((noise.double() / scale).square().sum().item() / noise.numel())
    samples = len(squares) * e.code_size
    statistic = float(np.mean(squares)) * samples
    assert 1e-6 < stats.chi2.cdf(statistic, samples) < 1 - 1e-6
    assert stats.chi2.cdf(statistic / 2, samples) < 1e-6  # as if attackers had added theirs
