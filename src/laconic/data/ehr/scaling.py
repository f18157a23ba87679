"""How a number becomes a feature: by its bounds, by percentiles, or by mean and standard deviation.

min-max   (x − min) / (max − min), cut to [0, 1]; min and max are the smallest and largest training value
clipped   the same with the 1st and 99th percentile, so that a few extreme values do not squeeze all others together
standard  (x − mean) / std, cut to [−5, 5]

What a schema does not fix is fitted to the training records. Every such figure says something about them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Sequence

import numpy as np

from laconic.data.ehr.schema import Numeric
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
    if isinstance(entry.fill, float):
        values = np.where(np.isnan(values), np.float32(entry.fill), values)
    if entry.scale == "standard":
        assert entry.mean is not None and entry.std is not None
        standard: np.ndarray = np.clip((values - np.float32(entry.mean)) / np.float32(entry.std), -CUT, CUT)
        return standard
    low, high = float(entry.min or 0), float(entry.max or 0)
    bounded: np.ndarray = np.clip((values - low) / (high - low), 0, 1)
    return bounded


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
            said.append(f"{what} {_listed(names)}")
    for fill in ("median", "mean"):
        names = [entry.column for entry in entries if entry.fill == fill]
        if names:
            said.append(f"the {fill} of {_listed(names)}, which stands for missing values")
    return said


def _fitted_by(entry: Numeric, constant: Collection[str]) -> str:
    return "min-max" if entry.scale == "clipped" and entry.column in constant else entry.scale


def _listed(names: Sequence[str]) -> str:
    return ", ".join(f"'{name}'" for name in names)


def _one_value(entry: Numeric, table: str) -> DataError:
    return DataError(f"{table}: column '{entry.column}' has one value only in the training records; leave it out")
