"""The attacker's classifier: it learns from emulated observations and guesses about real ones.

Every row of features is divided by its ℓ2 norm, every column is standardised, as cited. `forest` is the cited random
forest: 100 trees, at least 5 rows in a leaf and in a split. `logistic` is a logistic regression with C = 0.01, as there
are about as many features as rows.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from laconic.errors import ConfigError, unknown
from laconic_studies.inference.scores import Score, scored

CLASSIFIERS = {"forest": "random forest", "logistic": "logistic regression"}
_STEPS = 200


def check_classifiers(names: tuple[str, ...]) -> None:
    """Refuse a classifier that does not exist."""
    for name in names:
        if name not in CLASSIFIERS:
            raise ConfigError(unknown("classifier", name, CLASSIFIERS))


def guessed(
    name: str,
    learn: tuple[np.ndarray, np.ndarray],
    test: tuple[np.ndarray, np.ndarray],
    *,
    seed: int,
) -> Score:
    """Learn from (features, labels), and the score on others. Rows are observations."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import Normalizer, StandardScaler

    pipeline = make_pipeline(Normalizer(), StandardScaler(), _classifier(name, seed))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # 200 steps are enough for a guess
        pipeline.fit(*learn)
    features, truth = test
    if hasattr(pipeline, "decision_function"):  # probabilities near 0 and 1 would be ties
        sure = pipeline.decision_function(features)
    else:
        sure = pipeline.predict_proba(features)[:, 1] - 0.5
    return scored(sure, (sure > 0).astype(np.int64), truth, np.random.Generator(np.random.Philox(key=seed)))


def _classifier(name: str, seed: int) -> Any:
    if name == "forest":
        from sklearn.ensemble import RandomForestClassifier

        return RandomForestClassifier(100, min_samples_leaf=5, min_samples_split=5, random_state=seed & (2**32 - 1))
    from sklearn.linear_model import LogisticRegression

    return LogisticRegression(C=0.01, max_iter=_STEPS)
