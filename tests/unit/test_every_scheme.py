"""One table of tests that every scheme passes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from scheme_tools import SIZES, model, run, sampling_rate, scheme

import laconic
from conftest import make_population, make_records
from laconic.catalogue import SCHEMES
from laconic.clients import wire
from laconic.experiment.experiment import Experiment
from laconic.packing import FLOAT32, SIGNS, Encoding
from laconic.round import client_weight, downlink_encoding, uplink_encoding
from laconic.runner.run import Run
from laconic.scheme import Scheme

FEDERATED = [name for name in SCHEMES if name != "centralized"]
CLIENT_LEVEL = [name for name in FEDERATED if not SCHEMES[name].record_level]


@pytest.mark.parametrize("name", FEDERATED)
def test_it_learns(name: str) -> None:
    chosen = scheme(name, noise_multiplier=0.2 if SCHEMES[name].record_level else 0.1)
    result = run(chosen, rounds=30, eval_every=30)
    assert result.last["accuracy"] > 0.75


@pytest.mark.parametrize("name", CLIENT_LEVEL)
def test_engines_agree(name: str) -> None:
    one, many = run(scheme(name), engine="one-by-one"), run(scheme(name), engine="cohort", chunk=3)
    # The sparse solver stops at a duality gap, which rounding may meet some iterations earlier or later.
    tolerance = 2e-3 if name.startswith("fl-cs") else 1e-4
    if name in ("fl-sign", "fl-sign-dp", "sign-sgd", "sign-sgd-dp"):
        # The sign of a sum near zero hangs on the last bit: most weights agree, a few may differ by a step.
        tolerance = 2 * 5 * 0.03 + 1e-4
    for a, b in zip(one.model.parameters(), many.model.parameters(), strict=True):
        assert float((a - b).detach().abs().max()) <= tolerance
    assert one.ledger == many.ledger


class Stopped(Exception):
    pass


@pytest.mark.parametrize("name", FEDERATED)
def test_it_resumes_bit_identically(name: str, tmp_path: Path) -> None:
    def stop(row: dict[str, Any]) -> None:
        if row["round"] == 3:
            raise Stopped

    whole = run(scheme(name), out=tmp_path / "whole")
    with pytest.raises(Stopped):
        run(scheme(name), out=tmp_path / "cut", observer=stop, checkpoint_seconds=0.0)
    resumed = run(scheme(name), out=tmp_path / "cut", resume=True)
    first, second = (tmp_path / folder / "model.safetensors" for folder in ("whole", "cut"))
    assert first.read_bytes() == second.read_bytes()
    assert resumed.ledger == whole.ledger
    assert resumed.statement == whole.statement


@pytest.mark.parametrize("name", FEDERATED)
def test_the_ledger_counts_serialised_bytes(name: str) -> None:
    result = run(scheme(name), rounds=2)
    chosen = scheme(name)
    simulation = Run(
        Experiment(
            scheme=chosen,
            model=model(),
            population=make_population(SIZES),
            sampler=laconic.Poisson(sampling_rate=sampling_rate(name)),
            rounds=2,
            budget=laconic.Budget(delta=1e-5) if chosen.private else None,
            public=make_records(12, seed=2),
        )
    )
    codes, plan = first_round(simulation)
    up_as, down_as = uplink_encoding(chosen, simulation.clients.code_size, plan), downlink_encoding(chosen)
    up = [length(codes[i], chosen, plan, up_as) for i in range(len(codes))]
    down = length(simulation.state.weights[: simulation.clients.down_size], chosen, plan, down_as)
    assert result.history[0]["bytes_up"] == sum(up)
    assert result.history[0]["bytes_down"] == down * len(up)
    once = [length(v, chosen, plan, Encoding("integer", 32)) for v in simulation.state.shared.values()]
    assert result.history[0]["bytes_once"] == sum(once) * len(up)


def first_round(simulation: Run) -> tuple[list[torch.Tensor], Any]:
    simulation.begin()
    plan = simulation.plan(1)
    chunks = simulation.clients.work.codes(plan, simulation.state.weights)
    return [code for chunk in chunks for code in chunk.values], plan


def length(values: torch.Tensor, chosen: Scheme, plan: Any, encoding: Encoding) -> int:
    message = wire.Message("code", 1, 0, 7, client_weight(chosen, 3), plan.fingerprint, values)
    data = wire.encode(message, encoding)
    back = wire.decode(data, fingerprint=plan.fingerprint, round=1, attempt=0, size=values.numel(), encoding=encoding)
    if encoding in (FLOAT32, SIGNS) and chosen.downlink != "signs":
        assert torch.equal(back.values, values.to(torch.float32))
    return len(data)


@pytest.mark.parametrize("name", [name for name in CLIENT_LEVEL if SCHEMES[name].private])
def test_the_epsilon_is_the_accountants(name: str) -> None:
    result, chosen = run(scheme(name)), scheme(name)
    size = sum(p.numel() for p in model().parameters())
    accountant = laconic.Accountant(
        sampler=laconic.Poisson(sampling_rate=sampling_rate(name)),
        noise=chosen.noise,
        num_clients=len(SIZES),
        delta=1e-5,
        sensitivity=chosen.clip.sensitivity(chosen.codec.code_size(size)),
    )
    assert result.last["epsilon"] == pytest.approx(accountant.released_epsilon(5), rel=1e-9)
    # Integer noise costs a little: never less than the continuous mechanism of the same multiplier.
    plain = laconic.Accountant(
        sampler=accountant.sampler,
        noise=laconic.schemes.fl_std_dp(clip_norm=1.0, noise_multiplier=0.5, local_lr=0.1, local_steps=1).noise,
        num_clients=len(SIZES),
        delta=1e-5,
    )
    assert result.last["epsilon"] >= plain.released_epsilon(5) - 1e-9


@pytest.mark.parametrize("name", [name for name in FEDERATED if SCHEMES[name].private])
@pytest.mark.parametrize("sampler", [laconic.FixedSize(cohort_size=40), laconic.AsPublished(cohort_size=40)])
def test_every_private_scheme_takes_every_sampler(name: str, sampler: Any) -> None:
    result = run(scheme(name), sampling_rate=None, sampler=sampler, rounds=1, eval_every=1)
    available = [k for k, v in result.statement["released"]["epsilon"].items() if v is not None]
    assert available == (["moments", "rdp", "pld"] if SCHEMES[name].record_level else list(sampler.figures))
