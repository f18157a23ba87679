"""What the project promises of its speed, checked against what was measured."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Checked:
    """One aim: what it is about, what was measured, what was aimed for, and whether that is met."""

    what: str
    measured: str
    aim: str
    met: bool


# (suite, our contender, the peers' group, how many times faster)
_FASTER = (
    ("w1", "laconic fl-top-dp 0.5 %, auto", "pfl", 1.3),  # with the accountant on, and noise drawn by every client
    ("w1", "laconic fl-top-dp 0.5 %, auto", "Flower", 4.0),
    ("w1", "laconic fl-std-dp on integers, auto", "pfl", 1.3),
    ("w1", "laconic fl-std-dp on integers, auto", "Flower", 4.0),
    ("w1", "laconic fl-std-dp, auto", "pfl", 1.3),
    ("w1", "laconic fl-std-dp, auto", "Flower", 4.0),
    ("w1", "laconic fl-std, auto", "pfl", 1.3),  # the same work as the peers do
    ("w1", "laconic fl-std, auto", "Flower", 4.0),
    ("w2", "laconic sparse-first", "plain loop", 4.0),
    ("w3", "laconic", "PyLBFGS OWL-QN", 5.0),
    ("w7", "laconic", "plain loop", 1.0),
    ("w8", "laconic", "plain loop", 1.0),
)
# The same on a GPU
_FASTER_ON_GPU = (("w8", "laconic", "plain loop", 10.0),)
# (suite, how many times as long as with shared weights), on a GPU
_SHARED = (("w6", 1.3), ("w7", 2.0))
# (our contender in W1 on a GPU, milliseconds a round)
_AT_MOST = (
    ("laconic fl-std, auto", 11),
    ("laconic fl-top 0.5 %, auto", 11),
    ("laconic fl-cs 5 %, 50 iterations, auto", 30),
)
# (private scheme in W1, its twin without privacy), whose rounds may take 1.15 times as long
_PRICE = (
    ("laconic fl-std-dp on integers, auto", "laconic fl-std, auto"),
    ("laconic fl-top-dp 0.5 %, auto", "laconic fl-top 0.5 %, auto"),
)
_DEAREST = 1.15
# (values, figure of the row, at which dropouts, milliseconds), for a hundred clients, all of them neighbours
_MASKS = (
    (1_663_370, "masking_ms", None, 400),
    (8_317, "masking_ms", None, 5),
    (1_663_370, "unmask_ms", "30%", 8000),
    (8_317, "unmask_ms", "30%", 200),
)
# W9: how many times as fast as the earlier checkout; and milliseconds of a round, by its clients
_TIMES_BEFORE, _EVERYBODY = 20.0, {1000: 10.0, 6000: 100.0}
_W1_MEGABYTES, _POPULATION_MEGABYTES, _FLAT = 1500, 100, 1.25


def check(results: dict[str, Any]) -> list[Checked]:
    """The aims that these results say something about."""
    suites = {name: suite for name, suite in results["suites"].items() if "left_out" not in suite}
    found = [*_population(suites)]
    if results["device"] == "cpu":
        found = [
            *_faster(suites, _FASTER),
            *_price(suites),
            *_memory(suites),
            *_masks(suites),
            *_everybody(suites),
            *found,
        ]
    else:
        faster = _faster(suites, _FASTER_ON_GPU)
        found = [*_milliseconds(suites), *_price(suites), *faster, *_shared(suites), *found]
    return found


def _faster(suites: dict[str, Any], aims: Iterable[tuple[str, str, str, float]]) -> Iterator[Checked]:
    for name, ours, group, times in aims:
        rows = suites.get(name, {}).get("contenders", [])
        theirs = [row for row in rows if row["group"] == group]
        mine = [row for row in rows if row["name"].startswith(ours)]
        if theirs and "objective" in theirs[0]:  # a faster solver must not be a worse one
            mine = [row for row in mine if row["objective"] <= min(r["objective"] for r in theirs)]
        if not theirs or not mine:
            continue
        best, fast = min(theirs, key=_median), min(mine, key=_median)
        ratio = best["median"] / fast["median"]
        what = f"*{fast['name']}* against *{best['name']}*"
        yield Checked(what, f"{ratio:.2f}×", f"{times:g}× or more", ratio >= times)


def _shared(suites: dict[str, Any]) -> Iterator[Checked]:
    """What weights of its own for every client cost."""
    for name, times in _SHARED:
        medians = {row["group"]: row for row in suites.get(name, {}).get("contenders", [])}
        if {"laconic", "shared weights"} <= set(medians):
            ours, theirs = medians["laconic"], medians["shared weights"]
            ratio = ours["median"] / theirs["median"]
            what = f"*{ours['name']}* against *{theirs['name']}*"
            yield Checked(what, f"{ratio:.2f}× as long", f"{times:g}× or less", ratio <= times)


def _memory(suites: dict[str, Any]) -> Iterator[Checked]:
    rows = [r for r in suites.get("w1", {}).get("contenders", []) if r["name"] == "laconic fl-std-dp, auto"]
    for row in rows:
        yield Checked(
            f"*{row['name']}*, peak memory",
            f"{row['peak_mb']:,.0f} MB",
            f"under {_W1_MEGABYTES:,} MB",
            row["peak_mb"] < _W1_MEGABYTES,
        )


def _milliseconds(suites: dict[str, Any]) -> Iterator[Checked]:
    medians = {row["name"]: 1e3 * row["median"] for row in suites.get("w1", {}).get("contenders", [])}
    for name, most in _AT_MOST:
        if name in medians:
            yield Checked(f"*{name}*", f"{medians[name]:.1f} ms", f"{most} ms or less", medians[name] <= most)


def _price(suites: dict[str, Any]) -> Iterator[Checked]:
    """What privacy with integers costs."""
    medians = {row["name"]: row["median"] for row in suites.get("w1", {}).get("contenders", [])}
    for private, twin in _PRICE:
        if private in medians and twin in medians:
            ratio = medians[private] / medians[twin]
            what = f"*{private}* against *{twin}*"
            yield Checked(what, f"{ratio:.2f}×", f"{_DEAREST:g}× or less", ratio <= _DEAREST)


def _masks(suites: dict[str, Any]) -> Iterator[Checked]:
    """A hundred clients, each the neighbour of all others."""
    complete = [r for r in suites.get("masks", {}).get("rows", []) if r["cohort"] == 100 and r["neighbours"] == 99]
    for row in complete:
        for size, key, rate, most in _MASKS:
            if row["size"] == size:
                took = row[key] if rate is None else row[key][rate]
                what = "masking" if rate is None else f"unmasking {rate.removesuffix('%')} % of"
                whom = "with 99 neighbours" if rate is None else "100 clients"
                yield Checked(f"{what} {whom}, {size:,} values", f"{took:,.1f} ms", f"under {most:,} ms", took < most)


def _everybody(suites: dict[str, Any]) -> Iterator[Checked]:
    """By the fastest turns."""
    for row in suites.get("w9", {}).get("rows", []):
        if "now" not in row:
            continue
        fastest = {when: 1e3 * min(row[when]["seconds"]) for when in ("before", "now") if when in row}
        most, now = _EVERYBODY[row["clients"]], fastest["now"]
        yield Checked(f"{row['about']}: a round", f"{now:.1f} ms", f"{most:g} ms or less", now <= most)
        if "before" in fastest:
            ratio = fastest["before"] / now
            what = f"{row['about']}: against the earlier checkout"
            yield Checked(what, f"{ratio:.1f}×", f"{_TIMES_BEFORE:g}× or more", ratio >= _TIMES_BEFORE)
        more, data = row["now"]["peak_mb"] - row["now"]["start_mb"], row["now"]["data_mb"]
        if data > 50:
            what = f"{row['about']}: memory beside the data"
            yield Checked(what, f"{more:,.0f} MB", f"less than the data, {data:,.0f} MB", more < data)


def _population(suites: dict[str, Any]) -> Iterator[Checked]:
    for curve in suites.get("growth", {}).get("curves", []):
        points = curve["points"]
        if curve["axis"] != "population" or len(points) < 2:
            continue
        first, last = points[0], points[-1]
        span = f"from {first['x']:,} to {last['x']:,} clients"
        more, slower = last["peak_mb"] - first["peak_mb"], last["seconds"] / first["seconds"]
        limit = f"under {_POPULATION_MEGABYTES} MB"
        yield Checked(f"memory {span}", f"{more:+,.0f} MB", limit, more < _POPULATION_MEGABYTES)
        yield Checked(f"seconds a round {span}", f"{slower:.2f}×", f"flat: under {_FLAT}×", slower < _FLAT)


def _median(row: dict[str, Any]) -> float:
    return float(row["median"])
