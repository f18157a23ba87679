"""Runs with secure sums: simulated and masked ones give the same models, whoever vanishes when."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import laconic
from conftest import make_population, make_records
from laconic.catalogue import build_scheme
from laconic.clients import wire
from laconic.clients.secure_sums import sum_plan, sum_terms
from laconic.errors import ConfigError, PrivacyError, RunFolderError
from laconic.experiment.mechanism import STAGES, uploading, vanishing_clients
from laconic.plan import RoundPlan
from laconic.planning import plan_round
from laconic.privacy.accounting.sampling import FixedSize, Poisson
from laconic.scheme import Scheme
from laconic.secagg.crypto.keys import ANNOUNCEMENT_BYTES
from laconic.secagg.foretell import Vanishes
from laconic.secagg.terms import NONCE_BYTES
from laconic.streams import Streams

TRAIN = {"local_lr": 0.3, "local_steps": 2, "batch_size": 4}
SCHEMES: dict[str, dict[str, Any]] = {
    "fl-std-dp": {"clip_norm": 0.7},
    "fl-sign-dp": {"sign_step": 0.03},
    "fl-cs-dp": {"clip_norm": 0.7, "ratio": 0.5, "num_chunks": 3},
    "fl-top-dp": {"clip_norm": 0.7, "ratio": 0.4, "init_steps": 2},
}
SIZES = [6, 3, 5, 4] * 10


def scheme(name: str = "fl-std-dp", **options: Any) -> Scheme:
    return build_scheme(name, **(SCHEMES[name] | TRAIN | {"noise_multiplier": 0.5} | options))


def run(chosen: Scheme, **options: Any) -> laconic.RunResult:
    torch.manual_seed(0)
    defaults: dict[str, Any] = {
        "model": nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3)),
        "clients": make_population(SIZES),
        "test": make_records(100, seed=1),
        "public": make_records(12, seed=2),
        "rounds": 4,
        "sampling_rate": 0.3,
        "delta": 1e-5,
        "noise_draws": "per-client",
    }
    return laconic.run(chosen, **(defaults | options))


def assert_same_models(a: laconic.RunResult, b: laconic.RunResult) -> None:
    for ours, theirs in zip(a.model.parameters(), b.model.parameters(), strict=True):
        assert torch.equal(ours, theirs)


def without_bytes(history: list[dict[str, Any]]) -> list[dict[str, Any]]:
    left_out = ("seconds", "bytes_up")
    return [{k: v for k, v in row.items() if k not in left_out and not k.startswith("secagg_")} for row in history]


@pytest.mark.parametrize("name", SCHEMES)
def test_masked_and_simulated_runs_give_the_same_model(name: str) -> None:
    simulated, masked = run(scheme(name)), run(scheme(name), secagg="masked")
    assert_same_models(simulated, masked)
    assert without_bytes(simulated.history) == without_bytes(masked.history)
    assert "discarded" not in masked.history[0]


@pytest.mark.parametrize("name", SCHEMES)
@pytest.mark.parametrize("consistency", ["plain", "signed"])
def test_so_they_do_with_dropouts_at_any_stage(name: str, consistency: str) -> None:
    dropouts = {
        "dropout_rate": 0.25,
        "dropout_stage": "any",
        "max_dropouts": 3,
        "consistency": consistency,
        "rounds": 8,
        "sampler": FixedSize(cohort_size=12),
        "sampling_rate": None,
    }
    simulated, masked = run(scheme(name), **dropouts), run(scheme(name), secagg="masked", **dropouts)
    assert_same_models(simulated, masked)
    assert without_bytes(simulated.history) == without_bytes(masked.history)
    assert any(row["messages_up"] < row["cohort"] for row in masked.history)
    if consistency == "signed":  # some rounds were lost, and some were not
        assert 0 < sum("discarded" in row for row in masked.history) < 8


def test_large_cohorts_have_neighbours_and_a_committee() -> None:
    options: dict[str, Any] = {"rounds": 2, "sampling_rate": 0.9, "max_dropouts": 8, "dropout_rate": 0.1}
    simulated, masked = run(scheme(), **options), run(scheme(), secagg="masked", **options)
    assert min(row["cohort"] for row in masked.history) > 32
    assert_same_models(simulated, masked)


def test_the_ledger_has_lines_for_masks() -> None:
    simulated, masked = run(scheme()), run(scheme(), secagg="masked")
    header = wire.message_size(0)
    for ours, theirs in zip(simulated.history, masked.history, strict=True):
        assert theirs["bytes_up"] == ours["bytes_up"] - header * ours["messages_up"]  # the packed residues alone
        assert theirs["bytes_down"] == ours["bytes_down"]
        assert theirs["secagg_shares_up"] > 0
        assert theirs["secagg_unmask_up"] > 0
    kinds = {key for key in masked.ledger if key.startswith("secagg_")}
    assert kinds == {
        f"secagg_{k}" for k in ("keys_up", "keys_down", "plan_down", "shares_up", "unmask_down", "unmask_up")
    }
    for key in kinds:
        assert masked.ledger[key] == sum(row[key] for row in masked.history)
    newcomers = len({c for n in range(1, 5) for c in cohort(n)})
    assert masked.ledger["secagg_keys_up"] == (ANNOUNCEMENT_BYTES + NONCE_BYTES) * newcomers
    assert not any(key.startswith("secagg_") for key in simulated.ledger)


def cohort(number: int) -> list[int]:
    chosen = Poisson(sampling_rate=0.3).draw(len(SIZES), Streams(0).numpy("cohort", number, 0))
    return [int(client) for client in chosen]


@pytest.mark.usefixtures("noise_by_seed")
@pytest.mark.parametrize("secagg", ["simulated", "masked"])
def test_a_round_with_too_few_survivors_is_discarded_charged_and_reported(secagg: str, tmp_path: Path) -> None:
    """Most of the clients vanish and none may: every round is lost, training goes on, and noise alone is released."""
    result = run(scheme(), secagg=secagg, dropout_rate=0.7, out=tmp_path / "run")
    assert all("uploads, but a sum of fewer than" in row["discarded"] for row in result.history)
    assert result.last["round"] == 4
    assert result.statement["released"]["rounds_charged"] == 4
    charges = (tmp_path / "run/charges.jsonl").read_text().splitlines()
    assert len(charges) == 4
    assert [lost["round"] for lost in result.summary()["discarded"]] == [1, 2, 3, 4]
    assert "4 rounds, charged all the same" in (tmp_path / "run/report.html").read_text()
    # Noise alone: the same weights as with data that say nothing.
    zeros = run(scheme(local_lr=1e-30), secagg=secagg, dropout_rate=0.7)
    for ours, theirs in zip(result.model.parameters(), zeros.model.parameters(), strict=True):
        assert torch.equal(ours, theirs)
    charged = json.loads((tmp_path / "run/privacy.json").read_text())
    assert "made to vanish (before-upload)" in " ".join(charged["assumptions"])


@pytest.mark.parametrize("dropout_stage", ["before-upload", "during-unmask"])
@pytest.mark.parametrize("consistency", ["plain", "signed"])
def test_a_masked_run_is_resumed_bit_for_bit(dropout_stage: str, consistency: str, tmp_path: Path) -> None:
    options: dict[str, Any] = {
        "secagg": "masked",
        "dropout_rate": 0.1,
        "dropout_stage": dropout_stage,
        "consistency": consistency,
        "max_dropouts": 2,
        "rounds": 8,
        "checkpoint_seconds": 0.0,
    }

    def stop(row: dict[str, Any]) -> None:
        if row["round"] == 3:
            raise RuntimeError("killed")

    with pytest.raises(RuntimeError, match="killed"):
        run(scheme(), out=tmp_path / "run", observer=stop, **options)
    resumed = run(scheme(), out=tmp_path / "run", resume=True, **options)
    whole = run(scheme(), **options)
    assert_same_models(resumed, whole)
    assert resumed.ledger == whole.ledger  # clients keep their keys, and do not announce them again
    bytes_of = [[{k: v for k, v in row.items() if k != "seconds"} for row in r.history] for r in (resumed, whole)]
    assert bytes_of[0] == bytes_of[1]
    assert resumed.statement == whole.statement  # the round that was killed is repeated exactly: no new charge
    with pytest.raises(RunFolderError, match="another secagg"):
        run(scheme(), out=tmp_path / "run", resume=True, **(options | {"secagg": "simulated"}))


def test_a_repeated_round_is_a_new_attempt_with_new_noise_and_is_charged_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(row: dict[str, Any]) -> None:
        if row["round"] == 3:
            raise RuntimeError("killed")

    with pytest.raises(RuntimeError, match="killed"):
        run(scheme(), secagg="masked", out=tmp_path / "run", observer=stop, checkpoint_seconds=1e9)
    monkeypatch.setattr("laconic.clients.simulated.environment_of", lambda *args: "another machine")
    again = run(scheme(), secagg="masked", out=tmp_path / "run", resume=True)
    assert [row["attempt"] for row in again.history] == [1, 1, 1, 1], "round 4 was announced: it may have been charged"
    assert again.statement["released"]["rounds_charged"] == 4 + 4


def plan(size: int = 40, **options: Any) -> RoundPlan:
    return plan_round(scheme(), FixedSize(cohort_size=size), streams=Streams(1), round=1, num_clients=10_000, **options)


@pytest.mark.parametrize("stage", STAGES)
def test_dropouts_follow_rate_stage_and_seed(stage: str) -> None:
    chosen = plan(5000)
    gone = vanishing_clients(chosen, Streams(3), rate=0.2, stage=stage)
    assert 850 < len(gone) < 1150
    assert set(gone) <= set(chosen.cohort.tolist())
    assert gone == vanishing_clients(chosen, Streams(3), rate=0.2, stage=stage)
    assert gone != vanishing_clients(chosen, Streams(4), rate=0.2, stage=stage)
    assert gone != vanishing_clients(dataclasses.replace(chosen, attempt=1), Streams(3), rate=0.2, stage=stage)
    assert len(set(gone.values())) == (len(Vanishes) if stage == "any" else 1)
    left = uploading(chosen, gone)
    never_came = [c for c, when in gone.items() if when == Vanishes.BEFORE_UPLOAD]
    assert sorted([*left.tolist(), *never_came]) == chosen.cohort.tolist()


def test_the_plan_of_a_sum_follows_from_the_rounds() -> None:
    chosen = plan(40, max_dropouts=3, max_colluders=2)
    terms = sum_terms(scheme(), chosen, run=b"r" * 16, beacon=b"b" * 32)
    planned = sum_plan(terms, scheme(), chosen, 100)
    assert (planned.min_cohort, planned.size) == (chosen.min_survivors, 100)
    assert planned.cohort == tuple(chosen.cohort.tolist())
    assert planned.bits == 13
    hopeless = dataclasses.replace(chosen, cohort=chosen.cohort[:5])
    with pytest.raises(PrivacyError, match="cannot carry the noise"):
        sum_plan(terms, scheme(), hopeless, 100)


def test_refusals() -> None:
    plain = laconic.schemes.fl_std(**TRAIN)
    with pytest.raises(ConfigError, match="cannot be masked: use --noise integer"):
        run(scheme(noise="continuous"), secagg="masked")
    with pytest.raises(ConfigError, match="use a scheme in -dp"):
        run(plain, secagg="masked", delta=None)
    with pytest.raises(ConfigError, match="no secure sum to drop out of"):
        run(plain, dropout_rate=0.1, delta=None)
    with pytest.raises(ConfigError, match="dropout_rate must be at least 0 and below 1"):
        run(scheme(), dropout_rate=1.0)
    with pytest.raises(ConfigError, match="unknown dropout_stage 'before-uplod': did you mean 'before-upload'"):
        run(scheme(), dropout_stage="before-uplod")
    with pytest.raises(ConfigError, match="unknown secagg 'maskd': did you mean 'masked'"):
        run(scheme(), secagg="maskd")
    with pytest.raises(ConfigError, match="means nothing with --noise continuous"):
        scheme(noise="continuous", bits=16)
    with pytest.raises(PrivacyError, match="use --bits"):
        run(scheme(bits=8))
    with pytest.raises(ConfigError, match="not one of signs"):
        dataclasses.replace(scheme(), noise=dataclasses.replace(scheme().noise, signs=True))


def test_a_lost_round_may_depend_on_the_cohort_only_where_amplification_is_not_claimed() -> None:
    """A committee that cannot open says something of who is in it; missing uploads say only that fewer came."""
    rare = {"sampling_rate": 0.02, "max_dropouts": 0, "rounds": 2, "clients": make_population([3] * 400)}
    before = run(scheme(), dropout_rate=0.05, **rare)
    later = run(scheme(), dropout_rate=0.05, dropout_stage="before-unmask", **rare)
    assert before.statement["released"]["amplified_by_sampling"]
    assert not later.statement["released"]["amplified_by_sampling"]
    assert later.last["epsilon"] > before.last["epsilon"]


def test_the_statement_names_the_grid_and_the_sum() -> None:
    simulated, masked = run(scheme()).statement, run(scheme(), secagg="masked", consistency="signed").statement
    assert simulated["secure_aggregation"].startswith("simulated: this process summed the clients' integers")
    assert "honest-but-curious server" in masked["secure_aggregation"]
    assert "members signed" in masked["secure_aggregation"]
    grid = simulated["mechanism"]["grid"]
    assert grid["log2_wrap_probability"] < -40
    assert grid["steps_per_share"] >= 4
    floats = run(scheme(noise="continuous")).statement
    assert floats["mechanism"]["grid"] is None
    assert "floats cannot be masked" in floats["secure_aggregation"]
    assert "--noise continuous" in " ".join(floats["assumptions"])


def test_bits_set_the_grid() -> None:
    few, many = run(scheme()), run(scheme(bits=24))
    assert many.statement["mechanism"]["grid"]["bits"] == 24
    assert many.statement["mechanism"]["grid"]["step"] < few.statement["mechanism"]["grid"]["step"] / 1000
    assert many.history[0]["bytes_up"] > few.history[0]["bytes_up"]


def test_both_noises_teach_alike() -> None:
    """σ small: what differs is the grid alone."""
    quiet = {"noise_multiplier": 0.02, "local_steps": 5}
    integer, floating = (run(scheme(noise=n, **quiet), rounds=30) for n in ("integer", "continuous"))
    assert integer.last["accuracy"] == pytest.approx(floating.last["accuracy"], abs=0.05)
    assert integer.last["accuracy"] > 0.8
    assert integer.history[0]["bytes_up"] < floating.history[0]["bytes_up"]
    assert np.isclose(integer.last["epsilon"], floating.last["epsilon"], rtol=0.02)
