"""`laconic epsilon` and `laconic calibrate` answer with the figures of the run: its integers, its slack, its δ."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from laconic.cli.main import cli
from laconic.errors import LaconicError

CLIP = ("--clip-norm", "0.5")
RUNS = {
    "dense": (("fl-std-dp", *CLIP), ("--sampling-rate", "0.2"), ()),
    "a large cohort": (("fl-std-dp", *CLIP), ("--sampling-rate", "0.9"), ()),
    "compressed": (("fl-cs-dp", *CLIP, "--ratio", "0.1"), ("--sampling-rate", "0.2"), ()),
    "signs": (("fl-sign-dp",), ("--sampling-rate", "0.2"), ("--signs",)),
    "fixed size": (("fl-std-dp", *CLIP), ("--cohort-size", "20"), ()),
    "turns": (("fl-std-dp", *CLIP), ("--separation", "4"), ()),
    "bands": (("fl-std-dp", *CLIP), ("--separation", "4", "--noise-bands", "4"), ()),
    "slack": (
        ("fl-std-dp", *CLIP),
        ("--sampling-rate", "0.9", "--max-dropouts", "3", "--max-colluders", "2"),
        (),
    ),
    "slack of small cohorts": (
        ("fl-basic-dp", *CLIP, "--ratio", "0.1"),
        ("--sampling-rate", "0.2", "--max-dropouts", "5"),
        (),
    ),
    "a cap": (
        ("fl-std-dp", *CLIP),
        ("--sampling-rate", "0.9", "--max-dropouts", "3", "--max-participations", "2"),
        (),
    ),
    "groups": (("fl-std-dp", *CLIP, "--aggregator", "median"), ("--sampling-rate", "0.9", "--groups", "5"), ()),
    "shares": (("fl-std-dp", *CLIP), ("--sampling-rate", "0.2", "--noise-draws", "per-client"), ()),
    "continuous": (("fl-std-dp", *CLIP), ("--sampling-rate", "0.2", "--noise", "continuous"), ()),
    "records": (
        ("fl-std-record-dp", *CLIP, "--batch-size", "2", "--balance", "none"),
        ("--sampling-rate", "0.2", "--record-rate", "0.5"),
        (),
    ),
    "records on integers": (
        ("fl-std-record-dp", *CLIP, "--batch-size", "2", "--balance", "none"),
        ("--sampling-rate", "0.2", "--record-rate", "0.5", "--noise", "integer"),
        (),
    ),
}
"""(The scheme, what run and command are both told, what the command alone is told)."""
BUSIEST = ("slack of small cohorts",)
"""Where sampling does not amplify."""
ALIKE = ("--noise-multiplier", "0.9", "--rounds", "3", "--delta", "1e-4", "--num-clients", "100")


def answer(*words: str) -> dict[str, Any]:
    ended = CliRunner().invoke(cli, [*words, "--json"], catch_exceptions=False)
    assert ended.exit_code == 0, ended.output
    found: dict[str, Any] = json.loads(ended.stdout)
    return found


def trained(out: Path, scheme: tuple[str, ...], both: tuple[str, ...]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The privacy statement of a run, and its plan."""
    turns = ("--sampler", "cyclic") if "--separation" in both else ()
    fixed = ("--sampler", "fixed-size") if "--cohort-size" in both else ()
    plan = ("run", *scheme, *both, *turns, *fixed, *ALIKE, "--local-steps", "1", "--device", "cpu", "--quiet")
    answer(*plan, "--out", str(out))
    planned = answer("plan", *plan[1:-3])
    return json.loads((out / "privacy.json").read_text(encoding="utf-8")), planned


@pytest.mark.parametrize("name", RUNS)
def test_the_figures_are_those_of_the_run(name: str, tmp_path: Path) -> None:
    scheme, both, alone = RUNS[name]
    statement, plan = trained(tmp_path / "run", scheme, both)
    took = str(statement["participant"]["participations"]) if statement["participant"] else "1"
    about = ("--code-size", str(plan["code_size"]), "--participations", took)
    asked = answer("epsilon", *ALIKE, *both, *alone, *about)
    assert asked["released"] == plan["privacy"]["released"]["3"]
    if name in BUSIEST:  # the run counts how often the busiest client came, which no plan knows
        took_all = answer("epsilon", *ALIKE, *both, *about, "--rounds", took)
        assert took_all["released"] == pytest.approx(statement["released"]["epsilon"], rel=1e-12)
    else:
        assert asked["released"] == statement["released"]["epsilon"]
    assert asked["released"][statement["released"]["accountant"]] > 0.1
    if statement["participant"]:
        assert asked["participant"][took] == statement["participant"]["epsilon"]
    # Without the number of values the figure is not below the run's, and the same to six digits.
    shorter = answer("epsilon", *ALIKE, *both) if not alone else asked
    for method, figure in asked["released"].items():
        if figure is not None:
            assert figure <= shorter["released"][method] <= figure * (1 + 1e-6)


@pytest.mark.parametrize("name", ["dense", "compressed", "signs", "slack", "turns", "bands", "continuous", "records"])
def test_noise_is_calibrated_as_for_the_run(name: str) -> None:
    scheme, both, alone = RUNS[name]
    promise = ("--epsilon", "4", *ALIKE[2:])
    turns = ("--sampler", "cyclic") if "--separation" in both else ()
    plan = answer("plan", *scheme, *both, *turns, *promise, "--local-steps", "1", "--device", "cpu")
    asked = answer("calibrate", *promise, *both, *alone, "--code-size", str(plan["code_size"]))
    assert asked["noise_multiplier"][plan["privacy"]["accountant"]] == plan["privacy"]["noise_multiplier"]


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("--sampling-rate", "0.1", "--max-dropouts", "1"), "--max-dropouts needs --num-clients"),
        (("--separation", "5", "--max-colluders", "1"), "--max-colluders needs --num-clients"),
        (("--sampling-rate", "0.1", "--groups", "2"), "--groups needs --num-clients"),
        (("--sampling-rate", "0.1", "--noise-draws", "per-client"), "--noise-draws per-client needs --num-clients"),
        (("--sampling-rate", "0.1", "--signs"), "--signs needs --code-size"),
        (("--sampling-rate", "0.1", "--num-clients", "50", "--max-dropouts", "5"), "leaves none"),
        (("--separation", "5", "--noise-bands", "2", "--noise", "continuous"), "--noise-bands"),
        (("--cohort-size", "5", "--num-clients", "50", "--max-participations", "2"), "max_participations cannot"),
        (("--sampling-rate", "0.1", "--code-size", "10000000", "--delta", "1e-15"), "raise --delta"),
    ],
)
def test_what_no_run_could_be_is_refused(words: tuple[str, ...], reason: str) -> None:
    ended = CliRunner().invoke(cli, ["epsilon", "--noise-multiplier", "1", "--rounds", "5", *words])
    assert ended.exit_code != 0 and isinstance(ended.exception, SystemExit | LaconicError), ended.output
    assert reason in ended.output + str(ended.exception)


def test_without_the_number_of_clients_no_grid_is_finer_than_it_may_be() -> None:
    """Larger cohorts have finer grids and less to make up for, so the figure without them is not below any."""
    words = ("--sampling-rate", "0.1", "--noise-multiplier", "1", "--rounds", "20", "--delta", "1e-7")
    unknown = answer("epsilon", *words)["released"]["pld"]
    known = [answer("epsilon", *words, "--num-clients", str(count))["released"]["pld"] for count in (500, 10**4, 10**6)]
    assert sorted(known, reverse=True) == known and known[-1] < known[0] <= unknown
    assert answer("epsilon", *words, "--noise", "continuous")["released"]["pld"] < known[-1]
