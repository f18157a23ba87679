"""What the commands print has one ε per adversary, the tight one; the others and the papers' formulas on request."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from laconic.cli.main import cli
from laconic.errors import LaconicError
from laconic.privacy.statement import statement_lines
from laconic.report.summary_lines import ledger_lines

OTHERS = ("moments", "rdp", "formula", "Theorem 3.1")


def printed(*words: str) -> str:
    ended = CliRunner().invoke(cli, list(words), catch_exceptions=False)
    assert ended.exit_code == 0, ended.output
    return ended.output


@pytest.mark.parametrize(
    ("words", "tight"),
    [
        (("epsilon", "--noise-multiplier", "1.54"), "0.683"),
        (("epsilon", "--noise-multiplier", "1.54", "--record-rate", "0.5"), "after 200 rounds:  "),
        (("calibrate", "--epsilon", "4"), "σ = "),
    ],
    ids=["epsilon", "records", "calibrate"],
)
def test_the_accountants_alone_print_one_figure(words: tuple[str, ...], tight: str) -> None:
    rest = ("--sampling-rate", "1/60", "--rounds", "200")
    short, long = printed(*words, *rest), printed(*words, *rest, "--papers")
    assert tight in short and not any(other in short for other in OTHERS)
    assert "moments: " in long and "rdp: " in long


def test_a_plan_has_one_figure(tmp_path: Path) -> None:
    words = ("plan", "fl-std-dp", "--clip-norm", "0.5", "--noise-multiplier", "2", "--num-clients", "100")
    words += ("--sampling-rate", "1", "--rounds", "3")
    short, long = printed(*words), printed(*words, "--papers")
    assert " rounds  ε" in short and not any(other in short for other in OTHERS)
    assert "moments" in long and "papers' formula" in long


def test_a_run_prints_one_figure_and_its_statement_keeps_all(tmp_path: Path) -> None:
    out = tmp_path / "run"
    words = ("run", "fl-std-dp", "--clip-norm", "0.5", "--noise-multiplier", "2", "--num-clients", "100", "--quiet")
    words += ("--sampling-rate", "1", "--rounds", "1", "--device", "cpu", "--out", str(out))
    short = printed(*words)
    assert "(pld)" in short and not any(other in short for other in OTHERS)
    kept = (out / "privacy.json").read_text(encoding="utf-8")
    assert '"moments"' in kept and '"rdp"' in kept and '"pld"' in kept
    long = printed("run", "--out", str(out), "--resume", "--quiet", "--papers")
    assert "moments" in long and "papers' formula" in long


def test_what_is_not_proven_is_only_shown_on_request() -> None:
    part = {"epsilon": {"moments": 3.0, "rdp": 2.0, "pld": 1.0}, "accountant": "pld", "adversary": "sees"}
    statement = {
        "private": True,
        "released": part | {"published": 0.5},
        "participant": part | {"participations": 1},
        "delta": 1e-5,
        "unit": "one record",
        "adjacency": {"relation": "zero-out", "meaning": "…"},
        "secure_aggregation": "none",
        "mechanism": {},
        "assumptions": [],
        "not_covered": [],
    }
    short, long = (dict(statement_lines(statement, papers=papers)) for papers in (False, True))
    assert short["Outsider's ε"] == "1.000 (pld)" and "  as published" not in short
    assert long["Outsider's ε"] == "moments 3.000, rdp 2.000, pld 1.000" and "0.500" in long["  as published"]


def test_bytes_are_counted_and_the_formula_is_on_request() -> None:
    ledger = {
        f"{kind}_{way}{rest}": 1000.0
        for way in ("up", "down")
        for kind, rest in (
            ("bytes", ""),
            ("bytes", "_per_client_and_round"),
            ("bytes", "_per_client_in_all"),
            ("formula_bytes", "_per_client_in_all"),
        )
    } | {"bytes_once": 0}
    assert "formula" not in str(ledger_lines(ledger, papers=False))
    assert "formula" in str(ledger_lines(ledger))


def test_where_clients_take_turns_the_server_s_figure_is_that_of_the_busiest() -> None:
    """25 rounds, every 10th of them: half of the clients take part three times, and 2.5 rounded is 2."""
    turns = ("--separation", "10", "--rounds", "25", "--noise-multiplier", "1")
    shown = printed("epsilon", *turns)
    outsider, busiest = re.findall(r"(?:25 rounds|3 participations \(the busiest client\)):  (\d+\.\d+)", shown)
    assert outsider == busiest and "average" not in shown
    found = json.loads(printed("epsilon", *turns, "--json"))
    assert found["participant"]["3"] == found["released"]
    words = ("plan", "fl-std-dp", "--clip-norm", "0.5", "--noise-multiplier", "1", "--num-clients", "100", "--json")
    plan = json.loads(printed(*words, "--sampler", "cyclic", "--separation", "10", "--rounds", "25"))["privacy"]
    assert plan["participant"]["3"] == plan["released"]["25"]


@pytest.mark.parametrize("who", [("--separation", "5"), ("--sampling-rate", "0.1"), ("--sampling-rate", "1")])
@pytest.mark.parametrize("sigma", ["1e-20", "1e-100", "1e-200"])
def test_next_to_no_noise_has_a_huge_epsilon_or_none(who: tuple[str, ...], sigma: str) -> None:
    words = ("epsilon", *who, "--rounds", "3", "--noise-multiplier", sigma, "--json")
    found = json.loads(printed(*words, "--noise", "continuous"))
    assert all(value is None or value > 1e20 for value in found["released"].values())
    with pytest.raises(LaconicError, match="raise --noise-multiplier"):  # on integers no run has so little
        printed(*words)


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("--separation", "10", "--noise-bands", "4", "--rounds", "20000000000"), "at most 1,000,000 rounds"),
        (("--separation", "10", "--rounds", "20", "--momentum", "0.5"), "--momentum means nothing without"),
        (("--sampling-rate", "0.1", "--rounds", "20", "--momentum", "7"), "--momentum means nothing without"),
    ],
)
def test_bands_that_nobody_could_choose(words: tuple[str, ...], reason: str) -> None:
    ended = CliRunner().invoke(cli, ["epsilon", "--noise-multiplier", "1", *words])
    assert ended.exit_code != 0 and isinstance(ended.exception, SystemExit | LaconicError), ended.output
    assert reason in ended.output + str(ended.exception)
