"""Tables that were measured on private data, as runs on data that everybody has.

The papers' database (Premier) is not public. `on_other_data` turns a table into one whose rows run on an open data set
or on made admissions: what differs from the paper's settings is in `stand_ins/DATASET.toml`, by paper, and is told with
the table. Published and measured figures then stand beside each other, but are of different data.
"""

from __future__ import annotations

import tomllib
from dataclasses import replace
from functools import cache
from typing import Any

from laconic.errors import ConfigError, unknown
from laconic_studies.reproduce.tables import NOT_GIVEN, PUBLISHED, Row, Sections, Table, merged

STAND_INS = ("ehr-synthetic", "diabetes130", "eicu-demo")


def on_other_data(table: Table, dataset: str) -> Table:
    """The table, to be run on the named data set instead of the paper's."""
    if not table.needs:
        raise ConfigError(f"{table.name} can be run on the paper's own data: leave out --on")
    if dataset not in STAND_INS:
        raise ConfigError(unknown("data set for --on", dataset, STAND_INS))
    changes = _read(dataset)[table.paper]
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
def _read(dataset: str) -> dict[str, Any]:
    path = PUBLISHED / "stand_ins" / f"{dataset}.toml"
    return tomllib.loads(path.read_text(encoding="utf-8"))
