"""The made admissions look like the papers' database, and are the same for the same seed."""

from __future__ import annotations

import numpy as np
import pytest

from laconic.data.ehr.features import fit_preprocessing
from laconic.data.ehr.synthetic import (
    DEATHS,
    NUM_CODES,
    NUM_HOSPITALS,
    _hospital_sizes,
    _rng,
    make_admissions,
    synthetic_schema,
)
from laconic.errors import ConfigError


@pytest.fixture(scope="module")
def table() -> object:
    return make_admissions(40_000, seed=3)


def test_the_marginals_are_those_of_the_papers(table) -> None:  # type: ignore[no-untyped-def]
    assert len(table) == 40_000
    assert table.labels.mean() == pytest.approx(DEATHS, abs=0.004)  # 4.5 standard deviations
    assert table.numeric["age"].min() == 15 and table.numeric["age"].max() == 89
    assert table.numeric["mrci"].min() == 2 and 45 < table.numeric["mrci"].max() <= 60
    assert set(np.unique(table.categorical["gender"].numbers)) == {0, 1, 2}
    assert set(np.unique(table.categorical["admission_type"].numbers)) == {0, 1, 2, 3}
    codes = table.codes["code"]
    assert len(codes.texts) == NUM_CODES == 24_419
    assert 25 < len(codes.numbers) / len(table) < 32
    counts = np.sort(np.bincount(codes.numbers, minlength=NUM_CODES))[::-1]
    assert counts[0] > 20 * counts[500] > 20 * 20 * counts[10_000]  # a long tail


def test_hospitals_have_the_published_spread_of_sizes() -> None:
    sizes = np.concatenate([_hospital_sizes(1_271_733, _rng(seed, 1)) for seed in range(20)])
    assert len(sizes) == 20 * NUM_HOSPITALS and sizes.sum() == 20 * 1_271_733
    large = sizes[sizes >= 1000]
    assert len(large) / 20 == pytest.approx(314, abs=12)
    # CHIL Table 4 counts the training part, 80 %: mean 3,114.42, deviation 1,913.39, from 804 to 12,447.
    assert 0.8 * large.mean() == pytest.approx(3114, rel=0.05)
    assert 0.8 * large.std() == pytest.approx(1913, rel=0.15)


def test_patients_stay_in_one_hospital_and_die_once(table) -> None:  # type: ignore[no-untyped-def]
    patients, clients = table.patients.numbers, table.clients.numbers
    first = np.concatenate([[True], np.diff(patients) > 0])
    assert 0.08 < 1 - first.mean() < 0.16
    assert len({*zip(patients.tolist(), clients.tolist(), strict=True)}) == int(patients[-1]) + 1
    assert not table.labels[:-1][~first[1:]].any()  # whoever comes again was alive


def test_the_seed_decides(table) -> None:  # type: ignore[no-untyped-def]
    again, other = make_admissions(40_000, seed=3), make_admissions(40_000, seed=4)
    assert np.array_equal(again.labels, table.labels)
    assert np.array_equal(again.codes["code"].numbers, table.codes["code"].numbers)
    assert not np.array_equal(other.labels, table.labels)


def test_the_outcome_can_be_predicted_and_hospitals_differ(table) -> None:  # type: ignore[no-untyped-def]
    """A ridge regression on the features sees part of the risk; hospitals have their own mortality and formulary."""
    from sklearn.linear_model import SGDClassifier
    from sklearn.metrics import roc_auc_score

    rows = np.arange(len(table))
    inputs = fit_preprocessing(synthetic_schema(), table, rows).transform(table)
    matrix = inputs.to_scipy()
    train = rows % 4 > 0
    model = SGDClassifier(loss="log_loss", alpha=3e-4, class_weight="balanced", random_state=0, max_iter=20, tol=None)
    model.fit(matrix[train], table.labels[train])
    assert 0.68 < roc_auc_score(table.labels[~train], model.decision_function(matrix[~train])) < 0.80
    codes, whose = table.codes["code"], np.repeat(table.clients.numbers, np.diff(table.codes["code"].starts))
    largest = np.argsort(np.bincount(table.clients.numbers))[-2:]
    top = [set(np.argsort(np.bincount(codes.numbers[whose == h], minlength=NUM_CODES))[-200:]) for h in largest]
    assert len(top[0] & top[1]) < 170


def test_too_few_are_refused() -> None:
    with pytest.raises(ConfigError, match="--num-records 100: 415 hospitals need 4150 or more"):
        make_admissions(100)
