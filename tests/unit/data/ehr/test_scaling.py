"""Numbers are scaled by bounds, percentiles or mean and deviation; gaps are filled in after fitting."""

from __future__ import annotations

import numpy as np
import pytest

from laconic.data.ehr.features import fit_preprocessing, fitted_number, revealed_numbers, scaled
from laconic.data.ehr.schema import Numeric, Schema
from laconic.data.ehr.table import EhrTable, Levels
from laconic.errors import ConfigError, DataError

VALUES = np.array([*range(100), 10_000], dtype=np.float32)


def test_min_max_is_squeezed_by_one_extreme_value_and_clipped_is_not() -> None:
    plain, clipped = (fitted_number(Numeric(column="x", scale=s), VALUES, "t") for s in ("min-max", "clipped"))
    assert scaled(plain, VALUES)[50] == pytest.approx(0.005)
    assert scaled(clipped, VALUES)[50] == pytest.approx(0.5, abs=0.01)
    assert scaled(clipped, VALUES).max() == 1 and scaled(clipped, VALUES).min() == 0


def test_standard_has_mean_0_and_deviation_1_and_is_cut_at_5() -> None:
    values = np.random.default_rng(0).normal(7, 3, 1000).astype(np.float32)
    found = fitted_number(Numeric(column="x", scale="standard"), values, "t")
    assert scaled(found, values).mean() == pytest.approx(0, abs=1e-5)
    assert scaled(found, values).std() == pytest.approx(1, abs=1e-3)
    assert scaled(found, np.array([1e9, -1e9], dtype=np.float32)).tolist() == [5, -5]


@pytest.mark.parametrize(("fill", "number"), [("median", 2.0), ("mean", 11 / 3)])
def test_gaps_get_the_median_or_mean_of_the_training_records(fill: str, number: float) -> None:
    values = np.array([1, np.nan, 2, 8], dtype=np.float32)
    found = fitted_number(Numeric(column="x", fill=fill), values, "t")
    assert found.fixed and found.fill == pytest.approx(number)
    assert scaled(found, values)[1] == pytest.approx((number - 1) / 7)


def test_what_is_fitted_is_said_and_what_is_given_is_not() -> None:
    entries = (
        Numeric(column="a", min=0, max=1),
        Numeric(column="b", scale="standard"),
        Numeric(column="c", scale="clipped", min=0, max=9, fill="mean"),
    )
    assert revealed_numbers(entries) == [
        "mean and standard deviation of 'b'",
        "the mean of 'c', which stands for missing values",
    ]


def test_a_nearly_constant_column_reveals_its_bounds_and_the_statement_says_so() -> None:
    """Both percentiles are 3, so the feature is made from the smallest and largest value: two persons' own."""
    values = np.array([1.0, *[3.0] * 300, 8.0, np.nan], dtype=np.float32)
    table = EhrTable(
        name="t",
        patients=Levels(np.arange(len(values)), [str(n) for n in range(len(values))]),
        numeric={"x": values, "y": np.arange(len(values), dtype=np.float32)},
        categorical={},
        codes={},
    )
    entries = tuple(Numeric(column=name, scale="clipped", fill=0.0) for name in ("x", "y"))
    fitted = fit_preprocessing(Schema(label="z", positive=("1",), numeric=entries), table, np.arange(len(values)))
    assert (fitted.schema.numeric[0].min, fitted.schema.numeric[0].max) == (1.0, 8.0)
    (said,) = fitted.revealed
    assert "the smallest and largest value of 'x'" in said and "the 1st and 99th percentile of 'y'" in said


def test_a_fitted_entry_is_written_and_read_back() -> None:
    entry = fitted_number(Numeric(column="x", scale="standard", fill="median"), VALUES, "t")
    schema = Schema(label="y", positive=("1",), numeric=(entry,))
    import tomllib

    assert Schema.from_dict(tomllib.loads(schema.to_toml())) == schema and schema.fixed


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"scale": "log"}, "unknown scale"),
        ({"fill": "zero"}, "fill must be a number, or one of median, mean"),
        ({"scale": "standard", "min": 0.0}, "min means nothing with scale"),
        ({"std": 1.0}, "std means nothing with scale"),
        ({"scale": "standard", "std": 0.0}, "must be above 0"),
    ],
)
def test_keys_that_mean_nothing_are_refused(options: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        Numeric(column="x", **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("scale", ["min-max", "clipped", "standard"])
def test_a_column_with_one_value_or_none_is_refused(scale: str) -> None:
    with pytest.raises(DataError, match="one value only"):
        fitted_number(Numeric(column="x", scale=scale), np.ones(3, dtype=np.float32), "t")
    with pytest.raises(DataError, match="no value in the training records"):
        fitted_number(Numeric(column="x", scale=scale, fill="median"), np.full(3, np.nan), "t")
