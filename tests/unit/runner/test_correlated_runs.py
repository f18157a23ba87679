"""Runs with noise that is correlated over rounds: accounted, resumed and stated as what they are."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner
from safetensors.torch import load_file
from scheme_tools import model, scheme

import laconic
from conftest import make_population, make_records
from laconic.cli.main import cli
from laconic.errors import PrivacyError, RunFolderError
from laconic.observers.observer import Row
from laconic.privacy.accounting.accountant import Accountant
from laconic.privacy.mechanism.correlated import UNIT, CorrelatedGaussian
from laconic.privacy.released import released_row, released_statement
from laconic.privacy.statement import statement_lines
from laconic.report.model_card import model_card
from laconic.scheme import Scheme

SIZES = [6, 9, 3, 12, 7, 5, 4, 8, 6]
ROUNDS, SEPARATION = 8, 4
NOISE = CorrelatedGaussian(noise_multiplier=1.5, coefficients=(UNIT, 500, 300))


def correlated(noise: CorrelatedGaussian = NOISE, **changes: Any) -> Scheme:
    return replace(scheme("fl-std-dp", **changes), noise=noise)


def run(chosen: Scheme | None = None, **options: Any) -> laconic.RunResult:
    defaults: dict[str, Any] = {
        "model": model(),
        "clients": make_population(SIZES),
        "test": make_records(40),
        "sampler": laconic.Cyclic(separation=SEPARATION),
        "rounds": ROUNDS,
        "delta": 1e-5,
        "engine": "one-by-one",
        "workers": 1,
        "device": "cpu",
        "progress": False,
    }
    return laconic.run(chosen or correlated(), **(defaults | options))


class Cut(RuntimeError):
    """The process dies here."""


def after(number: int, error: type[BaseException] = Cut) -> Any:
    """An observer that ends the run after so many rounds."""

    def observer(row: Row) -> None:
        if row["round"] == number:
            raise error

    return observer


def weights(result: laconic.RunResult) -> torch.Tensor:
    return torch.cat([p.detach().reshape(-1) for p in result.model.parameters()])


def rows(result: laconic.RunResult) -> list[dict[str, Any]]:
    return [{key: value for key, value in row.items() if key != "seconds"} for row in result.history]


def test_epsilon_of_every_round_is_the_accountants_and_none_is_finite_against_the_server() -> None:
    result = run()
    accountant = Accountant(
        sampler=laconic.Cyclic(separation=SEPARATION), noise=NOISE, num_clients=len(SIZES), delta=1e-5, horizon=ROUNDS
    )
    for row in result.history:
        assert row["epsilon"] == pytest.approx(accountant.released_epsilon(row["round"]), rel=1e-9)
        assert row["participant_epsilon"] is None
        assert row["cohort"] in (2, 3)
    assert result.statement["released"]["epsilon"]["pld"] == result.history[-1]["epsilon"]


def test_the_same_noise_is_drawn_for_every_engine_and_another_for_every_scheme() -> None:
    assert rows(run())[0]["weights"] == rows(run())[0]["weights"]
    other = correlated(replace(NOISE, coefficients=(UNIT, 500)))
    assert rows(run())[0]["weights"] != rows(run(other))[0]["weights"]  # the first round has no earlier sums


@pytest.mark.parametrize("momentum", [0.0, 0.7])
@pytest.mark.parametrize("checkpoint_seconds", [0.0, 1000.0])
def test_a_run_that_died_goes_on_bit_by_bit(tmp_path: Path, momentum: float, checkpoint_seconds: float) -> None:
    chosen = correlated(momentum=momentum)
    whole = run(chosen)
    options = {"out": tmp_path / "run", "checkpoint_seconds": checkpoint_seconds}
    for number in (2, 6):
        with pytest.raises(Cut):
            run(chosen, observer=after(number), resume=number > 2, **options)
    result = run(chosen, resume=True, **options)
    assert torch.equal(weights(result), weights(whole))
    assert rows(result) == rows(whole)
    assert result.statement["released"] == whole.statement["released"]


def test_an_interrupted_run_keeps_the_sums_in_its_checkpoint(tmp_path: Path) -> None:
    whole, options = run(), {"out": tmp_path / "run", "checkpoint_seconds": 1000.0}
    with pytest.raises(KeyboardInterrupt):
        run(observer=after(5, KeyboardInterrupt), **options)
    kept = load_file(tmp_path / "run/checkpoint/state.safetensors")
    assert kept["rule.noise.sums"].shape[0] == kept["rule.noise.estimates"].shape[0] == NOISE.bands - 1
    result = run(resume=True, **options)
    assert torch.equal(weights(result), weights(whole)) and rows(result) == rows(whole)


@pytest.mark.parametrize("stop", [{}, {"epsilon": 4.0}, {"patience": 1, "holdout": make_records(20)}])
def test_a_run_that_ended_keeps_no_sums(tmp_path: Path, stop: dict[str, Any]) -> None:
    """Nothing needs them any more, and whoever is given the folder later would have them without noise."""
    options = {"out": tmp_path / "run"} | stop
    first = run(**options)
    kept = load_file(tmp_path / "run/checkpoint/state.safetensors")
    assert not [name for name in kept if "noise" in name]
    if "epsilon" not in stop:  # a spent budget is refused by itself
        again = run(resume=True, **options)
        assert torch.equal(weights(again), weights(first)) and again.statement == first.statement
    assert not [n for n in load_file(tmp_path / "run/checkpoint/state.safetensors") if "noise" in n]


def test_a_run_that_ended_cannot_have_more_rounds(tmp_path: Path) -> None:
    """The next sums would have to be combined with those that are gone."""
    options = {"out": tmp_path / "run"}
    run(**options)
    with pytest.raises(RunFolderError, match="cannot have more rounds"):
        run(resume=True, rounds=ROUNDS + 2, **options)
    charges = (tmp_path / "run/charges.jsonl").read_text(encoding="utf-8").splitlines()
    assert len(charges) == ROUNDS, "nothing is charged for it"
    alone = replace(NOISE, coefficients=(UNIT,))
    run(correlated(alone), out=tmp_path / "alone")
    longer = run(correlated(alone), out=tmp_path / "alone", resume=True, rounds=ROUNDS + 2)
    assert longer.last["round"] == ROUNDS + 2


def test_a_round_that_is_repeated_elsewhere_is_one_release_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In another environment floats may differ: the repeated rounds have new noise, and are charged again."""
    monkeypatch.setattr("laconic.runner.run._FIRST_ROUNDS", 3)  # so many are announced, and may have been released
    options = {"out": tmp_path / "run", "checkpoint_seconds": 1000.0}
    with pytest.raises(Cut):
        run(observer=after(3), **options)
    result = run(resume=True, **(options | {"engine": "cohort"}))
    assert [row["attempt"] for row in result.history] == [1, 1, 1, 0, 0, 0, 0, 0]
    accountant = Accountant(
        sampler=laconic.Cyclic(separation=SEPARATION), noise=NOISE, num_clients=len(SIZES), delta=1e-5, horizon=ROUNDS
    )
    again = accountant.with_repeats({"training": 3})
    assert again.after(ROUNDS + 3)[0].moved_squared == accountant.after(ROUNDS)[0].moved_squared + 3
    assert result.statement["released"]["epsilon"]["pld"] == pytest.approx(again.released_epsilon(11), rel=1e-9)
    assert result.statement["released"]["rounds_charged"] == ROUNDS + 3
    for row in result.history[3:]:
        assert row["epsilon"] == pytest.approx(again.released_epsilon(row["round"] + 3), rel=1e-9)


def test_a_repeat_with_other_data_or_other_bands_is_refused(tmp_path: Path) -> None:
    options = {"out": tmp_path / "run", "checkpoint_seconds": 1000.0}
    with pytest.raises(Cut):
        run(observer=after(3), **options)
    with pytest.raises(RunFolderError, match="another population"):
        run(resume=True, clients=make_population([*SIZES[:-1], 7]), **options)
    with pytest.raises(RunFolderError, match="another scheme"):
        run(correlated(replace(NOISE, coefficients=(UNIT, 501, 300))), resume=True, **options)


def test_the_budget_ends_a_run_before_it_is_exceeded() -> None:
    whole = run()
    limit = whole.history[5]["epsilon"]
    result = run(epsilon=limit)
    assert result.stop_reason == "budget" and result.last["epsilon"] <= limit
    assert result.last["round"] == max(r["round"] for r in whole.history if r["epsilon"] <= limit)


def test_open_noise_is_calibrated() -> None:
    result = run(correlated(replace(NOISE, noise_multiplier=None)), epsilon=3.0)
    assert 2.99 < result.last["epsilon"] <= 3.0 and result.stop_reason == "rounds"


def finite_numbers(value: Any, path: str = "") -> Iterator[tuple[str, float]]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield from finite_numbers(item, f"{path}/{key}")
    elif isinstance(value, list):
        for item in value:
            yield from finite_numbers(item, path)
    elif isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        yield path, value


def test_no_file_and_no_line_has_a_finite_epsilon_against_the_server(tmp_path: Path) -> None:
    out = tmp_path / "run"
    result = run(out=out)
    statement = result.statement
    for name in ("privacy.json", "summary.json"):
        numbers = finite_numbers(json.loads((out / name).read_text(encoding="utf-8")))
        assert not [path for path, _ in numbers if "participant" in path and "participations" not in path], name
    for line in (out / "rounds.jsonl").read_text(encoding="utf-8").splitlines():
        assert json.loads(line)["participant_epsilon"] is None
    lines = statement_lines(statement)
    server = [text for heading, text in lines if heading == "Server's ε"]
    assert server == ["none (∞)"]
    assert "NOT against the server" in statement["summary"]
    assert statement["participant"]["covered"] is False
    assert any("central" in text for heading, text in lines if heading == "Correlated noise")
    assert any("no ε holds against the server" in text for heading, text in lines if heading == "Not covered")
    assert any("NO ε against the server" in text for heading, text in lines if heading == "Caution")
    assert "(central)" in statement["mechanism"]["noise_added_by"]
    assert "none (∞)" in repr(result)
    # From what is on disk, where it is null.
    kept = json.loads((out / "privacy.json").read_text(encoding="utf-8"))
    assert [text for heading, text in statement_lines(kept) if heading == "Server's ε"] == ["none (∞)"]
    page = (out / "report.html").read_text(encoding="utf-8")
    assert "Nothing bounds what this adversary learns." in page
    assert result.last["participant_epsilon"] is None
    card = model_card(result.summary(), {}, released_only=False)
    assert "| server | none (∞) |" in card


def test_beside_other_runs_it_says_that_there_is_none_against_the_server(tmp_path: Path) -> None:
    """A dash is for what is not known, or for runs that promise nothing at all."""
    run(out=tmp_path / "central")
    run(scheme("fl-std"), out=tmp_path / "open", delta=None)
    shown = CliRunner().invoke(cli, ["compare", str(tmp_path / "central"), str(tmp_path / "open")]).output
    lines = {name: next(line for line in shown.splitlines() if name in line) for name in ("central", "open")}
    assert "none" in lines["central"] and "none" not in lines["open"]


def test_what_leaves_the_server_says_that_it_is_not_covered() -> None:
    result = run()
    told = released_statement(result.statement)
    assert "participant" not in told
    assert any("no ε holds against the server" in text for text in told["not_covered"])
    assert "participant_epsilon" not in released_row(result.history[-1], private=True)


def test_clients_that_take_turns_with_noise_of_their_own() -> None:
    result = run(scheme("fl-std-dp", noise_multiplier=1.5))
    last = result.last
    assert last["epsilon"] == last["participant_epsilon"]
    plain = laconic.Accountant(
        sampler=laconic.Cyclic(separation=SEPARATION),
        noise=laconic.DiscreteGaussian(noise_multiplier=1.5),
        num_clients=len(SIZES),
        delta=1e-5,
        sensitivity=0.7,
    )
    assert last["epsilon"] == pytest.approx(plain.participant_epsilon(2), rel=1e-6)
    masked = run(scheme("fl-std-dp", noise_multiplier=1.5), secagg="masked")
    apart = run(scheme("fl-std-dp", noise_multiplier=1.5), noise_draws="per-client")
    assert torch.equal(weights(masked), weights(apart))


def test_repeats_of_turns_with_noise_of_their_own_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("laconic.runner.run._FIRST_ROUNDS", 1)
    chosen, options = scheme("fl-std-dp", noise_multiplier=1.5), {"out": tmp_path / "run", "checkpoint_seconds": 1000.0}
    with pytest.raises(Cut):
        run(chosen, observer=after(1), **options)
    result = run(chosen, resume=True, **(options | {"engine": "cohort"}))
    assert result.statement["participant"]["participations"] == 3
    assert all(row["epsilon"] == row["participant_epsilon"] for row in result.history)
    assert result.last["epsilon"] == result.last["participant_epsilon"]


def test_sums_that_are_not_integers_are_refused() -> None:
    with pytest.raises(TypeError, match="integers"):
        NOISE.estimated(torch.zeros(3), {}, sensitivity=1.0, plan=None, rng=None)  # type: ignore[arg-type]
    with pytest.raises(PrivacyError, match="bounded"):
        NOISE.terms(torch.zeros(1, 3), code_size=3, sensitivity=math.inf, plan=None)  # type: ignore[arg-type]
