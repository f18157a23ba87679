"""Charts: every point has its place, the axes their numbers, and the same numbers are in a table."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from page_tools import Elements

from laconic.report.drawing import HEIGHT, MOST_POINTS, WIDTH, Axis, Series, axis_for, bars, chart

UNIT = Axis(label="share", low=0.0, high=1.0)


def drawn(*series: Series, x: Axis = UNIT, y: Axis = UNIT) -> Elements:
    return Elements(chart("key", "A title", series, x, y))


@given(st.lists(st.floats(1e-6, 1e12), min_size=1, max_size=20), st.booleans())
def test_every_value_has_a_place_on_its_axis(values: list[float], log: bool) -> None:
    axis = axis_for("x", values, log=log)
    assert all(-1e-9 <= axis.place(value) <= 1 + 1e-9 for value in values)
    assert 1 <= len(axis.ticks) <= 13
    assert all(-0.01 <= axis.place(tick) <= 1.01 for tick in axis.ticks)


@pytest.mark.parametrize(
    ("low", "high", "log", "ticks"),
    [
        (0, 100, False, [0, 20, 40, 60, 80, 100]),
        (0, 1, False, [0, 0.2, 0.4, 0.6, 0.8, 1]),
        (1e-4, 1, True, [1e-4, 1e-3, 1e-2, 0.1, 1]),
        (0.8, 17, True, [1, 3, 10]),
    ],
)
def test_numbers_along_an_axis_are_round(low: float, high: float, log: bool, ticks: list[float]) -> None:
    assert Axis(label="x", low=low, high=high, log=log).ticks == pytest.approx(ticks)


def test_rounds_are_counted_in_whole_numbers() -> None:
    assert axis_for("round", [1, 12], low=0.0, whole=True).ticks == [0, 5, 10]


def test_points_stand_where_their_values_say() -> None:
    found = drawn(Series(name="a", points=[(0.0, 0.0), (0.5, 1.0), (1.0, 0.5)]))
    places = [p for p in found.named("path") if p.get("class") == "point"]
    assert [(p["data-x"], p["data-y"]) for p in places] == [("0", "0"), ("0.5", "1"), ("1", "0.5")]
    xs = [float(str(p["data-at"])) for p in places]
    assert xs[1] - xs[0] == pytest.approx(xs[2] - xs[1], abs=0.2)
    assert all(0 < x < WIDTH for x in xs) and HEIGHT > 0


def test_a_chart_has_title_axes_points_table_and_a_place_for_the_keyboard() -> None:
    found = drawn(Series(name="one", points=[(0.2, 0.3)]), Series(name="two", points=[(0.2, 0.4)]))
    assert [a["role"] for a in found.named("svg") if "role" in a] == ["img"]
    assert [a for a in found.named("div") if a.get("class") == "plot" and a.get("tabindex") == "0"]
    assert {"A title", "share", "one", "two", "0.3", "0.4"} <= set(found.text)
    assert len(found.named("button")) == 2


def test_values_that_are_not_finite_are_left_out() -> None:
    points = [(0.1, math.nan), (0.2, math.inf), (0.3, 0.5)]
    assert len([p for p in drawn(Series(name="a", points=points)).named("path") if p.get("class") == "point"]) == 1


def test_long_series_are_thinned_out_and_keep_their_ends() -> None:
    points = [(i / 9999, i / 9999) for i in range(10_000)]
    places = [p for p in drawn(Series(name="a", points=points)).named("path") if p.get("class") == "point"]
    assert len(places) <= MOST_POINTS + 1
    assert (places[0]["data-x"], places[-1]["data-x"]) == ("0", "1")


def test_bars_say_their_numbers() -> None:
    found = Elements(bars("key", "Bytes", [("up", 10.0), ("down", 5.0)], lambda value: f"{value:g} B"))
    widths = [float(str(a["width"])) for a in found.named("rect")]
    assert widths[0] == pytest.approx(2 * widths[1], abs=0.2)
    assert {"up: 10 B", "down: 5 B", "Bytes"} <= set(found.text)


_FAR = (0.0, 5e-324, 1e-101, 1.0, 1.0 + 2**-52, 3e17, 1e99, 1e308, -1e308, -1.0, math.inf, math.nan)


@pytest.mark.parametrize("log", [False, True])
def test_a_loss_that_ran_away_does_not_break_the_picture(log: bool) -> None:
    """Such a run is a result: its report must be written."""
    for values in itertools.product(_FAR, repeat=2):
        axis = axis_for("loss", values, log=log)
        assert len(axis.ticks) < 20
        Elements(chart("key", "A title", [Series(name="s", points=[(v, v) for v in values])], axis, axis))
