"""The page on what updates reveal says what was measured."""

from __future__ import annotations

import csv
import re
from pathlib import Path

RESULTS = Path(__file__).parents[2] / "docs/results"
FIGURES = ("accuracy", "auc", "auc_low", "auc_high")
VIEWS = {"one client's code": "single", "sum of the others": "others", "change of the model": "model"}


def test_figures_of_property_inference_are_those_of_the_file() -> None:
    with (RESULTS / "inference/property.csv").open(newline="") as stream:
        rows = {(r["scheme"], r["view"], r["features"], r["classifier"]): r for r in csv.DictReader(stream)}
    text = (RESULTS / "inference.md").read_text(encoding="utf-8")
    lines = re.findall(rf"^\| (fl-[\w-]+) \| ({'|'.join(VIEWS)}) \| (.*) \|$", text, re.MULTILINE)
    assert len(lines) == len(rows) // 4  # two feature maps and two classifiers
    columns = (("absolute", "forest"), ("signed", "forest"), ("signed", "logistic"))
    for scheme, view, cells in lines:
        for printed, (features, classifier) in zip(cells.split(" | "), columns, strict=True):
            row = {k: float(v) for k, v in rows[scheme, VIEWS[view], features, classifier].items() if k in FIGURES}
            interval = f"({row['auc_low']:.2f} – {row['auc_high']:.2f})"
            assert printed == f"{row['accuracy']:.3f}, {row['auc']:.3f} {interval}"


def test_every_figure_is_of_a_stand_in_and_says_so() -> None:
    with (RESULTS / "inference/property.csv").open(newline="") as stream:
        assert {row["stand_in_for"] for row in csv.DictReader(stream)} == {"lfw"}
    assert "**The data are a stand-in.**" in (RESULTS / "inference.md").read_text(encoding="utf-8")
