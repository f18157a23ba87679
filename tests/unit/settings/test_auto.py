"""`auto` chooses from public facts, says why, keeps what is given, and its runs are as good as they are private."""

from __future__ import annotations

import dataclasses
import json
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from e2e_tools import call

import laconic
from laconic.errors import ConfigError
from laconic.experiment.outlook import outlook_of
from laconic.settings.auto import Facts, gaussian_part, private_choice, usual_delta
from laconic.settings.build import settle
from laconic.settings.config import RunConfig


def facts(**changes: Any) -> Facts:
    known = Facts(unit="record", units=10_000, owners=5, columns=70, quantities=30, ones=10, classes=2)
    return dataclasses.replace(known, **changes)


def test_how_far_it_goes_is_in_proportion_to_what_the_noise_allows() -> None:
    """η·T/(1 − ρ) ∝ μ·n: with ten times as many units, or μ ten times as large, ten times as far."""

    def reach(choice: Any) -> float:
        values = choice.values
        rounds = values["run.rounds"] - (values["scaling.kind"] == "private")
        return float(values["scheme.server_lr"] * rounds / (1 - values["scheme.momentum"]))

    one = private_choice(facts(), epsilon=1.0, delta=1e-5)
    many = private_choice(facts(units=100_000), epsilon=1.0, delta=1e-5)
    assert reach(many) == pytest.approx(10 * reach(one), rel=1e-3)
    strong = private_choice(facts(), epsilon=4.0, delta=1e-5)
    times = gaussian_part(4.0, 1e-5) / gaussian_part(1.0, 1e-5)
    assert reach(strong) == pytest.approx(times * reach(one), rel=1e-3)


def test_steps_are_stable_where_the_shares_of_the_classes_are_known() -> None:
    """η·p(1 − p)·λ < 2·(1 + ρ) for the largest λ that records of norm 1 can have, whatever the facts."""
    for units in (500, 20_000, 1_000_000):
        for epsilon in (0.25, 1.0, 8.0):
            for prevalence in (0.01, 0.5):
                known = facts(units=units, prevalence=prevalence)
                values = private_choice(known, epsilon=epsilon, delta=1e-7).values
                momentum, step = values["scheme.momentum"], values["scheme.server_lr"]
                assert step * known.curvature * 0.5 < 2 * (1 + momentum)


def test_scaling_costs_nothing_where_it_would_tell_nothing() -> None:
    assert private_choice(facts(), epsilon=1.0, delta=1e-5).values["scaling.kind"] == "private"
    few = private_choice(facts(units=200), epsilon=0.5, delta=1e-5)
    assert few.values["scaling.kind"] == "public" and "public ranges alone" in " ".join(few.lines)


def test_limits_are_kept() -> None:
    assert private_choice(facts(), epsilon=1.0, delta=1e-5, most_rounds=12).values["run.rounds"] == 13
    assert usual_delta(800) == 1e-5 and usual_delta(3_000_000) == 1e-8


@pytest.fixture
def stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """600 patients with a heavy tail, gaps, texts, and an outcome of one in five."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(3)
    severity, age = rng.normal(size=600), rng.normal(65, 12, 600)
    lab = np.exp(severity + 0.3 * rng.normal(size=600))
    died = rng.random(600) < 1 / (1 + np.exp(-(2 * severity + (age - 65) / 20 - 1.8)))
    lines = ["lab,age,sex,site,died"]
    for row in range(600):
        shown = "" if rng.random() < 0.15 else f"{lab[row]:.4g}"
        lines.append(f"{shown},{age[row]:.0f},{'FM'[row % 2]},{'abc'[row % 3]},{'yes' if died[row] else 'no'}")
    path = tmp_path / "stays.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


def test_a_table_becomes_a_private_model_with_one_command(stays: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ended = call(capsys, "run", "auto", "--dataset", "stays.csv", "--target", "died", "--epsilon", "4", "--out", "run")
    assert ended.code == 0, ended.err
    assert "drafted from the table as stays.schema.toml" in ended.out and "auto  promise: ε = 4" in ended.out
    config = tomllib.loads(Path("run/config.toml").read_text())
    assert config["scheme"]["name"] == "fl-std-dp" and config["scheme"]["unit"] == "record"
    assert config["scaling"]["kind"] in ("private", "public") and "max_rounds" not in config.get("auto", {})
    result = json.loads(Path("run/summary.json").read_text())
    assert result["last"]["auroc"] > 0.75 and result["last"]["epsilon"] <= 4.0
    counted = "the number of records was counted on the clients' records, once, and rounded to two digits"
    assert any(counted in line for line in result["statement"]["not_covered"])
    again = call(capsys, "run", "run/config.toml", "--out", "again")
    assert again.code == 0, again.err
    assert json.loads(Path("again/summary.json").read_text())["statement"] == result["statement"]
    assert Path("again/rounds.jsonl").read_text().count("\n") == Path("run/rounds.jsonl").read_text().count("\n")
    resumed = call(
        capsys,
        "run",
        "auto",
        "--dataset",
        "stays.csv",
        "--target",
        "died",
        "--epsilon",
        "4",
        "--out",
        "run",
        "--resume",
    )
    assert resumed.code == 0, resumed.err
    assert call(capsys, "predict", "run", "stays.csv", "--out", "p.csv").code == 0


def test_what_is_given_is_kept_and_said(stays: Path) -> None:
    config = RunConfig().with_values(
        {
            "scheme.name": "auto",
            "data.dataset": "stays.csv",
            "data.target": "died",
            "privacy.epsilon": 2.0,
            "scheme.momentum": 0.25,
            "run.rounds": 12,
            "server.average_last": 2,
        }
    )
    settled = settle(config)
    assert settled.config.auto.counted == settled.config.scheme.options["num_units"]
    told = settle(config.with_values({"scheme.num_units": 1000.0}))
    assert told.config.auto.counted is None
    assert not any("was counted" in note for note in told.experiment.notes)
    assert settled.config.scheme.options["momentum"] == 0.25 and settled.config.run.rounds == 12
    assert "momentum" in settled.chosen[-1] and "rounds" in settled.chosen[-1]


def test_in_python_it_is_one_call(stays: Path) -> None:
    result = laconic.run("auto", dataset=str(stays), target="died", epsilon=4, client_column="site", out="run")
    assert result.last["auroc"] > 0.75 and result.last["participant_epsilon"] <= 4.0
    assert laconic.run(
        "auto", dataset=str(stays), target="died", epsilon=4, client_column="site", out="run", resume=True
    ).last["auroc"] == pytest.approx(result.last["auroc"])
    with pytest.raises(ConfigError, match="leave out model"):
        laconic.run("auto", dataset=str(stays), model=object(), epsilon=1)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="or 'auto', not 'fl-std'"):
        laconic.run("fl-std", dataset=str(stays), epsilon=1)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ((), "auto needs --epsilon"),
        (("--epsilon", "0"), "must be a positive number"),
        (("--epsilon", "1", "--max-rounds", "3"), "auto needs 9"),
        (("--epsilon", "1", "--target", "dead"), "dead"),
        (("--epsilon", "1", "--unit", "hospital"), "unit"),
        (("--epsilon", "1", "--unit", "patient"), "patient"),
        (("--epsilon", "1", "--delta", "2"), "delta"),
        (("--epsilon", "1", "--dataset", "stay.csv"), "did you mean stays.csv"),
        (("--epsilon", "1", "--scheme", "fl-top"), "No such option"),
        (("--epsilon", "one"), "not a number"),
    ],
)
def test_what_cannot_be_is_refused_with_the_way_out(
    stays: Path, options: tuple[str, ...], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ("--dataset", "stays.csv", "--target", "died", *options)
    ended = call(capsys, "run", "auto", *given, "--out", "run")
    assert ended.code != 0 and words in ended.err and "Traceback" not in ended.err
    assert not Path("run").exists()


def test_without_privacy_it_says_so_first_and_reaches_what_is_possible(
    stays: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ended = call(
        capsys, "run", "auto", "--dataset", "stays.csv", "--target", "died", "--epsilon", "inf", "--out", "run"
    )
    assert ended.code == 0, ended.err
    said = [line for line in ended.out.splitlines() if line.startswith("auto")]
    assert "WITHOUT privacy" in said[1]
    assert json.loads(Path("run/summary.json").read_text())["last"]["auroc"] > 0.78


def test_a_hopeless_run_spends_nothing_unless_it_is_forced(stays: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """300 times as much noise as signal: refused before a round is charged. The twin with a large ε is green."""
    given = ("run", "fl-std-dp", "--dataset", "stays.csv", "--schema", "stays.schema.toml", "--num-clients", "20")
    assert call(capsys, "schema", "init", "stays.csv", "--target", "died").code == 0
    options = ("--clip-norm", "0.5", "--model", "mlp", "--rounds", "3", "--sampling-rate", "1", "--delta", "1e-3")
    refused = call(capsys, *given, *options, "--epsilon", "0.3", "--out", "run")
    assert refused.code == 2 and "hopeless: the noise" in refused.err and "--force" in refused.err
    assert not Path("run/charges.jsonl").exists()
    assert "red" in call(capsys, "plan", *given[1:], *options, "--epsilon", "0.3").out
    assert call(capsys, *given, *options, "--epsilon", "0.3", "--out", "run", "--force").code == 0
    config = RunConfig().with_values(
        {"scheme.name": "auto", "data.dataset": "stays.csv", "data.schema": "stays.schema.toml", "privacy.epsilon": 8.0}
    )
    found = outlook_of(settle(config).experiment)
    assert found is not None and found.light != "red"


def test_advice_for_a_table_is_the_command_that_chooses(stays: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It claims no error that the run does not have, and the command runs as it stands."""
    ended = call(
        capsys, "advise", "--num-clients", "40", "--epsilon", "4", "--dataset", "stays.csv", "--num-units", "600"
    )
    assert ended.code == 0 and "error" not in ended.out
    command = ended.out.splitlines()[-1].split()
    assert command == ["laconic", "run", "auto", "--dataset", "stays.csv", "--epsilon", "4", "--num-units", "600"]
    assert call(capsys, *command[1:], "--target", "died", "--out", "run").code == 0


def test_a_schema_that_was_there_and_says_otherwise_is_refused(stays: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Else another column than the one asked for would be learnt, without a word."""
    assert call(capsys, "schema", "init", "stays.csv", "--target", "died").code == 0
    given = ("run", "auto", "--dataset", "stays.csv", "--epsilon", "4", "--out", "run")
    for options, words in ((("--target", "sex"), "its label is died"), (("--client-column", "lab"), "its client is")):
        ended = call(capsys, *given, *options)
        assert ended.code == 2 and words in ended.err and not Path("run").exists()


def test_private_evaluations_go_with_averaged_models() -> None:
    """The last round trains, whatever the number of rounds is; and the lines do not say that no ε is spent on them."""
    for known in (facts(), facts(units=200)):
        for every in (2, 5, 8, 41):
            choice = private_choice(known, epsilon=0.5, delta=1e-5, every=every)
            assert choice.values["run.rounds"] % every
            assert "none of ε" not in " ".join(choice.lines)


def test_the_outlook_does_not_depend_on_how_many_records_clients_hold(stays: Path) -> None:
    """Under a promise for whole clients that number is a client's own; a run must not be refused by it."""
    found = []
    for rows in (600, 300):
        Path("some.csv").write_text("\n".join(stays.read_text().splitlines()[: rows + 1]) + "\n")
        values = {"data.dataset": "some.csv", "data.target": "died", "scheme.name": "auto", "privacy.epsilon": 4.0}
        settled = settle(RunConfig().with_values(values | {"scheme.unit": "client", "data.num_clients": 20}))
        found.append(settled.config.privacy.outlook)
        Path("some.schema.toml").unlink()
    assert found[0] is not None and found[0] == found[1]
