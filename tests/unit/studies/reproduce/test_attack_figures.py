"""Tables of attacks beside their measurements: what is met, what does not converge, and how that is said."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from laconic.settings.config import RunConfig
from laconic_studies.reproduce.comparison import (
    Measured,
    compared,
    last_text,
    markdown,
    met_text,
    reproduced_text,
    table_csv,
)
from laconic_studies.reproduce.reproduction import Reproduction, quick_version
from laconic_studies.reproduce.table_files import class_curves, plot_class_curves
from laconic_studies.reproduce.tables import load_table

RUN = Measured(
    seed=0,
    trained_on="mnist",
    rounds=100,
    accuracy=0.98,
    round=90,
    last_accuracy=0.97,
    bytes_up=1.0,
    bytes_down=1.0,
    bytes_once=0.0,
    formula_bytes_up=1.0,
    formula_bytes_down=1.0,
    bits_up=1.0,
    bits_down=32.0,
    formula_bits_up=1.0,
    formula_bits_down=32.0,
)
FAILED = replace(RUN, accuracy=None, last_accuracy=None, round=0, converged=False)
RANDOM, IN, OUT = (load_table(f"thesis-table{number}") for number in ("6.1", "6.9", "6.11"))


def test_a_run_that_does_not_converge_meets_a_dash() -> None:
    entries = compared(RANDOM, {1: [FAILED], 2: [RUN], 13: [RUN], 14: [FAILED]})
    assert [met_text(entries[place]) for place in (0, 1, 12, 13, 2)] == [
        "yes", "not converges", "yes", "not accuracy", "–",
    ]  # fmt: skip
    text = markdown(RANDOM, {1: [FAILED], 13: [RUN]})
    assert "| does not converge | does not converge | yes |" in text and "| 0.98 | 0.9800 | yes |" in text
    assert "2 of 2 figures are within 0.03" in text and "14 rows were not run" in text


def test_most_seeds_decide_and_a_lucky_round_is_told() -> None:
    lucky = replace(FAILED, accuracy=0.21, round=3)
    entry = compared(RANDOM, {1: [lucky, FAILED, RUN]})[0]
    assert entry["diverged"] and entry["agrees"] == {"converges": True}
    assert "does not converge (best round 0.5950)" in markdown(RANDOM, {1: [lucky, FAILED, RUN]})
    assert not compared(RANDOM, {1: [FAILED, RUN, RUN]})[0]["diverged"]


@pytest.mark.parametrize(
    ("row", "figures", "met"),
    [
        (1, {"accuracy": 0.90, "class_accuracy": 0.02}, "yes"),
        (1, {"accuracy": 0.85, "class_accuracy": 0.02}, "not accuracy"),
        (1, {"accuracy": 0.90, "class_accuracy": 0.06}, "not class accuracy"),
        (11, {"accuracy": 0.98, "class_accuracy": 0.90}, "not class accuracy"),
    ],
)
def test_both_figures_must_be_near(row: int, figures: dict[str, float], met: str) -> None:
    assert met_text(compared(IN, {row: [replace(RUN, **figures)]})[row - 1]) == met  # type: ignore[arg-type]


def test_an_attack_accuracy_in_between_has_more_room() -> None:
    table = load_table("thesis-section6.3")  # 0.98 and 0.76
    near = replace(RUN, attack_accuracy=0.85)
    assert met_text(compared(table, {1: [near]})[0]) == "yes"
    assert met_text(compared(OUT, {1: [replace(RUN, attack_accuracy=0.90)]})[0]) == "not attack accuracy"  # 0.98


def test_both_epsilons_of_a_private_row_are_shown() -> None:
    run = replace(RUN, class_accuracy=0.0, epsilon_released=0.9, epsilon_attacked=1.07)
    text = markdown(IN, {1: [run]})
    assert "| outsider's ε, without the attack | without the attackers' noise |" in text and "| 0.900 | 1.070 |" in text
    assert "without the attackers' noise" not in markdown(RANDOM, {})


def test_the_last_rounds_and_every_figure_are_in_the_files() -> None:
    run = replace(RUN, class_accuracy=0.97, class_accuracy_last_min=0.2, class_accuracy_last_mean=0.6)
    entry = compared(IN, {10: [run]})[9]
    assert last_text(entry, "class_accuracy") == "0.20, 0.60" and last_text(entry, "attack_accuracy") == "–"
    assert "0.20, 0.60" in markdown(IN, {10: [run]})
    head, *lines = table_csv(IN, {10: [run]}).splitlines()
    assert {"published_class_accuracy", "class_accuracy_last_min", "converged"} <= set(head.split(","))
    assert len(lines) == 12
    assert "1 of 1" not in reproduced_text(compared(IN, {})) and "12 rows were not run" in reproduced_text(
        compared(IN, {})
    )


@pytest.mark.parametrize("number", ["6.5", "6.8", "6.11"])
def test_the_quick_version_of_an_attack_has_attackers(number: str) -> None:
    """Of a small cohort 2 % are nobody; and classes have numbers that the digits have, too."""
    row = load_table(f"thesis-table{number}").rows[0]
    config = quick_version(RunConfig.from_dict(row.settings), None)
    assert config.attack.fraction == 0.1 and config.scheme.options["local_steps"] <= 30
    assert config.data.num_clients == (10 if number != "6.11" else 120)


def test_curves_are_read_from_run_folders(tmp_path: Path) -> None:
    reproduction = Reproduction(table=load_table("thesis-figure6.1"), out=tmp_path)
    assert class_curves(reproduction) == {}
    for row in reproduction.table.rows:
        folder = reproduction.run_folder(row, 0)
        folder.mkdir(parents=True)
        rows: list[dict[str, Any]] = [{"round": n, "accuracy": 0.9, "class_accuracy": n % 2} for n in (1, 2, 3)]
        (folder / "rounds.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
        (folder / "result.json").write_text("{}")
    curves = class_curves(reproduction)
    assert list(curves) == ["fl-sign, in-backdoor 10 %", "fl-std, in-backdoor 10 %"]
    pytest.importorskip("matplotlib")
    plot_class_curves(curves, tmp_path / "figure.png")
    assert (tmp_path / "figure.png").stat().st_size > 1000


def test_figures_and_tables_share_their_runs() -> None:
    """And weights are kept for pictures of weights only."""
    out = Path("out")
    table, figure = (Reproduction(table=load_table(n), out=out) for n in ("thesis-table6.5", "thesis-figure6.1"))
    assert figure.runs_of(figure.table.rows[0]) == table.runs_of(table.table.rows[0])
    assert figure.runs_of(figure.table.rows[1]) == table.runs_of(table.table.rows[3])
