"""Figures by class, compared with scikit-learn's."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.calibration import calibration_curve
from sklearn.metrics import confusion_matrix, roc_auc_score

from laconic.runner.evaluation import classified_figures


def records(classes: int, count: int = 2000) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    targets = rng.integers(0, classes, count)
    return rng.normal(size=(count, classes)) + 1.5 * np.eye(classes)[targets], targets


def test_the_confusion_matrix_is_that_of_scikit_learn() -> None:
    outputs, targets = records(5)
    found = classified_figures(outputs, targets, names=("a", "b"))
    assert found is not None
    assert found["confusion"] == confusion_matrix(targets, outputs.argmax(1)).tolist()
    assert found["classes"] == ["a", "b", "2", "3", "4"] and "roc" not in found


@pytest.mark.parametrize("single", [False, True], ids=["two outputs", "one output"])
def test_the_roc_curve_has_the_area_of_scikit_learn(single: bool) -> None:
    outputs, targets = records(2)
    scores = outputs[:, 1] - outputs[:, 0]
    found = classified_figures(scores if single else outputs, targets)
    assert found is not None
    x, y = (np.array(found["roc"][f"{name}_positive_rate"]) for name in ("false", "true"))
    assert len(x) <= 101 and (x[0], y[0], x[-1], y[-1]) == (0, 0, 1, 1)
    assert np.trapezoid(y, x) == pytest.approx(roc_auc_score(targets, scores), abs=0.003)


def test_records_of_one_score_are_one_step_of_the_curve() -> None:
    found = classified_figures(np.zeros(10), np.arange(10) % 2)
    assert found is not None
    assert found["roc"] == {"false_positive_rate": [0.0, 1.0], "true_positive_rate": [0.0, 1.0]}


def test_calibration_is_that_of_scikit_learn() -> None:
    outputs, targets = records(2)
    found = classified_figures(outputs, targets)
    assert found is not None
    probabilities = 1 / (1 + np.exp(outputs[:, 0] - outputs[:, 1]))
    true, stated = calibration_curve(targets, probabilities, n_bins=10, strategy="quantile")
    assert [row["true"] for row in found["calibration"]["bins"]] == pytest.approx(true.tolist(), abs=1e-4)
    assert [row["stated"] for row in found["calibration"]["bins"]] == pytest.approx(stated.tolist(), abs=1e-4)


def test_outputs_that_are_no_logits_have_no_calibration() -> None:
    found = classified_figures(*records(3), shifts=None)
    assert found is not None and "calibration" not in found


def test_what_has_no_classes_has_no_figures() -> None:
    outputs, targets = records(3)
    assert classified_figures(outputs, targets.astype(float)) is None
    assert classified_figures(outputs * np.nan, targets) is None
    assert classified_figures(outputs[:0], targets[:0]) is None
    assert classified_figures(outputs, targets + 3) is None


def test_a_matrix_of_very_many_classes_is_not_kept() -> None:
    found = classified_figures(*records(101))
    assert found is not None and "confusion" not in found and "calibration" in found
