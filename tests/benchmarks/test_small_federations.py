"""The page about small federations says what was measured; test patients are the same for every seed."""

from __future__ import annotations

from typing import Any

from benchmarks.small_federations import _FIXED, CHOSEN_AT, EPSILONS, WAYS, SameTest
from benchmarks.small_federations_page import command, page


def made_rows(private: float, alone: float) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for seed in range(3):
        for way in WAYS:
            for epsilon in EPSILONS[way.level]:
                key = {"step": "tested", "hospitals": 5, "way": way.name, "epsilon": epsilon, "seed": seed}
                found = {"auroc": private + seed / 1000, "epsilon_outsider": epsilon, "epsilon_server": epsilon}
                rows.append(key | found | {"settings": way.settings[0], "cpu_seconds": 60.0})
        rows.append({"step": "no privacy", "hospitals": 5, "seed": seed, "auroc": 0.88})
        rows.append({"step": "alone", "hospitals": 5, "seed": seed, "auroc": alone})
    return rows


def test_the_page_has_every_figure_and_says_whether_sharing_is_worth_it() -> None:
    text = page(made_rows(0.75, 0.8), [])
    assert text.count("0.751 (0.750–0.752)") == sum(len(EPSILONS[way.level]) for way in WAYS)
    assert "no better than alone" in text and "better than alone from" not in text
    assert "better than alone from ε = 0.25" in page(made_rows(0.85, 0.8), [])
    assert max(len(line) for line in text.splitlines() if not line.startswith(("|", "!"))) <= 120


def test_every_figure_is_in_the_column_of_its_way() -> None:
    titles = ["hospitals", "ε", "patient", "… with public records", "hospital", "… with public records"]
    titles += ["record, as published", "… with public records"]
    levels = {"patient": 0.5, "hospital": 0.6, "record": 0.7}
    rows = made_rows(0.8, 0.7)
    for row in rows:
        if row["step"] == "tested":
            row["auroc"] = levels[row["way"].split(",")[0]] + ("public" in row["way"]) / 100
    lines = page(rows, []).splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith("| hospitals | ε |"))
    assert [cell.strip() for cell in lines[start].strip("|").split("|")] == titles
    cells = next(line for line in lines if line.startswith("| 5 | 1 |")).strip("|").split("|")[2:]
    assert [cell.split()[0] for cell in cells] == ["0.500", "0.510", "0.600", "0.610", "0.700", "0.710"]


def test_test_patients_do_not_depend_on_the_seed_and_everything_else_does() -> None:
    first, second = SameTest(1), SameTest(2)
    for path in _FIXED:
        assert first.numpy(path).random() == second.numpy(path).random()
    for path in ("partition", "batches"):
        assert first.numpy(path).random() != second.numpy(path).random()
    assert all(CHOSEN_AT in epsilons for epsilons in EPSILONS.values())


def test_a_row_has_the_command_that_runs_its_settings() -> None:
    row = made_rows(0.8, 0.7)[len(EPSILONS["patient"])]
    said = command(row, "diabetes130").split()
    assert row["way"] == "patient, 750 public records" and said[:3] == ["laconic", "run", "fl-std-dp"]
    for flag, value in (
        ("--unit", "patient"),
        ("--public-records", "750"),
        ("--epsilon", "0.25"),
        ("--delta", "1e-06"),
    ):
        assert said[said.index(flag) + 1] == value
