"""Intervals and calibration against their definitions, scikit-learn and scipy."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.stats import binomtest, norm
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import brier_score_loss, roc_auc_score

from laconic.confidence import (
    LEVEL,
    Z,
    auroc_interval,
    balanced_accuracy_interval,
    brier,
    by_luck,
    calibration_intercept,
    calibration_slope,
    delong,
    mae_interval,
    proportion,
    r2_interval,
    rmse_interval,
    wilson,
)
from laconic.metrics import METRICS


def drawn(count: int = 300, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """(log odds, outcomes), with many ties and with log odds that are twice too large."""
    rng = np.random.default_rng(seed)
    true = np.round(rng.normal(-1, 1.2, count), 1)
    return 2 * true, (rng.random(count) < 1 / (1 + np.exp(-true))).astype(int)


def test_the_quantile_is_that_of_the_level() -> None:
    assert pytest.approx(norm.ppf((1 + LEVEL) / 2)) == Z


@pytest.mark.parametrize(("hits", "count"), [(0, 10), (8, 10), (10, 10), (3, 1000), (81, 263)])
def test_wilson_is_where_the_score_test_just_refuses(hits: int, count: int) -> None:
    share = hits / count
    for end in wilson(share, count):
        assert abs(share - end) == pytest.approx(Z * (end * (1 - end) / count) ** 0.5, abs=1e-7)
    expected = binomtest(hits, count).proportion_ci(LEVEL, "wilson")
    assert wilson(share, count) == pytest.approx((expected.low, expected.high))


def test_the_variance_of_the_auroc_is_delongs_by_its_definition_with_ties() -> None:
    scores, targets = drawn()
    positive, negative = scores[targets == 1], scores[targets == 0]
    pairs = (positive[:, None] > negative) + 0.5 * (positive[:, None] == negative)
    assert (positive[:, None] == negative).any()
    variance = pairs.mean(1).var(ddof=1) / len(positive) + pairs.mean(0).var(ddof=1) / len(negative)
    area, found = delong(scores, targets)
    assert (area, found) == pytest.approx((roc_auc_score(targets, scores), variance), rel=1e-12)
    low, high = auroc_interval(scores, targets)
    assert 0 < low < area < high < 1
    assert high - low == pytest.approx(2 * Z * variance**0.5, rel=0.05)
    # Against scores that only have two values, every pair of unlike labels with one score is a tie.
    ties = (scores > 0).astype(float)
    assert delong(ties, targets)[0] == pytest.approx(roc_auc_score(targets, ties))


def test_classes_that_are_apart_leave_an_interval_that_is_not_a_point() -> None:
    targets = np.array([0] * 50 + [1] * 5)
    low, high = auroc_interval(np.arange(55.0), targets)
    assert (low, high) == pytest.approx(wilson(1.0, 5))
    low, high = auroc_interval(np.arange(55.0), np.array([0] * 54 + [1]))
    assert low < 0.3  # one positive record tells next to nothing


def test_a_single_column_of_figures_agrees_with_its_interval() -> None:
    rng = np.random.default_rng(3)
    targets = rng.normal(5, 2, 400)
    predicted = targets + rng.normal(0.2, 1, 400)
    for name, ends in (("rmse", rmse_interval), ("mae", mae_interval), ("r2", r2_interval)):
        of_values = METRICS[name].of_values
        assert of_values is not None
        low, high = ends(predicted, targets)
        assert low < of_values(predicted, targets) < high and high - low < 0.3
    scores, labels = drawn()
    of_scores = METRICS["balanced_accuracy"].of_scores
    assert of_scores is not None
    low, high = balanced_accuracy_interval(scores, labels)
    assert low < of_scores(scores, labels) < high


def test_calibration_is_that_of_a_logistic_regression() -> None:
    log_odds, targets = drawn(500, seed=1)
    slope, intercept = calibration_slope(log_odds, targets), calibration_intercept(log_odds, targets)
    fitted = LogisticRegression(C=np.inf, tol=1e-10, max_iter=1000).fit(log_odds[:, None], targets)
    assert slope is not None and intercept is not None
    assert slope.value == pytest.approx(float(fitted.coef_[0, 0]), rel=1e-5)
    assert slope.low < 0.5 < slope.high  # the log odds were said twice as large
    loss = lambda a: float((np.logaddexp(0, a + log_odds) - targets * (a + log_odds)).sum())  # noqa: E731
    assert intercept.value == pytest.approx(float(minimize(loss, [0.0]).x[0]), abs=1e-4)
    stated = 1 / (1 + np.exp(-log_odds))
    score = brier(stated, targets)
    assert score.value == pytest.approx(brier_score_loss(targets, stated))
    assert score.low < score.value < score.high


def test_what_has_no_slope_gets_none() -> None:
    targets = np.array([0, 0, 1, 1])
    assert calibration_slope(np.array([-2.0, -1.0, 1.0, 2.0]), targets) is None  # no slope is steep enough
    assert calibration_slope(np.zeros(4), targets) is None
    assert calibration_slope(np.arange(4.0), np.ones(4)) is None
    assert calibration_intercept(np.arange(4.0), np.ones(4)) is None
    assert proportion(0, 0) is None


def test_the_sign_test_is_exact() -> None:
    for better, worse in ((9, 1), (5, 5), (0, 4), (60, 40)):
        expected = binomtest(better, better + worse, 0.5, alternative="greater").pvalue
        assert by_luck(better, worse) == pytest.approx(expected)
    assert by_luck(0, 0) == 1.0
