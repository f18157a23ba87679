"""The ε on a page: never less than was spent, never one that does not hold, never one that only looks proven."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from page_tools import Elements, rows_of, small_run, write_rows
from scipy.stats import norm

from laconic.adversary.attacks.gradient_ascent import GradientAscent
from laconic.figures import at_most
from laconic.report.page.curves import spending
from laconic.report.page.overlay import overlay_page
from laconic.report.page.reading import read_run
from laconic.report.page.verdict import most_certain, most_true_positives, verdict

RATE, SIGMA, ROUNDS = 0.4, 1.5, 6


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_run(tmp_path_factory.mktemp("honest") / "run", rounds=ROUNDS)


@pytest.fixture(scope="module")
def attacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    attack = GradientAscent(fraction=0.25, boost=10, omit_noise=True)
    return small_run(tmp_path_factory.mktemp("honest") / "attacked", rounds=3, attack=attack)


@pytest.fixture
def folder(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "run"))


def changed(folder: Path, **parts: Any) -> None:
    path = folder / "privacy.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | parts))


def words(folder: Path) -> str:
    return " ".join(Elements(verdict(read_run(folder))).text)


def least_power(alpha: float, runs: int = 60_000) -> float:
    """True positives of the likelihood ratio test of the outsider at α, by simulation: no bound may be below them."""
    random = np.random.default_rng(0)

    def losses(came: np.ndarray) -> np.ndarray:
        seen = SIGMA * random.standard_normal(came.shape) + came
        return np.log1p(RATE * np.expm1((2 * seen - 1) / (2 * SIGMA**2))).sum(1)

    without = losses(np.zeros((runs, ROUNDS)))
    with_it = losses((random.random((runs, ROUNDS)) < RATE).astype(float))
    return float((with_it > np.quantile(without, 1 - alpha)).mean())


def test_the_bound_on_an_outsider_is_above_the_best_test_and_close_to_it(finished: Path) -> None:
    """The test is simulated here from the mechanism alone, without any accountant."""
    pairs = read_run(finished).pairs("released")
    for alpha in (0.01, 0.05, 0.2):
        best = least_power(alpha)
        assert best - 0.006 <= most_true_positives(alpha, pairs) <= best + 0.1


def test_the_bound_on_the_server_is_above_the_best_test_and_close_to_it(finished: Path) -> None:
    """Gaussian noise whose client is known to take part: the test is known in closed form."""
    taken = json.loads((finished / "privacy.json").read_text())["participant"]["participations"]
    pairs, mu = read_run(finished).pairs("participant"), math.sqrt(taken) / SIGMA
    for alpha in (0.001, 0.01, 0.05, 0.2):
        best = float(norm.sf(norm.isf(alpha) - mu))
        assert best <= most_true_positives(alpha, pairs) <= best + 0.1
    assert norm.cdf(mu / 2) <= most_certain(pairs) <= norm.cdf(mu / 2) + 0.05


def test_pairs_of_a_run_of_fewer_rounds_would_be_noticed(finished: Path) -> None:
    """Guards the tests above: the bound of a shorter run lies below the best test of this one."""
    taken = json.loads((finished / "privacy.json").read_text())["participant"]["participations"]
    pairs = [(max(0.0, e - 2), d) for e, d in read_run(finished).pairs("participant")]
    assert norm.sf(norm.isf(0.01) - math.sqrt(taken) / SIGMA) > most_true_positives(0.01, pairs)


def test_rows_that_are_newer_than_the_statement_count(folder: Path) -> None:
    """A run that was killed between two checkpoints has spent what its rows say."""
    write_rows(folder, [*rows_of(folder), rows_of(folder)[-1] | {"round": 7, "epsilon": 50.0}])
    view = read_run(folder)
    assert view.epsilon("released") == 50.0 and view.pairs("released") == [(50.0, 1e-5)]
    assert "ε = 50.000" in words(folder) and "of an earlier checkpoint" in words(folder)
    assert "50.000" in overlay_page({"run": view}, "accuracy")


def test_a_finished_run_has_the_figures_of_its_statement(finished: Path) -> None:
    view = read_run(finished)
    assert view.epsilons() == (view.stated("released"), view.stated("participant"))
    assert "of an earlier checkpoint" not in words(finished)


def test_where_attackers_left_out_noise_the_page_is_of_the_noise_that_was_left(attacked: Path) -> None:
    view, statement = read_run(attacked), json.loads((attacked / "privacy.json").read_text())
    assert not statement["attack"]["holds"]
    for name in ("released", "participant"):
        planned = statement[name]["epsilon"]["pld"]
        pairs = view.pairs(name)
        assert view.epsilon(name) == statement["attack"][name]["pld"] > planned
        assert pairs[0][0] == view.epsilon(name) and len(pairs) == 10
        assert pairs[0] in [pytest.approx(pair) for pair in pairs[1:]]
        assert f"ε = {at_most(planned)} was planned and does not hold" in words(attacked)
    assert "those that do are above" in str(spending(view))
    assert "overlay-epsilon" not in Elements(overlay_page({"run": view}, "accuracy")).charts()


def test_where_no_noise_was_left_no_figure_is_shown(folder: Path) -> None:
    changed(folder, attack={"holds": False, "noise_left": 0.0, "text": "there was no noise at all"})
    view = read_run(folder)
    assert view.epsilons() == (None, None) and view.pairs("released") == []
    assert words(folder).count("nothing bounds what an attacker learns") == 2


def test_an_attack_that_the_noise_was_made_for_changes_nothing(folder: Path) -> None:
    before = read_run(folder).epsilons()
    changed(folder, attack={"holds": True, "noise_left": 1.0, "text": "made for it"})
    assert read_run(folder).epsilons() == before and "does not hold" not in words(folder)


def test_a_published_figure_is_not_called_a_bound(folder: Path) -> None:
    assert "is not a bound" not in words(folder)
    changed(folder, sampler={"kind": "AsPublished", "cohort_size": 10, "num_clients": 40})
    assert "is not a bound" in words(folder)


def test_an_epsilon_is_written_as_the_statement_writes_it() -> None:
    """12.349 would be less than was spent."""
    assert [at_most(e) for e in (0.5, 12.3494, 123.456, 2345.6)] == ["0.500", "12.350", "123.456", "2345.6"]


@pytest.mark.parametrize(("epsilon", "delta"), [(-1.0, 1e-5), (1.0, -0.1), (1.0, 2.0), ("x", 1e-5), (None, None)])
def test_what_cannot_be_a_pair_is_none(folder: Path, epsilon: object, delta: object) -> None:
    view = read_run(folder)
    statement = dict(view.statement) | {"delta": delta}
    statement["released"] = dict(statement["released"]) | {"epsilon": {"pld": epsilon}}
    changed(folder, **statement)
    write_rows(folder, [{key: value for key, value in row.items() if "epsilon" not in key} for row in view.rows])
    assert read_run(folder).pairs("released") == []
    assert "No finite ε is known" in words(folder)
