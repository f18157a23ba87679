"""What the columns of a table look like: texts or numbers, levels, missing cells, and how well one tells the label.

For the owner of the table, before there is a schema. Nothing here is private.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from laconic.data.ehr.blocks import Block, column_names, read_table
from laconic.data.ehr.table import GAPS, Vocabulary, distinct
from laconic.data.files.user_file import Decimals, refused
from laconic.errors import DataError

GAPS_AMONG_NUMBERS = GAPS | {"none", "-", "--", ".", "unknown", "not mapped"}
_DATE = re.compile(r"\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{1,2}[-/.]\d{1,2}[-/.]\d{2,4}|\d{1,2}:\d{2}(:\d{2})?")
_FOLDS = 2


@dataclass(frozen=True)
class Look:
    """One column: its distinct texts, and which of them each row has."""

    name: str
    texts: tuple[str, ...]
    which: np.ndarray
    lists: bool = False
    """Whether its cells hold lists, which have no single text."""
    separator: str = ","
    """What stands between the cells of its file."""

    @cached_property
    def counts(self) -> np.ndarray:
        return np.bincount(self.which, minlength=len(self.texts))

    @cached_property
    def _numbers(self) -> np.ndarray:
        """The number of every text; NaN where it is none."""
        return np.array([_number(text) for text in self._with_points[0]], dtype=np.float64)

    @cached_property
    def _with_points(self) -> tuple[Sequence[str], str]:
        return Decimals(self.separator).with_points(self.name, self.texts)

    def _inside(self, text: str) -> float | None:
        """The only number in a text such as '> 89', '90+' or, where decimals have a comma, '< 0,5'."""
        commas = list(self._with_points[0]) != list(self.texts)
        return _inside(text.replace(",", ".") if commas else text)

    @property
    def wrong_commas(self) -> str:
        """Why its numbers with a comma cannot be read; empty where they can, or where there are none."""
        return self._with_points[1]

    @cached_property
    def numeric(self) -> bool:
        """Whether what is there is numbers, up to a few texts that hold one, such as '> 89'."""
        known = np.isfinite(self._numbers)
        odd = [text for text, ok in zip(self.texts, known, strict=True) if not ok and not self._gap(text, True)]
        few = len(odd) <= min(5, int(known.sum()) // 5)
        return bool(known.any()) and few and all(self._inside(text) is not None for text in odd)

    @cached_property
    def gaps(self) -> tuple[str, ...]:
        """The texts that stand for no value, as they are written."""
        return tuple(text for text in self.texts if self._gap(text, self.numeric))

    @cached_property
    def missing(self) -> np.ndarray:
        """Which rows have no value."""
        gone = np.array([text in self.gaps for text in self.texts], dtype=bool)
        rows: np.ndarray = gone[self.which]
        return rows

    @cached_property
    def levels(self) -> tuple[str, ...]:
        """The texts that are values, the most frequent first."""
        order = np.argsort(-self.counts, kind="stable")
        return tuple(self.texts[place] for place in order if self.texts[place] not in self.gaps)

    @cached_property
    def replaced(self) -> dict[str, float]:
        """Texts among numbers, and the number that each holds."""
        if not self.numeric:
            return {}
        odd = [text for text, number in zip(self.texts, self._numbers, strict=True) if not np.isfinite(number)]
        return {text: number for text in odd if text not in self.gaps and (number := self._inside(text)) is not None}

    @cached_property
    def values(self) -> np.ndarray:
        """The number in every row; NaN where there is none."""
        known = [self.replaced.get(text, number) for text, number in zip(self.texts, self._numbers, strict=True)]
        rows: np.ndarray = np.array(known, dtype=np.float64)[self.which]
        return rows

    @property
    def whole(self) -> bool:
        there = self.values[~np.isnan(self.values)]
        return bool((there == np.round(there)).all())

    @property
    def unique(self) -> bool:
        """Whether every row that has a value has one of its own."""
        return len(self.levels) == int((~self.missing).sum()) > 1

    @property
    def dates(self) -> bool:
        return bool(self.levels) and all(_DATE.match(text.strip()) for text in self.levels[:50])

    @property
    def words(self) -> float:
        """How many words a value has on average."""
        return float(np.mean([len(text.split()) for text in self.levels[:1000]])) if self.levels else 0.0

    def delimiter(self) -> str | None:
        """What stands between several codes in a cell, if most cells hold several."""
        for mark in (";", "|"):
            if sum(mark in text for text in self.levels) > len(self.levels) / 3:
                return mark
        return None

    def auroc(self, labels: np.ndarray) -> float | None:
        """How well this column alone tells the label: at best 1, at worst 0.5. None where it says nothing."""
        if self.lists or len(self.levels) + bool(self.missing.any()) < 2:
            return None
        if self.numeric and len(self.levels) > 2:
            ranks = np.where(self.missing, np.nan, self.values)
            found = [_area(ranks[~self.missing], labels[~self.missing]), _area(self.missing, labels)]
        else:
            found = [_area(_rates(self.which, len(self.texts), labels), labels)]
        areas = [max(area, 1 - area) for area in found if area is not None]
        return max(areas, default=None)

    def _gap(self, text: str, among_numbers: bool) -> bool:
        return text.strip().lower() in (GAPS_AMONG_NUMBERS if among_numbers else GAPS)


def look_at(path: Path, separator: str) -> list[Look]:
    """All columns of a table, in its order."""
    names = [name for name in column_names(path, separator) if name]  # row numbers of a data frame have none
    texts = {name: Vocabulary() for name in names}
    which: dict[str, list[np.ndarray]] = {name: [] for name in names}
    lists: set[str] = set()
    for block in read_table(path, names, separator):
        for name in names:
            found, rows = _cells(block, name, lists)
            numbers = np.array([texts[name].number(text) for text in found], dtype=np.int32)
            which[name].append(numbers[rows])
    read = [name for name in names if which[name]]
    looks = [
        Look(name, tuple(texts[name].texts), np.concatenate(which[name]), name in lists, separator) for name in read
    ]
    if not looks or len(looks[0].which) == 0:
        raise refused(path, "no rows below the header")
    return looks


def _cells(block: Block, name: str, lists: set[str]) -> tuple[list[str], np.ndarray]:
    """(distinct texts, which of them each row has), also of fractions, which are no levels."""
    import pyarrow as pa
    import pyarrow.compute as pc

    cells = block.columns[name]
    if pa.types.is_nested(cells.type):
        lists.add(name)
        return [""], np.zeros(len(block.numbers), dtype=np.int64)
    try:
        return distinct(block, name)
    except DataError:
        encoded = pc.fill_null(cells.cast(pa.string()), "").dictionary_encode()
        return encoded.dictionary.to_pylist(), np.asarray(encoded.indices, dtype=np.int64)


def _number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        return np.nan
    return value if np.isfinite(value) else np.nan


def _inside(text: str) -> float | None:
    found = re.findall(r"\d+(?:\.\d+)?", text)
    return float(found[0]) if len(found) == 1 and len(text) <= 12 else None


def _rates(which: np.ndarray, count: int, labels: np.ndarray) -> np.ndarray:
    """The rate of the label among the *other half* of the rows with the same text: a level seen once tells nothing."""
    rates = np.empty(len(which))
    fold = np.random.default_rng(0).permutation(len(which)) % _FOLDS
    for part in range(_FOLDS):
        here, others = fold == part, fold != part
        total = np.bincount(which[others], minlength=count)
        ill = np.bincount(which[others], weights=labels[others], minlength=count)
        rates[here] = ((ill + labels[others].mean()) / (total + 1))[which[here]]
    return rates


def _area(scores: np.ndarray, labels: np.ndarray) -> float | None:
    """The area under the ROC curve; None where there is nothing to tell apart."""
    if len(np.unique(labels)) != 2 or len(np.unique(scores)) < 2:
        return None
    from sklearn.metrics import roc_auc_score

    return float(roc_auc_score(labels, scores))
