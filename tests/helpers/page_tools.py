"""Run folders for the tests of pages: small real ones, and one whose every text tries to be HTML."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import scheme_tools

HOSTILE = """<script>window.stolen = 1</script><img src=x onerror="window.stolen = 1">'" onmouseover='x' &amp;"""
"""A name that somebody might give a client, a class or a folder."""
CONFIG = """[run]
rounds = 6
[data]
dataset = "records.csv"
partition = "iid"
num_clients = 40
[model]
name = "mlp"
[scheme]
name = "{scheme}"
[sampler]
sampling_rate = 0.4
[privacy]
epsilon = 30.0
"""


def small_run(path: Path, name: str = "fl-std-dp", **options: Any) -> Path:
    """A finished run of a few rounds, every one of them evaluated."""
    settings: dict[str, Any] = {"rounds": 6, "eval_every": 1, "workers": 1, "device": "cpu"} | options
    scheme_tools.run(scheme_tools.scheme(name, noise_multiplier=1.5), out=path, **settings)
    (path / "config.toml").write_text(CONFIG.format(scheme=name))
    return path


def two_classes(path: Path) -> None:
    """As if the test records had had two classes: with AUROC, ROC and calibration."""
    rows = rows_of(path)
    for row in rows:
        row |= {"auroc": 0.5 + row["round"] / 20, "balanced_accuracy": 0.4 + row["round"] / 20}
    write_rows(path, rows)
    edges = [0.0, 0.1, 0.4, 1.0]
    found = {
        "round": 6,
        "records": 200,
        "classes": ["alive", "died"],
        "confusion": [[140, 10], [20, 30]],
        "roc": {"false_positive_rate": edges, "true_positive_rate": [0.0, 0.6, 0.9, 1.0]},
        "calibration": {
            "of": "second class",
            "bins": [{"records": 150, "stated": 0.1, "true": 0.12}, {"records": 5, "stated": 0.8, "true": 0.7}],
            "error": 0.02,
        },
    }
    (path / "figures.json").write_text(json.dumps(found))


def hostile(path: Path) -> None:
    """Every text in the folder becomes `HOSTILE`, as far as the files stay what they are."""
    for name in ("privacy.json", "summary.json", "figures.json"):
        (path / name).write_text(json.dumps(_poisoned(json.loads((path / name).read_text()))))
    quoted = json.dumps(HOSTILE)
    (path / "config.toml").write_text(
        f"[run]\nrounds = 6\n[data]\ndataset = {quoted}\npartition = {quoted}\n[model]\nname = {quoted}\n"
        f"[scheme]\nname = {quoted}\n[{quoted}]\n{quoted} = {quoted}\n"
    )
    rows = rows_of(path)
    rows[2] |= {"discarded": HOSTILE, "secagg_" + HOSTILE: 7, "transport_" + HOSTILE: 8}
    write_rows(path, rows)
    (path / "notices.jsonl").write_text(json.dumps({"round": 1, "client": HOSTILE, "reason": HOSTILE}) + "\n")
    (path / "failure.json").write_text(json.dumps({"error": HOSTILE}))


_KEPT = ("accountant", "of", "stop_reason")


def _poisoned(value: Any, key: str = "") -> Any:
    if isinstance(value, str):
        return value if key in _KEPT else HOSTILE
    if isinstance(value, dict):
        return {name: _poisoned(item, name) for name, item in value.items()}
    return [_poisoned(item) for item in value] if isinstance(value, list) else value


def rows_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (path / "rounds.jsonl").read_text().splitlines()]


def write_rows(path: Path, rows: list[dict[str, Any]]) -> None:
    (path / "rounds.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


class Elements(HTMLParser):
    """All elements of a page with their attributes, and the text of each section."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text.append(data)

    def named(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.found if name == tag]

    def charts(self) -> set[str]:
        return {str(a.get("data-chart") or a.get("data-bars")) for a in self.named("figure")}
