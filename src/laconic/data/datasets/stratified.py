"""A test set for data that comes without one: the same fifth of every class, always."""

from __future__ import annotations

import numpy as np


def stratified_fifth(labels: np.ndarray, seed: int = 20) -> tuple[np.ndarray, np.ndarray]:
    """Rows (train, test) with a fifth of each class in the test set."""
    # Not default_rng: only RandomState promises the same numbers, so the same split, in every numpy.
    rng = np.random.RandomState(seed)
    is_test = np.zeros(len(labels), dtype=bool)
    for label in np.unique(labels):
        members = rng.permutation(np.flatnonzero(labels == label))
        is_test[members[: round(len(members) / 5)]] = True
    return np.flatnonzero(~is_test), np.flatnonzero(is_test)
