"""Preprocessing: fitted to the training records, applied to all, saved with the run.

How a number becomes a feature is its scale:

min-max   (x − min) / (max − min), cut to [0, 1]; min and max are the smallest and largest training value
clipped   the same with the 1st and 99th percentile, so that a few extreme values do not squeeze all others together
standard  (x − mean) / std, cut to [−5, 5]

What a schema does not fix is fitted to the training records. Every such figure says something about them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from laconic.data.ehr.schema import UNKNOWN, Categorical, Codes, Numeric, Schema
from laconic.data.ehr.table import CodeLists, EhrTable, Levels
from laconic.data.inputs import SparseRows
from laconic.errors import DataError

PERCENTILES = (1.0, 99.0)
CUT = 5.0


def fitted_number(entry: Numeric, values: np.ndarray, table: str) -> Numeric:
    """The entry with everything fixed by the training values, of which NaN are missing."""
    there = values[~np.isnan(values)]
    if len(there) == 0:
        raise DataError(f"{table}: column '{entry.column}' has no value in the training records; leave it out")
    if isinstance(entry.fill, str):
        filled = np.median(there) if entry.fill == "median" else there.mean(dtype=np.float64)
        entry = dataclasses.replace(entry, fill=float(filled))
    if entry.scale == "standard":
        mean = float(there.mean(dtype=np.float64)) if entry.mean is None else entry.mean
        std = float(there.std(dtype=np.float64)) if entry.std is None else entry.std
        if not std > 0:
            raise _one_value(entry, table)
        return dataclasses.replace(entry, mean=mean, std=std)
    low, high = there.min(), there.max()
    if entry.scale == "clipped" and not nearly_constant(there):
        low, high = np.percentile(there, PERCENTILES)
    low = float(low) if entry.min is None else entry.min
    high = float(high) if entry.max is None else entry.max
    if not low < high:
        raise _one_value(entry, table)
    return dataclasses.replace(entry, min=low, max=high)


def nearly_constant(values: np.ndarray) -> bool:
    """Whether the percentiles of these values (NaN are missing) are the same. The bounds are then all there is."""
    low, high = np.nanpercentile(values, PERCENTILES)
    return not bool(low < high)


def scaled(entry: Numeric, values: np.ndarray) -> np.ndarray:
    """The feature of every row, by an entry that has everything fixed."""
    values = _filled(entry, values)
    if entry.scale == "standard":
        assert entry.mean is not None and entry.std is not None
        standard: np.ndarray = np.clip((values - np.float32(entry.mean)) / np.float32(entry.std), -CUT, CUT)
        return np.nan_to_num(standard, nan=0.0) if entry.gaps else standard
    low, high = float(entry.min or 0), float(entry.max or 0)
    bounded: np.ndarray = np.clip((values - low) / (high - low), 0, 1)
    return np.nan_to_num(bounded, nan=0.5) if entry.gaps else bounded


def _filled(entry: Numeric, values: np.ndarray) -> np.ndarray:
    """With the number in the place of missing values that the entry names."""
    if isinstance(entry.fill, float):
        return np.where(np.isnan(values), np.float32(entry.fill), values)
    return values


def revealed_numbers(entries: Sequence[Numeric], constant: Collection[str] = ()) -> list[str]:
    """What fitting these entries tells about the training records; `constant` are the nearly constant columns."""
    said = []
    for scale, what in (
        ("min-max", "the smallest and largest value of"),
        ("clipped", "the 1st and 99th percentile of"),
        ("standard", "mean and standard deviation of"),
    ):
        fitted = [entry for entry in entries if not entry.scaling_fixed]
        names = [entry.column for entry in fitted if _fitted_by(entry, constant) == scale]
        if names:
            said.append(f"{what} {_named(names)}")
    for fill in ("median", "mean"):
        names = [entry.column for entry in entries if entry.fill == fill]
        if names:
            said.append(f"the {fill} of {_named(names)}, which stands for missing values")
    return said


def _fitted_by(entry: Numeric, constant: Collection[str]) -> str:
    return "min-max" if entry.scale == "clipped" and entry.column in constant else entry.scale


def _named(names: Sequence[str]) -> str:
    return ", ".join(f"'{name}'" for name in names)


def _one_value(entry: Numeric, table: str) -> DataError:
    return DataError(f"{table}: column '{entry.column}' has one value only in the training records; leave it out")


@dataclass(frozen=True)
class Preprocessing:
    """From an encoded table to features: scaled numbers, then levels with Unknown, then codes.

    `schema` has everything fixed; `revealed` says what of it was read off the training records.
    """

    schema: Schema
    revealed: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.schema.fixed:
            open_ones = [name for entry in self.schema.features if not entry.fixed for name in entry.columns]
            raise DataError(f"the preprocessing does not say how to prepare {', '.join(open_ones)}: fit it first")

    @property
    def feature_names(self) -> list[str]:
        names = [entry.column for entry in self.schema.numeric]
        names += [f"{entry.column} missing" for entry in self.schema.numeric if entry.gaps]
        for level in self.schema.categorical:
            names += [f"{level.column}={text}" for text in (*_levels(level), UNKNOWN)]
        for codes in self.schema.codes:
            names += [f"{codes.name}:{text}" for text in codes.vocabulary or ()]
        return names

    @property
    def num_features(self) -> int:
        levels = sum(len(_levels(entry)) + 1 for entry in self.schema.categorical)
        numbers = len(self.schema.numeric) + sum(entry.gaps for entry in self.schema.numeric)
        return numbers + levels + sum(len(entry.vocabulary or ()) for entry in self.schema.codes)

    @property
    def facts(self) -> tuple[int, int]:
        """(how many features are quantities, the first ones; how many ones a record has in the others, about)."""
        schema = self.schema
        codes = sum(len(entry.columns) for entry in schema.codes)
        return len(schema.numeric), sum(entry.gaps for entry in schema.numeric) + len(schema.categorical) + codes

    def transform(self, table: EhrTable) -> SparseRows:
        """The features of every row."""
        leading = _Leading(len(table))
        for number in self.schema.numeric:
            values = scaled(number, table.numeric[number.column])
            leading.add(np.full(len(table), leading.width, dtype=np.int32), values, width=1)
        for number in self.schema.numeric:
            if number.gaps:
                gaps = np.isnan(table.numeric[number.column]).astype(np.float32)
                leading.add(np.full(len(table), leading.width, dtype=np.int32), gaps, width=1)
        for level in self.schema.categorical:
            texts = _levels(level)
            found = _renumbered(table.categorical[level.column], texts)
            known = np.where(found < 0, len(texts), found).astype(np.int32)
            leading.add(known + np.int32(leading.width), None, width=len(texts) + 1)
        width, lists = leading.width, []
        for codes in self.schema.codes:
            lists.append(_selected(table.codes[codes.name], codes.vocabulary or (), width))
            width += len(codes.vocabulary or ())
        return _assembled(leading, lists, width)


def fit_preprocessing(schema: Schema, table: EhrTable, rows: np.ndarray) -> Preprocessing:
    """Fix what the schema leaves open by the records in `rows`, and say what that reveals."""
    numeric = tuple(fitted_number(entry, table.numeric[entry.column][rows], table.name) for entry in schema.numeric)
    categorical = tuple(_fitted_levels(entry, table.categorical[entry.column], rows) for entry in schema.categorical)
    codes = tuple(_fitted_codes(entry, table.codes[entry.name], rows, table.name) for entry in schema.codes)
    fitted = dataclasses.replace(schema, numeric=numeric, categorical=categorical, codes=codes)
    clipped = [entry.column for entry in schema.numeric if entry.scale == "clipped" and not entry.scaling_fixed]
    constant = {column for column in clipped if nearly_constant(table.numeric[column][rows])}
    return Preprocessing(fitted, tuple(_revealed(schema, fitted, constant)))


def _revealed(schema: Schema, fitted: Schema, constant: Collection[str]) -> list[str]:
    """What the fitted preprocessing tells about the clients' records, in sentences for the privacy statement."""
    said = revealed_numbers(schema.numeric, constant)
    levels = [entry.column for entry in schema.categorical if not entry.fixed]
    if levels:
        said.append(f"the levels of {_listed(levels)}")
    for before, after in zip(schema.codes, fitted.codes, strict=True):
        if not before.fixed:
            count = len(after.vocabulary or ())
            said.append(f"the {count} codes of '{before.name}' (those in at least {before.min_count} records)")
    drafted = [
        f"the schema was drafted from the clients' own table, which is not in the ε: {'; '.join(schema.drafted)}. Names"
        " of columns and texts of cells stand in it; take what is public knowledge out of the list 'drafted'"
    ]
    if not said:
        return drafted if schema.drafted else []
    return [
        *(drafted if schema.drafted else []),
        f"preprocessing was fitted to the clients' records and is not in the ε: it reveals {'; '.join(said)};"
        " a schema that fixes them (a saved preprocessing.toml of public data, say) reveals nothing",
    ]


def _listed(names: Sequence[str]) -> str:
    return ", ".join(f"'{name}'" for name in names)


def _fitted_levels(entry: Categorical, column: Levels, rows: np.ndarray) -> Categorical:
    if entry.fixed:
        return entry
    seen = np.unique(column.numbers[rows])
    texts = sorted(column.texts[number] for number in seen if number >= 0)
    return dataclasses.replace(entry, levels=tuple(text for text in texts if text != UNKNOWN))


def _fitted_codes(entry: Codes, lists: CodeLists, rows: np.ndarray, table: str) -> Codes:
    if entry.fixed:
        return entry
    of_row = np.zeros(len(lists.starts) - 1, dtype=bool)
    of_row[rows] = True
    chosen = np.repeat(of_row, np.diff(lists.starts))
    counts = np.bincount(lists.numbers[chosen], minlength=len(lists.texts))
    vocabulary = tuple(sorted(lists.texts[number] for number in np.flatnonzero(counts >= entry.min_count)))
    if not vocabulary:
        raise DataError(
            f"{table}: no code of '{entry.name}' is in {entry.min_count} or more training records: lower min_count"
            " (⟨min-count⟩)"
        )
    return dataclasses.replace(entry, vocabulary=vocabulary)


def _levels(entry: Categorical) -> tuple[str, ...]:
    return tuple(text for text in entry.levels or () if text != UNKNOWN)


def _renumbered(column: Levels, texts: Sequence[str]) -> np.ndarray:
    """The column as numbers in `texts`, −1 for what is not there."""
    places = {text: place for place, text in enumerate(texts)}
    to_place = np.array([*(places.get(text, -1) for text in column.texts), -1])
    found: np.ndarray = to_place[column.numbers]
    return found


def _selected(lists: CodeLists, vocabulary: Sequence[str], first: int) -> tuple[np.ndarray, np.ndarray]:
    """(codes per row, their columns): only those of the vocabulary, whose columns begin at `first`."""
    places = {text: place for place, text in enumerate(vocabulary)}
    to_column = np.array([places.get(text, -1) for text in lists.texts], dtype=np.int32)
    columns = to_column[lists.numbers] if len(to_column) else np.empty(0, np.int32)
    keep = columns >= 0
    before = np.concatenate([[0], np.cumsum(keep)])
    counts = np.diff(before[lists.starts])
    return counts, columns[keep] + np.int32(first)


class _Leading:
    """The features of which every row has exactly one entry each: numbers and levels."""

    def __init__(self, count: int) -> None:
        self.count, self.width = count, 0
        self.columns: list[np.ndarray] = []
        self.values: list[np.ndarray | None] = []

    def add(self, columns: np.ndarray, values: np.ndarray | None, *, width: int) -> None:
        self.columns.append(columns)
        self.values.append(values)
        self.width += width


def _assembled(leading: _Leading, lists: list[tuple[np.ndarray, np.ndarray]], width: int) -> SparseRows:
    """Row by row: the leading entries, then each list's codes."""
    per_row = np.full(leading.count, len(leading.columns), dtype=np.int64)
    for counts, _ in lists:
        per_row += counts
    starts = np.concatenate([[0], np.cumsum(per_row)])
    indices = np.empty(int(starts[-1]), dtype=np.int32)
    values = np.ones(len(indices), dtype=np.float32) if any(v is not None for v in leading.values) else None
    place = starts[:-1].copy()
    for columns, numbers in zip(leading.columns, leading.values, strict=True):
        indices[place] = columns
        if numbers is not None and values is not None:
            values[place] = numbers
        place += 1
    for counts, columns in lists:
        shift = np.repeat(place - (np.cumsum(counts) - counts), counts)
        indices[np.arange(len(columns)) + shift] = columns
        place += counts
    return SparseRows(
        torch.from_numpy(starts), torch.from_numpy(indices), width, None if values is None else torch.from_numpy(values)
    )
