"""Several runs on one page, by one metric."""

from __future__ import annotations

from typing import Any

import pytest
from page_tools import HOSTILE, Elements

from laconic.report.page.overlay import overlay_page, short_names
from laconic.report.page.reading import RunView, best, common_metric, main_metric


def view(name: str, **metrics: float) -> RunView:
    rows: list[dict[str, Any]] = [
        {"round": i, "bytes_up": 100, "epsilon": 0.1 * i, **{key: value * i for key, value in metrics.items()}}
        for i in (1, 2, 3)
    ]
    return RunView(name=name, path=name, rows=rows)


@pytest.mark.parametrize(
    ("runs", "metric"),
    [
        ([{"auroc": 0.1, "accuracy": 0.2}, {"auroc": 0.1, "accuracy": 0.2}], "auroc"),
        ([{"auroc": 0.1, "accuracy": 0.2}, {"accuracy": 0.2, "loss": 1.0}], "accuracy"),
        ([{"loss": 1.0}, {"accuracy": 0.2, "loss": 1.0}], "loss"),
        ([{"accuracy": 0.2}, {}], "accuracy"),
        ([{}], None),
    ],
)
def test_one_metric_stands_for_all_runs(runs: list[dict[str, float]], metric: str | None) -> None:
    assert common_metric([view("x", **metrics).rows for metrics in runs]) == metric


def test_a_run_is_shown_by_auroc_where_there_is_one() -> None:
    assert main_metric(view("x", accuracy=0.1, auroc=0.2)) == "auroc"
    assert main_metric(view("x", loss=0.1)) == "loss"
    assert main_metric(view("x")) is None


def test_the_best_loss_is_the_smallest() -> None:
    assert best(view("x", loss=1.0).rows, "loss") == (1, 1.0)
    assert best(view("x", accuracy=0.1).rows, "accuracy") == (3, pytest.approx(0.3))


def test_the_curves_of_all_runs_are_in_every_picture() -> None:
    found = Elements(overlay_page({"a": view("a", accuracy=0.1), "b": view("b", accuracy=0.2)}, "accuracy"))
    assert found.charts() == {"overlay-rounds", "overlay-bytes", "overlay-epsilon"}
    names = [a["data-name"] for a in found.named("g") if "data-name" in a]
    assert names == ["a", "b"] * 3
    assert "Metric of all rows and curves: accuracy (larger is better)." in " ".join(found.text)


def test_names_are_what_tells_runs_apart() -> None:
    assert short_names(["runs/a", "runs/b"]) == ["a", "b"]
    assert short_names(["sweep/x/run", "sweep/y/run"]) == ["x/run", "y/run"]
    assert short_names(["runs/only"]) == ["only"]
    assert short_names(["runs", "runs/inner"]) == ["runs", "runs/inner"]


def test_names_of_runs_do_not_become_html() -> None:
    found = Elements(overlay_page({HOSTILE: view(HOSTILE, accuracy=0.1)}, "accuracy", links={HOSTILE: "x/"}))
    assert len(found.named("script")) == 1 and not found.named("img")
