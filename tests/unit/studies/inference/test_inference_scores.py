"""Scores of guesses against numbers that are known, or computed another way."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import balanced_accuracy_score, roc_auc_score

from laconic_studies.inference.scores import auc, coin_p_value, proportion, scored


def test_figures_are_those_of_scikit_learn() -> None:
    rng = np.random.default_rng(0)
    truth = (rng.random(300) < 0.2).astype(np.int64)
    sure = np.round(rng.normal(size=300) + truth, 1)  # with ties
    found = scored(sure, (sure > 0.5).astype(np.int64), truth, rng)
    assert found.auc.value == pytest.approx(roc_auc_score(truth, sure))
    assert found.balanced_accuracy.value == pytest.approx(balanced_accuracy_score(truth, sure > 0.5))
    assert found.positives + found.negatives == 300
    for figure in (found.accuracy, found.balanced_accuracy, found.auc):
        assert figure.low < figure.value < figure.high


def test_accuracy_is_on_as_many_of_each_kind() -> None:
    """Whoever always says no is right 9 times in 10, but not on a balanced set."""
    truth = np.array([1] * 10 + [0] * 90)
    found = scored(np.zeros(100), np.zeros(100, dtype=np.int64), truth, np.random.default_rng(0))
    assert found.accuracy.value == 0.5 and found.balanced_accuracy.value == 0.5
    assert found.auc == (0.5, 0.5, 0.5)


def test_intervals_cover_as_often_as_they_say() -> None:
    """95 % intervals of 200 experiments: fewer than 176 cover with a probability below 10⁻⁴ (binomial)."""
    rng = np.random.default_rng(1)
    covered = {"accuracy": 0, "auc": 0}
    for _ in range(200):
        yes, no = rng.normal(size=60) + 1, rng.normal(size=60)
        found = auc(yes, no)
        covered["auc"] += found.low <= 0.7602 <= found.high  # Φ(1/√2)
        hits = int(rng.binomial(120, 0.7))
        covered["accuracy"] += proportion(hits, 120).low <= 0.7 <= proportion(hits, 120).high
    assert min(covered.values()) >= 176


def test_ends_of_the_range() -> None:
    assert proportion(0, 20).low == 0 and proportion(20, 20).high == 1
    assert coin_p_value(10, 20) == 1.0
    assert coin_p_value(20, 20) == pytest.approx(2 / 2**20)


def test_rows_have_one_column_for_every_number() -> None:
    found = scored(np.arange(4.0), np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1]), np.random.default_rng(0))
    row = found.flat()
    assert row["accuracy"] == 0.5 and row["accuracy_low"] < row["accuracy_high"]
    assert row["auc"] == 0.75 and row["positives"] == 2
    assert list(row)[-1] == "p_value"
