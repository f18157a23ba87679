"""Published figures of property inference, run again: `published/inference/*.toml`.

A row is an attack on one scheme, not a run with rounds and bytes, so these are kept apart from the tables. Where the
paper's data set is not at hand the attack runs on its stand-in, and every file says so.
"""

from __future__ import annotations

import json
import tomllib
from dataclasses import dataclass, field, fields
from functools import cache
from pathlib import Path
from typing import Any

import torch

from laconic.catalogue import build_scheme
from laconic.data.sources import SOURCES
from laconic.errors import ConfigError, DataError, RunFolderError, unknown
from laconic.store.folder import RunFolder, json_text
from laconic_studies.inference.property import PropertyInference, Watch
from laconic_studies.inference.property_picture import write_rows
from laconic_studies.inference.property_setup import Prepared, PropertySetup
from laconic_studies.reproduce.tables import PUBLISHED

_TRAIN = ("local_lr", "local_steps")
_SEEN = "others"
"""The view of a participant, which the text is about."""


@dataclass(frozen=True, kw_only=True)
class PublishedInference:
    """One published experiment: the data set, the settings, and the attack's accuracy by scheme."""

    name: str
    title: str
    source: str
    also: tuple[str, ...]
    remarks: tuple[str, ...]
    dataset: str
    attribute: str
    stand_in: dict[str, str]
    settings: dict[str, Any]
    quick: dict[str, Any]
    accuracy: dict[str, float]


@cache
def published_inferences() -> dict[str, PublishedInference]:
    """All of them, by name and by their other names."""
    found: dict[str, PublishedInference] = {}
    for file in sorted((PUBLISHED / "inference").iterdir(), key=lambda file: file.name):
        data = tomllib.loads(file.read_text(encoding="utf-8"))
        one = PublishedInference(
            name=file.name.removesuffix(".toml"),
            title=data["title"],
            source=data["source"],
            also=tuple(data["also"]),
            remarks=tuple(data["remarks"]),
            dataset=data["dataset"],
            attribute=data["property"],
            stand_in=data["stand_in"],
            settings=data["settings"],
            quick=data["quick"],
            accuracy={row["scheme"]: row["attack_accuracy"] for row in data["rows"]},
        )
        found |= dict.fromkeys((one.name, *one.also), one)
    return found


@dataclass(frozen=True, kw_only=True)
class InferenceReproduction:
    """How it is to be run, and where its files go. `changes` are settings other than the published ones."""

    published: PublishedInference
    out: Path
    quick: bool = False
    data_dir: str | None = None
    changes: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for key in self.changes:
            if key not in self.published.settings:
                raise ConfigError(unknown(f"setting of {self.published.name}", key, self.published.settings))

    @property
    def stands_in(self) -> bool:
        """Whether the paper's data set is not at hand, and another takes its place."""
        try:
            return not SOURCES[self.published.dataset].locate(self.data_dir)
        except DataError:  # the folder holds other data
            return True

    @property
    def settings(self) -> dict[str, Any]:
        return self.published.settings | (self.published.quick if self.quick else {}) | self.changes

    @property
    def folder(self) -> Path:
        parts = [self.published.name, *([self.published.stand_in["dataset"]] if self.stands_in else [])]
        parts += ["quick"] if self.quick else []
        parts += [f"{key}={value}" for key, value in sorted(self.changes.items())]
        return self.out / "+".join(parts)

    @property
    def notes(self) -> list[str]:
        """What a reader must know before comparing."""
        notes = []
        if self.stands_in:
            theirs, other = self.published, self.published.stand_in
            notes.append(
                f"Another data set: the paper's figures are of '{theirs.attribute}' in {theirs.dataset}; here they are"
                f" of '{other['property']}' in {other['dataset']}, a stand-in. They cannot be compared."
            )
        if self.quick:
            notes.append("Quick version: few rounds and small pictures. It shows that everything runs.")
        if self.changes:
            changed = ", ".join(f"{key} = {value}" for key, value in self.changes.items())
            notes.append(f"Not the published settings: {changed}.")
        return notes

    @property
    def prepared(self) -> Prepared:
        other, s = self.published.stand_in, self.settings
        return PropertySetup(
            dataset=other["dataset"] if self.stands_in else self.published.dataset,
            attribute=other["property"] if self.stands_in else self.published.attribute,
            data_dir=self.data_dir,
            **{f.name: s[f.name] for f in fields(PropertySetup) if f.name in s},
        ).prepared()

    def attack(self, seed: int) -> PropertyInference:
        s = self.settings
        given = {f.name: s[f.name] for f in fields(PropertyInference) if f.name in s}
        return PropertyInference(seed=seed, views=(_SEEN,), classifiers=("forest",), **given)

    def finished(self, scheme: str, seed: int) -> bool:
        return self._file(scheme, seed).exists()

    def _file(self, scheme: str, seed: int) -> Path:
        return self.folder / f"{scheme}-seed-{seed}.json"

    def run(self, prepared: Prepared, scheme: str, seed: int, device: torch.device, watch: Watch) -> None:
        """Attack one scheme with one seed, and keep the figures."""
        built = build_scheme(scheme, **{key: self.settings[key] for key in _TRAIN})
        attack = self.attack(seed)
        result = prepared.attacked(built, attack, device=device, watch=watch)
        rows = [prepared.row(built, attack, result, guess) for guess in result.guesses]
        folder = RunFolder(self.folder)
        folder.make()
        folder.write(self._file(scheme, seed).name, json_text(rows, indent=2) + "\n")

    def rows(self) -> list[dict[str, Any]]:
        """All figures there are: one row for each scheme, seed, view, feature map and classifier."""
        found: list[dict[str, Any]] = []
        for scheme in self.published.accuracy:
            for path in sorted(self.folder.glob(f"{scheme}-seed-*.json")):
                try:
                    found += json.loads(path.read_text(encoding="utf-8"))
                except (OSError, ValueError):
                    raise RunFolderError(f"{path} is damaged: delete it, and the row is run again") from None
        return found

    def write(self) -> None:
        """table.md and table.csv."""
        rows = self.rows()
        if rows:
            write_rows(rows, self.folder / "table.csv")
            RunFolder(self.folder).write("table.md", self.markdown())

    def compared(self) -> list[dict[str, Any]]:
        """Published beside measured, for each scheme and feature map: means over the seeds, by the cited forest."""
        entries = []
        for scheme, figure in self.published.accuracy.items():
            for features in ("absolute", "signed"):
                some = [
                    row
                    for row in self.rows()
                    if (row["scheme"], row["features"], row["view"], row["classifier"])
                    == (scheme, features, _SEEN, "forest")
                ]
                mean = {key: sum(row[key] for row in some) / len(some) if some else None for key in ("accuracy", "auc")}
                entries.append({"scheme": scheme, "features": features, "published": figure, "seeds": len(some)} | mean)
        return entries

    def markdown(self) -> str:
        p = self.published
        lines = [f"# {p.title}", "", *(f"**{note}**\n" for note in self.notes), f"Source: {p.source}.", ""]
        lines += ["| scheme | features | accuracy: paper | here | AUC here | seeds |", "| --- " * 6 + "|"]
        for entry in self.compared():
            here = ["–" if entry[key] is None else f"{entry[key]:.3f}" for key in ("accuracy", "auc")]
            lines.append(
                f"| {entry['scheme']} | {entry['features']} | {entry['published']:.2f} | {' | '.join(here)} |"
                f" {entry['seeds']} |"
            )
        lines += [
            "",
            "- Accuracy is on as many rounds with the property as without, so 0.5 is a coin. The paper does not say"
            " what its accuracy is.",
            "- `absolute` features are as cited. Of a vector of signs they are constant: 0.5 follows by construction.",
            *(f"- {remark}" for remark in p.remarks),
        ]
        return "\n".join([*lines, ""])
