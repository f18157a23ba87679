"""Pictures that people can read: names on the axes, lines that differ in more than colour, bytes on a log scale."""

from __future__ import annotations

import csv
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("matplotlib", reason="matplotlib is not installed: pip install matplotlib")

from laconic.report import plots
from laconic.report.plots import line_style, plot_curves, pyplot

ROOT = Path(__file__).parents[3]


def history(metric: str = "accuracy", sent: int = 1000, rounds: int = 40) -> list[dict[str, Any]]:
    return [{"round": n, metric: n / rounds, "bytes_up": sent} for n in range(1, rounds + 1)]


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """The figures that are drawn, kept open."""
    figures: list[Any] = []
    plt = pyplot()
    monkeypatch.setattr(plt, "close", figures.append)
    yield figures
    monkeypatch.undo()
    for figure in figures:
        plt.close(figure)


def luminance(colour: str) -> float:
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_seven_lines_differ_in_colour_and_mark_and_neighbours_in_dashes() -> None:
    styles = [line_style(place) for place in range(7)]
    assert len({style["color"] for style in styles}) == len({style["marker"] for style in styles}) == 7
    assert all(a["linestyle"] != b["linestyle"] for a, b in itertools.pairwise(styles))
    assert all(luminance(style["color"]) < 190 for style in styles)  # visible on white, also in grey


def test_axes_have_names_and_bytes_are_logarithmic_with_units(tmp_path: Path, drawn: list[Any]) -> None:
    plot_curves({"a": history("auroc"), "b": history("auroc", sent=10**6)}, tmp_path / "x.png", "auroc")
    by_round, by_bytes = drawn[0].axes
    assert (by_round.get_xlabel(), by_round.get_ylabel()) == ("round", "AUROC, test records")
    assert by_bytes.get_xlabel() == "bytes sent up by all clients together"
    assert by_bytes.get_xscale() == "log"
    drawn[0].canvas.draw()
    assert "1 MB" in [label.get_text() for label in by_bytes.get_xticklabels()]
    assert [text.get_text() for text in by_bytes.get_legend().get_texts()] == ["a", "b"]


def test_a_run_that_sends_nothing_has_no_place_on_a_logarithm(tmp_path: Path, drawn: list[Any]) -> None:
    plot_curves({"centralized": history(sent=0)}, tmp_path / "x.png")
    assert len(drawn[0].axes[0].get_lines()[0].get_xdata()) == 40
    assert len(drawn[0].axes[1].get_lines()[0].get_xdata()) == 0


def test_no_picture_uses_colours_of_its_own() -> None:
    """Whoever draws lines takes `line_style`, or colours that are its own and among Okabe and Ito's."""
    for folder in ("src", "benchmarks"):
        for path in (ROOT / folder).rglob("*.py"):
            text = path.read_text(encoding="utf-8")
            if "pyplot" in text or "matplotlib" in text:
                assert not [f"C{n}" for n in range(10) if f'"C{n}"' in text], path


def test_published_points_stand_at_the_epsilon_of_the_same_accountant(tmp_path: Path, drawn: list[Any]) -> None:
    from benchmarks.frontier.plots import PUBLISHED, draw_epsilon, published_epsilon
    from benchmarks.frontier.report import results_in

    assert published_epsilon() == pytest.approx(0.681, abs=0.001)
    assert published_epsilon("moments") == pytest.approx(1.0, abs=0.005)  # what the paper states
    draw_epsilon(results_in(ROOT / "docs/results/frontier")[1], tmp_path / "x.png")
    (axes,) = drawn[0].axes
    points = {line.get_label(): line.get_xydata() for line in axes.get_lines()}
    assert points["FL-TOP-DP as published (UAI'21)"].tolist() == [[published_epsilon(), PUBLISHED]]
    assert not [text for text in axes.get_legend_handles_labels()[1] if "aim" in text]


def test_pictures_are_drawn_again_from_the_figures_beside_them() -> None:
    """Which runs are shown, and that their figures are there. The pictures themselves depend on fonts."""
    from benchmarks import pictures

    every = pictures.histories()
    panels = [runs for groups in (pictures.SCHEMES, pictures.FOUNDATIONS) for runs in groups.values()]
    assert all(len(every[run]) == 200 for runs in panels for run in runs.values())
    assert all(len(runs) <= 7 for runs in panels)
    folders = list(pictures.tables())
    assert len(folders) >= 15
    for folder in folders:
        found = pictures.measured(folder)
        with (folder / "table.csv").open(newline="") as stream:
            lines = [line for line in csv.DictReader(stream) if line["seed"]]
        assert sum(map(len, found.values())) == len(lines) > 0
    assert plots.metric_name("holdout_accuracy") == "holdout accuracy"
