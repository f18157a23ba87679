"""The grid of a sweep: a base configuration, axes of values, and seeds. Every combination is one run.

A grid is written in TOML. `grid` has one list of values per option, and all combinations are run; `zip` has lists of
one length that go together; `seeds` is how many, or which. All other keys are those of a run's configuration.
`planned` says what the runs will promise and cost, before any is started (`--dry-run`).
"""

from __future__ import annotations

import hashlib
import itertools
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from laconic.data.sources import sources_kept
from laconic.errors import ConfigError, LaconicError, one_line, several, speaking, unknown, worded
from laconic.settings.check import problems_in
from laconic.settings.config import RunConfig, full_path, in_file, read_toml, toml_value, write_toml
from laconic.settings.forecast import PlannedPrivacy, forecast

SEED = "run.seed"
_OWN = ("base", "seeds", "grid", "zip")
_LONGEST = 120
"""Characters of a folder's name; a longer one is cut, and a digest put at its end."""


@dataclass(frozen=True)
class Axis:
    """Options whose values go together (mostly one), by their place in the configuration, and a row for each value."""

    options: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]


@dataclass(frozen=True)
class Point:
    """One run of a sweep: its values on the axes, its seed, and the configuration that `laconic run` would be given."""

    name: str
    values: dict[str, Any]
    seed: int
    config: RunConfig

    @property
    def place(self) -> tuple[Any, ...]:
        """The values as text, which identify a combination: all its seeds have the same."""
        return tuple(str(value) for value in self.values.values())


@dataclass(frozen=True)
class Grid:
    """What a sweep consists of. `base` are the sections that all runs have in common."""

    base: dict[str, dict[str, Any]]
    axes: tuple[Axis, ...]
    seeds: tuple[int, ...]

    @property
    def options(self) -> tuple[str, ...]:
        """The options that differ between runs, in order; the seed is not one of them."""
        return tuple(option for axis in self.axes for option in axis.options)

    @property
    def labels(self) -> dict[str, str]:
        """The options in folder names and tables: 'local_lr', or 'attack.kind' where that alone is unclear."""
        short = Counter(option.rpartition(".")[2] for option in self.options)
        return {
            option: option if short[key] > 1 or key in ("name", "kind", "seed") else key
            for option in self.options
            for key in [option.rpartition(".")[2]]
        }

    def combinations(self) -> Iterator[dict[str, Any]]:
        """The values of every combination, the last axis first to change."""
        for rows in itertools.product(*(axis.rows for axis in self.axes)):
            yield {
                option: value
                for axis, row in zip(self.axes, rows, strict=True)
                for option, value in zip(axis.options, row, strict=True)
            }

    def points(self) -> list[Point]:
        """All runs, every combination with its seeds; refused, with all reasons, if any of them cannot work."""
        found: list[Point] = []
        wrong: dict[str, list[str]] = {}
        combinations = list(self.combinations())
        for values in combinations:
            with speaking(in_file):  # a grid is a file
                try:
                    config = RunConfig.from_dict(self.base).with_values(values)
                    problems = [worded(problem) for problem in problems_in(config)]
                except ConfigError as error:
                    problems = [str(error)]
            for problem in problems:
                wrong.setdefault(problem, []).append(self.text(values))
            if not problems:
                found += [
                    Point(self.name(values, seed), values, seed, config.with_values({SEED: seed}))
                    for seed in self.seeds
                ]
        if wrong:
            raise ConfigError(several([_with_places(text, places, combinations) for text, places in wrong.items()]))
        return found

    def text(self, values: Mapping[str, Any]) -> str:
        """The values of a combination, for people."""
        labels = self.labels
        return ", ".join(f"{labels[option]} = {value_text(value)}" for option, value in values.items())

    def name(self, values: Mapping[str, Any], seed: int) -> str:
        """The name of a run's folder: 'local_lr=0.1+fraction=0.2+seed=0'."""
        labels = self.labels
        plain = "+".join([*(f"{labels[o]}={value_text(v)}" for o, v in values.items()), f"seed={seed}"])
        name = re.sub(r"[^\w.,=+-]", "-", plain)
        if name == plain and len(name) <= _LONGEST:
            return name
        digest = hashlib.blake2b(plain.encode(), digest_size=4).hexdigest()
        return f"{name[:_LONGEST]}-{digest}+seed={seed}"

    def to_toml(self) -> str:
        """The grid as TOML, from which the sweep can be repeated without the file that its base came from."""
        plain = _plain_lines(self.axes)
        zipped = [line for axis in self.axes if len(axis.options) > 1 for line in _zip_lines(axis)]
        head = [f"seeds = {toml_value(list(self.seeds))}", ""]
        return "\n".join([*head, *plain, *zipped]) + "\n" + write_toml(self.base)

    @classmethod
    def from_file(cls, path: Path, changes: Mapping[str, Any] | None = None) -> Grid:
        """The grid in a file; `changes` are values of the base other than the file's."""
        return cls.from_dict(read_toml(path), below=path.parent, changes=changes)

    @classmethod
    def from_dict(
        cls, data: Mapping[str, Any], *, below: Path = Path(), changes: Mapping[str, Any] | None = None
    ) -> Grid:
        """The grid from plain values. A base file is looked for `below` a folder. All problems are said at once."""
        problems: list[str] = []
        sections = _base(data, below, problems)
        for option, value in (changes or {}).items():
            section, _, key = option.partition(".")
            sections.setdefault(section, {})[key] = value
        axes = [*_zipped(data.get("zip", []), problems), *_plain(data.get("grid", {}), problems)]
        seeds = _seeds(data, sections, problems)
        twice = [o for o, n in Counter(option for axis in axes for option in axis.options).items() if n > 1]
        problems += [f"{option} is an axis twice: once is enough" for option in twice]
        both = [o for o in (changes or {}) if any(o in axis.options for axis in axes)]
        problems += [f"⟨set⟩ {option}: it is an axis of the grid; change it there" for option in both]
        if not problems:
            problems += _wrong_sections(sections)
        if problems:
            raise ConfigError(several(problems))
        return cls(sections, tuple(axes), tuple(seeds))


def value_text(value: Any) -> str:
    """A value in names and tables."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        short = f"{value:.6g}"
        return short if float(short) == value else repr(value)
    if isinstance(value, list):
        return ",".join(value_text(one) for one in value)
    return one_line(value)


def _plain_lines(axes: tuple[Axis, ...]) -> Iterator[str]:
    plain = [axis for axis in axes if len(axis.options) == 1]
    if plain:
        yield "[grid]"
        yield from (f'"{axis.options[0]}" = {toml_value([row[0] for row in axis.rows])}' for axis in plain)
        yield ""


def _zip_lines(axis: Axis) -> Iterator[str]:
    yield "[[zip]]"
    for place, option in enumerate(axis.options):
        yield f'"{option}" = {toml_value([row[place] for row in axis.rows])}'
    yield ""


def _with_places(problem: str, places: list[str], combinations: list[dict[str, Any]]) -> str:
    """A problem, and in which combinations it is there."""
    if len(places) == len(combinations):
        return problem
    more = f" and {len(places) - 2} more" if len(places) > 2 else ""
    return f"{problem} (with {'; '.join(places[:2])}{more})"


def _base(data: Mapping[str, Any], below: Path, problems: list[str]) -> dict[str, dict[str, Any]]:
    """The sections of the base file, if one is named, and on top of them those of the grid's own file."""
    sections: dict[str, Any] = {}
    named = data.get("base")
    if isinstance(named, str):
        try:
            sections = read_toml(below / named)
        except ConfigError as error:
            problems.append(f"base: {error}")
    elif named is not None:
        problems.append('base must be the name of a configuration file, such as "run.toml"; or write its sections here')
    for key, value in data.items():
        if key in _OWN:
            continue
        if not isinstance(value, dict):
            problems.append(unknown("key", key, (*_OWN, *RunConfig().to_dict())))
        else:
            sections[key] = {**(sections.get(key) or {}), **value}
    return sections


def _wrong_sections(sections: dict[str, dict[str, Any]]) -> list[str]:
    try:
        RunConfig.from_dict(sections)
    except ConfigError as error:
        return [str(error)]
    return []


def _seeds(data: Mapping[str, Any], sections: dict[str, dict[str, Any]], problems: list[str]) -> list[int]:
    asked = data.get("seeds", [sections.get("run", {}).get("seed", 0)])
    if isinstance(asked, int) and not isinstance(asked, bool) and asked > 0:
        return list(range(asked))
    if isinstance(asked, list) and asked and all(type(s) is int and s >= 0 for s in asked):
        if len(set(asked)) < len(asked):
            problems.append("seeds: one of them is there twice")
        return asked
    problems.append(f"seeds must be how many, such as 5, or a list of whole numbers, not {asked!r}")
    return []


def _plain(table: Any, problems: list[str]) -> Iterator[Axis]:
    for option, values in _options(table, "grid", problems):
        yield Axis((option,), tuple((value,) for value in values))


def _zipped(tables: Any, problems: list[str]) -> Iterator[Axis]:
    for table in tables if isinstance(tables, list) else [tables]:
        found = dict(_options(table, "zip", problems, distinct=False))
        if len({len(values) for values in found.values()}) > 1:
            lengths = ", ".join(f"{option} has {len(values)}" for option, values in found.items())
            problems.append(f"zip: lists that go together have the same length, but {lengths}")
        elif found:
            rows = tuple(zip(*found.values(), strict=True))
            if len({str(row) for row in rows}) < len(rows):
                problems.append(f"zip: the same values of {', '.join(found)} are there twice")
            yield Axis(tuple(found), rows)


def _options(table: Any, where: str, problems: list[str], *, distinct: bool = True) -> Iterator[tuple[str, list[Any]]]:
    """The lists of a table by the place of their option; `scheme.local_lr`, `local_lr` and a table in it are alike."""
    if not isinstance(table, dict):
        problems.append(f"{where} must be a table of lists, one for each option, not {table!r}")
        return
    for key, values in _flat(table):
        try:
            option = full_path(key)
            _check_known(option)
        except ConfigError as error:
            problems.append(f"{where}: {str(error.args[0]).removeprefix('⟨set⟩ ')}")
            continue
        if option == SEED:
            problems.append(f"{where}: give seeds = [0, 1, 2] at the top of the file, instead of the axis {key}")
        elif not isinstance(values, list) or not values:
            problems.append(f"{where}: {key} must be a list of values, such as [0.1, 0.2], not {values!r}")
        elif distinct and len({str(value) for value in values}) < len(values):
            problems.append(f"{where}: {key} has one value twice")
        else:
            yield option, values


def _check_known(option: str) -> None:
    section, _, key = option.partition(".")
    known = RunConfig().to_dict() | {"federation": {}}
    if section not in known:
        raise ConfigError(unknown("section", section, known))
    if not key:
        raise ConfigError(f"{option}: name an option of the section, such as {section}.name")


def _flat(table: dict[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{before}{key}.")
        else:
            yield before + key, value


@dataclass(frozen=True)
class Planned:
    """A combination, how many seeds it is run with, and its costs: of one run, for all its rounds."""

    values: dict[str, Any]
    seeds: int
    problem: str | None = None
    epsilon: float | None = None
    noise_multiplier: float | None = None
    bytes_up: int = 0
    bytes_down: int = 0


def planned(grid: Grid, points: list[Point]) -> Iterator[Planned]:
    """A line per combination. The data are loaded and σ is calibrated, but nothing is trained or written."""
    first = {point.place: point for point in reversed(points)}
    with sources_kept():
        for values in grid.combinations():
            point = first[tuple(str(value) for value in values.values())]
            try:
                costs = forecast(point.config, brief=True)
            except LaconicError as error:
                yield Planned(values, len(grid.seeds), problem=str(error))
                continue
            privacy = costs["privacy"] or PlannedPrivacy()
            yield Planned(
                values,
                len(grid.seeds),
                epsilon=_epsilon(privacy),
                noise_multiplier=privacy.get("noise_multiplier"),
                bytes_up=costs["bytes_up_in_all"],
                bytes_down=costs["bytes_down_in_all"],
            )


def _epsilon(privacy: PlannedPrivacy) -> float | None:
    """The ε against an outsider after all rounds."""
    if not privacy:
        return None
    of_all_rounds = list(privacy["released"].values())[-1]
    found: float | None = of_all_rounds[privacy["accountant"]]
    return found
