"""The thesis' tables of attacks: every figure, the attack of every row, and which of them do not converge."""

from __future__ import annotations

from typing import Any

import pytest

from laconic.catalogue import build_scheme
from laconic.settings.config import RunConfig
from laconic.settings.parts import check_attack
from laconic_studies.reproduce.tables import Row, all_tables, load_table

ATTACKED = [table for table in all_tables() if table.of_attacks]


def test_every_attacked_row_has_an_attack_that_can_be_tried() -> None:
    assert len(ATTACKED) == 17
    for table in ATTACKED:
        for row in table.rows:
            check_attack(RunConfig.from_dict(row.settings), build_scheme(row.scheme, **options(row)))
            assert row.settings["attack"]["fraction"] in (0.0, 0.01, 0.02, 0.1, 0.2, 0.4, 0.6)


def options(row: Row) -> dict[str, Any]:
    given = {key: value for key, value in row.settings["scheme"].items() if key != "name"}
    return given | ({"noise_multiplier": 1.0} if row.private else {})


def test_boosts_are_those_of_the_text() -> None:
    """Thesis sections 6.2.1.2, 6.2.2.1 and 6.3."""

    def boosts(name: str) -> dict[tuple[str, float], float]:
        rows = load_table(name).rows
        return {(row.scheme, row.settings["attack"]["fraction"]): row.settings["attack"].get("boost") for row in rows}

    assert boosts("thesis-table6.3")["fl-std", 0.1] == 10 and boosts("thesis-table6.4")["fl-cs", 0.6] == 20
    for name, expected in (("thesis-table6.5", (7, 3, 1)), ("thesis-table6.6", (7, 4, 2))):
        found = boosts(name)
        for scheme in ("fl-std", "fl-top"):
            assert tuple(found[scheme, fraction] for fraction in (0.1, 0.2, 0.4)) == expected
        assert {found[scheme, fraction] for scheme in ("fl-cs", "fl-sign") for fraction in (0.1, 0.2, 0.4)} == {1}
    assert set(boosts("thesis-table6.7").values()) == {1}
    assert boosts("thesis-table6.9") == {
        **{("fl-sign-dp", fraction): 5000 for fraction in (0.1, 0.2, 0.4)},
        **{("fl-sign", fraction): 1 for fraction in (0.1, 0.2, 0.4)},
    }


def test_runs_that_do_not_converge_are_published_results() -> None:
    """52 of the 64 cells of Tab. 6.1 to 6.4; a dash elsewhere is a figure that is not given."""
    rows = [row for number in (1, 2, 3, 4) for row in load_table(f"thesis-table6.{number}").rows]
    failed = [row for row in rows if not row.published.converges]
    assert len(failed) == 52 and all(row.published.accuracy is None for row in failed)
    assert {row.settings["attack"]["fraction"] for row in failed if row.scheme == "fl-sign"} == {0.6}
    others = [row for table in all_tables() if not table.of_attacks for row in table.rows]
    assert all(row.published.converges for row in others)


@pytest.mark.parametrize(
    ("number", "accuracy", "of_class"),
    [
        ("6.5", 11.84, ("class_accuracy", 11.38)),
        ("6.6", 9.77, ("class_accuracy", 5.45)),
        ("6.7", 11.88, ("attack_accuracy", 10.13)),
        ("6.8", 10.90, ("attack_accuracy", 9.78)),
        ("6.9", 10.93, ("class_accuracy", 1.92)),
        ("6.10", 9.54, ("class_accuracy", 1.74)),
        ("6.11", 15.74, ("attack_accuracy", 14.82)),
        ("6.12", 10.62, ("attack_accuracy", 8.31)),
    ],
)
def test_the_figures_of_a_table_have_the_sums_of_the_printed_ones(
    number: str, accuracy: float, of_class: tuple[str, float]
) -> None:
    rows = load_table(f"thesis-table{number}").rows
    assert sum(row.published.accuracy or 0.0 for row in rows) == pytest.approx(accuracy)
    assert sum(getattr(row.published, of_class[0]) for row in rows) == pytest.approx(of_class[1])


@pytest.mark.parametrize(
    ("figure", "table"), [("thesis-figure6.1", "thesis-table6.5"), ("thesis-figure6.2", "thesis-table6.6")]
)
def test_figures_are_drawn_of_rows_of_a_table(figure: str, table: str) -> None:
    settings = [row.settings for row in load_table(table).rows]
    assert all(row.settings in settings for row in load_table(figure).rows)


def test_one_attacked_row_in_full() -> None:
    row = load_table("thesis-table6.11").rows[0]
    assert row.settings == {
        "run": {"rounds": 200},
        "data": {"dataset": "mnist", "num_clients": 6000},
        "model": {"name": "cnn"},
        "scheme": {
            "name": "fl-sign-dp",
            "local_steps": 5,
            "batch_size": 10,
            "local_lr": 0.215,
            "sign_step": 0.001,
            "ring_bits": 22,
        },
        "sampler": {"kind": "as-published", "cohort_size": 100},
        "privacy": {"delta": 1e-5, "accountant": "moments", "epsilon": 1},
        "attack": {
            "kind": "out-backdoor",
            "source": "0",
            "target": "1",
            "removed": "0",
            "share": "cohort",
            "steps": "pool",
            "boost": 5000.0,
            "fraction": 0.02,
        },
    }
    assert row.label == "fl-sign-dp, ε = 1, out-backdoor 2 %"
