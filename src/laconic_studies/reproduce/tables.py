"""Published tables as data: what each row was run with, and what the paper says came out.

The TOML files repeat the printed tables line by line. A row's settings are put together from, in this order,
`[settings]` (every row), `[on.DATASET]` (rows on that data set), `[private]` (rows with noise), `[of.SCHEME]` (that
scheme and its private version), `[clip_norm]` (S by scheme and compression ratio) and the row's own columns.
`settings_from` names a table whose settings come first. The column `malicious` is the fraction of attackers in every
cohort. Where `dash` says so, "-" is a published result: the run does not converge.

The papers' database (Premier) is not public. `on_other_data` turns a table into one whose rows run on an open data
set or on made admissions: what differs from the paper's settings is in `stand_ins/DATASET.toml`, by paper, and is
told with the table. Published and measured figures then stand beside each other, but are of different data.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
from typing import Any

from laconic.catalogue import scheme_entry
from laconic.errors import ConfigError, unknown
from laconic.figures import rounded_up

Sections = dict[str, dict[str, Any]]
"""Values by section and key, as in a run's configuration."""

BYTES = {"Mbit": 125_000.0, "MB": 1_000_000.0, "kB": 1000.0}
"""How many bytes a unit of cost is."""
PER_PARAMETER = "bit/parameter"
"""The other unit of cost: the bits of one message over the number of the model's weights."""
NOT_GIVEN = ("-", "N/A")
_DASH = "does not converge"
"""What "-" means in tables that say so with `dash`; else it is a figure that is not given."""

PUBLISHED = resources.files("laconic_studies.reproduce") / "published"
"""The tables, one TOML file each."""


@dataclass(frozen=True, kw_only=True)
class Published:
    """The figures of one row; None where the paper has none. Costs are in the unit of the table.

    `accuracy` is the table's metric. Where a paper gives the worst and the best of several runs, it is the best one.
    """

    accuracy: float | None = None
    accuracy_worst: float | None = None
    auroc: float | None = None
    auroc_worst: float | None = None
    round: int | None = None
    up: float | None = None
    down: float | None = None
    epsilon: float | None = None
    class_accuracy: float | None = None
    """On the class that is attacked."""
    attack_accuracy: float | None = None
    """The share of that class that is taken for the attack's target."""
    converges: bool = True
    """False: published as a run that does not converge."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """One line of a table. `number` counts from 1, in the printed order."""

    number: int
    scheme: str
    ratio: float | None
    settings: Sections
    published: Published
    remark: str = ""
    published_on: str = ""
    """The paper's data set, where the row is run on another one."""
    own_noise: bool = False
    """Whether the row has a σ of its own, other than the table's."""

    @property
    def private(self) -> bool:
        return self.scheme.endswith("-dp")

    @property
    def dataset(self) -> str:
        return str(self.settings["data"]["dataset"])

    @property
    def label(self) -> str:
        """The scheme, its compression ratio where it has one, and who attacks it: 'fl-top 0.5 %, in-backdoor 10 %'."""
        label = self.scheme if self.ratio in (None, 1.0) else f"{self.scheme} {100 * self.ratio:g} %"
        return ", ".join([label, *self._attacked])

    @property
    def attacked(self) -> bool:
        return "attack" in self.settings

    @property
    def _attacked(self) -> list[str]:
        """What sets the rows of a table of attacks apart."""
        if not self.attacked:
            return []
        epsilon = self.settings.get("privacy", {}).get("epsilon")
        parts = [] if epsilon is None else [f"ε = {rounded_up(epsilon)}"]
        attack = self.settings["attack"]
        return [*parts, f"{attack['kind']} {100 * attack['fraction']:g} %"]


@dataclass(frozen=True, kw_only=True)
class Table:
    """A published table.

    `headline` are the rows that the paper's abstract or conclusion speaks of. `needs` says which data only the
    authors have; such a table is run on another data set, `stands_in` (see `stand_ins.py`), with the settings for its
    `paper`. `figure` names what is drawn beside the table. `all_rounds`: costs count all rounds, not those up to the
    best one.
    """

    name: str
    title: str
    source: str
    unit: str
    rows: tuple[Row, ...]
    headline: tuple[int, ...] = ()
    remarks: tuple[str, ...] = ()
    also: tuple[str, ...] = ()
    metric: str = "accuracy"
    figure: str = ""
    needs: str = ""
    paper: str = ""
    stands_in: str = ""
    all_rounds: bool = False

    @property
    def of_attacks(self) -> bool:
        return any(row.attacked for row in self.rows)


def table_names() -> list[str]:
    """The tables, by file; other names of the same tables are not among them."""
    files = (entry.name for entry in PUBLISHED.iterdir())
    return sorted(name.removesuffix(".toml") for name in files if name.endswith(".toml"))


def all_tables() -> list[Table]:
    return [load_table(name) for name in table_names()]


def find_table(name: str) -> Table:
    """The table of that name, or of which it is another name."""
    tables = all_tables()
    by_name = {known: table for table in tables for known in (table.name, *table.also)}
    if name.lower() not in by_name:
        raise ConfigError(unknown("table", name, by_name) + " (laconic reproduce --list describes them)")
    return by_name[name.lower()]


@cache
def load_table(name: str) -> Table:
    data = _read(name)
    settings = _with_settings_of(data)
    columns = data["columns"]
    rows = []
    for number, values in enumerate(data["rows"], start=1):
        cells = dict(zip(columns, values, strict=True))
        rows.append(_row(number, cells, settings, data.get("remark", {}).get(str(number), ""), data.get("dash", "")))
    return Table(
        name=name,
        title=data["title"],
        source=data["source"],
        unit=data["unit"],
        rows=tuple(rows),
        headline=tuple(data.get("headline", ())),
        remarks=tuple(data.get("remarks", ())),
        also=tuple(data.get("also", ())),
        metric=data.get("metric", "accuracy"),
        figure=data.get("figure", ""),
        needs=data.get("needs", ""),
        paper=settings["paper"],
        all_rounds=data.get("all_rounds", False),
    )


def _read(name: str) -> dict[str, Any]:
    return tomllib.loads((PUBLISHED / f"{name}.toml").read_text(encoding="utf-8"))


def _with_settings_of(data: dict[str, Any]) -> dict[str, Any]:
    """The table's settings on top of those of the table it names."""
    own = {key: data.get(key, {}) for key in ("settings", "on", "private", "of", "clip_norm")} | {
        "paper": data.get("paper", "")
    }
    if "settings_from" not in data:
        return own
    first = _with_settings_of(_read(data["settings_from"]))
    clip_norm = own["clip_norm"] or first["clip_norm"]
    sections = {key: merged(first[key], own[key]) for key in ("settings", "on", "private", "of")}
    return {**sections, "clip_norm": clip_norm, "paper": own["paper"] or first["paper"]}


def _row(number: int, cells: dict[str, Any], settings: dict[str, Any], remark: str, dash: str) -> Row:
    scheme, ratio = cells["scheme"], cells.get("ratio")
    dataset = cells.get("data.dataset", settings["settings"].get("data", {}).get("dataset"))
    base = scheme.removesuffix("-dp")
    options = scheme_entry(scheme).options
    sections: Sections = merged(settings["settings"], settings["on"].get(dataset, {}))
    if scheme != base:
        sections = merged(sections, settings["private"])
    # Settings for all rows hold options that not every scheme takes; those for one scheme must fit it.
    sections = sections | {"scheme": {k: v for k, v in sections.get("scheme", {}).items() if k in options}}
    for name in dict.fromkeys((base, scheme)):
        sections = merged(sections, settings["of"].get(name, {}))
    if "ratio" in options:
        sections = merged(sections, {"scheme": {"ratio": ratio}})
    bound = _clip_norm(scheme, ratio, settings["clip_norm"])
    if bound is not None:
        sections = merged(sections, {"scheme": {"clip_norm": bound}})
    for column, value in cells.items():
        section, dot, key = column.partition(".")
        if dot and value not in NOT_GIVEN:
            sections = merged(sections, {section: {key: value}})
    if "malicious" in cells:
        sections = merged(sections, {"attack": {"fraction": cells["malicious"]}})
    others = ("scheme", "ratio", "malicious")
    figures = {k: _figure(v) for k, v in cells.items() if "." not in k and k not in others}
    if dash == _DASH:
        figures["converges"] = cells["accuracy"] != "-"
    return Row(
        number=number,
        scheme=scheme,
        ratio=ratio,
        settings=merged(sections, {"scheme": {"name": scheme}}),
        published=Published(**figures),
        remark=remark,
        own_noise=_figure(cells.get("scheme.noise_multiplier")) is not None,
    )


def _figure(value: Any) -> Any:
    return None if value in NOT_GIVEN else value


def _clip_norm(scheme: str, ratio: float | None, bounds: dict[str, list[Any]]) -> float | None:
    if scheme not in bounds or ratio not in bounds["ratio"]:
        return None
    value: float | None = _figure(bounds[scheme][bounds["ratio"].index(ratio)])
    return value


def merged(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    """Nested tables, those of the second on top."""
    result = dict(first)
    for key, value in second.items():
        both = isinstance(value, dict) and isinstance(result.get(key), dict)
        result[key] = merged(result[key], value) if both else value
    return result


def choose_rows(table: Table, texts: tuple[str, ...]) -> list[Row]:
    """The rows that '3', '5-8', a scheme's name or 'headline' choose, separated by commas; all if nothing is given."""
    words = [word.strip().lower() for text in texts for word in text.split(",") if word.strip()]
    if texts and not words:
        raise ConfigError("--rows is empty: give numbers (3), ranges (5-8), schemes (fl-cs) or headline")
    chosen = {number for word in words for number in _numbers(table, word)} if words else range(1, len(table.rows) + 1)
    return [row for row in table.rows if row.number in chosen]


def _numbers(table: Table, word: str) -> Iterator[int]:
    low, dash, high = word.partition("-")
    if low.isdigit() and (not dash or high.isdigit()):
        first, last = int(low), int(high) if dash else int(low)
        if first > last:
            raise ConfigError(f"--rows {word}: a range goes from the smaller number to the larger one")
        if first < 1 or last > len(table.rows):
            raise ConfigError(f"--rows {word}: {table.name} has rows 1 to {len(table.rows)}")
        yield from range(first, last + 1)
        return
    if word == "headline":
        yield from table.headline
        return
    schemes = {row.scheme for row in table.rows}
    if word not in schemes:
        raise ConfigError("--rows: " + unknown(f"scheme in {table.name}", word, {*schemes, "headline"}))
    yield from (row.number for row in table.rows if row.scheme == word)


STAND_INS = ("ehr-synthetic", "diabetes130", "eicu-demo")


def on_other_data(table: Table, dataset: str) -> Table:
    """The table, to be run on the named data set instead of the paper's."""
    if not table.needs:
        raise ConfigError(f"{table.name} can be run on the paper's own data: leave out --on")
    if dataset not in STAND_INS:
        raise ConfigError(unknown("data set for --on", dataset, STAND_INS))
    changes = _stand_in(dataset)[table.paper]
    rows = tuple(replace(row, settings=_changed(row, dataset, changes), published_on=row.dataset) for row in table.rows)
    remarks = [changes["remark"]]
    if any(row.settings["scheme"].get("clip_norm") == "median" for row in rows):
        remarks.append("S is the median norm of the codes on this data, as the paper chose it on its own.")
    return replace(table, rows=rows, remarks=(*remarks, *table.remarks), stands_in=dataset)


def _changed(row: Row, dataset: str, changes: dict[str, Any]) -> Sections:
    """The row's settings with the data set's on top; '-' takes one away."""
    sections = merged(row.settings, {"data": {"dataset": dataset}})
    sections = merged(sections, changes.get("settings", {}))
    if row.private:
        sections = merged(sections, _known(row, changes.get("private", {})))
        if "clip_norm" in row.settings["scheme"] and "record_rate" not in row.settings["scheme"]:
            sections = merged(sections, {"scheme": {"clip_norm": "median"}})
    base = row.scheme.removesuffix("-dp")
    for name in dict.fromkeys((base, row.scheme)):
        sections = merged(sections, changes.get("of", {}).get(name, {}))
    return {name: {k: v for k, v in keys.items() if v not in NOT_GIVEN} for name, keys in sections.items()}


def _known(row: Row, sections: Sections) -> Sections:
    """Without a σ where the row has one of its own (as section 5.3.5's 5)."""
    scheme = dict(sections.get("scheme", {}))
    if row.own_noise:
        scheme.pop("noise_multiplier", None)
    return sections | {"scheme": scheme}


@cache
def _stand_in(dataset: str) -> dict[str, Any]:
    path = PUBLISHED / "stand_ins" / f"{dataset}.toml"
    return tomllib.loads(path.read_text(encoding="utf-8"))
