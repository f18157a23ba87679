"""The data sets inside scikit-learn, which are on every machine: handwritten digits and a table of breast tumours."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from laconic.data.population import Records
from laconic.data.registry import Source, SourceInfo
from laconic.errors import DataError


def stratified_fifth(labels: np.ndarray, seed: int = 20) -> tuple[np.ndarray, np.ndarray]:
    """Rows (train, test) with a fifth of each class in the test set."""
    # Not default_rng: only RandomState promises the same numbers, so the same split, in every numpy.
    rng = np.random.RandomState(seed)
    is_test = np.zeros(len(labels), dtype=bool)
    for label in np.unique(labels):
        members = rng.permutation(np.flatnonzero(labels == label))
        is_test[members[: round(len(members) / 5)]] = True
    return np.flatnonzero(~is_test), np.flatnonzero(is_test)


def load_digits(info: SourceInfo, data_dir: str | Path | None = None) -> Source:
    """The 8x8 digits inside scikit-learn; a fifth of every class, always the same, is the test set."""
    try:
        from sklearn import datasets
    except ImportError:
        raise DataError(f"the data set '{info.name}' is part of scikit-learn: pip install scikit-learn") from None
    images, labels = datasets.load_digits(return_X_y=True)
    inputs = torch.as_tensor(images, dtype=torch.float32).div_(16).reshape(-1, 1, 8, 8)
    targets = torch.as_tensor(labels, dtype=torch.int64)
    train, test = (torch.from_numpy(rows) for rows in stratified_fifth(labels))
    return Source(
        name=info.name,
        train=Records(inputs[train], targets[train]),
        test=Records(inputs[test], targets[test]),
        num_classes=10,
        input_shape=(1, 8, 8),
        description=info.description,
    )


DIGITS = SourceInfo(
    name="digits",
    description="handwritten digits, 8x8 grey, 10 classes; embedded, nothing to download",
    licence="CC BY 4.0",
    origin="scikit-learn's copy of the UCI Optical Recognition of Handwritten Digits test set",
    num_train=1438,
    num_test=359,
    input_shape=(1, 8, 8),
    classes=tuple("0123456789"),
    client="a random shard of pictures",
    default_clients=100,
    load=load_digits,
    unit_range=True,
)


_MIDDLE = 0.25  # about the mean of most columns: without it, all of them would mostly say "this is a tumour"


def load_breast_cancer(info: SourceInfo, data_dir: str | Path | None = None) -> Source:
    """The table inside scikit-learn; a fifth of every class, always the same, is the test set.

    Columns are scaled by their smallest and largest value. The description of the data set has published both, so that
    this reveals nothing.
    """
    try:
        from sklearn import datasets
    except ImportError:
        raise DataError(f"the data set '{info.name}' is part of scikit-learn: pip install scikit-learn") from None
    numbers, labels = datasets.load_breast_cancer(return_X_y=True)
    low, high = numbers.min(0), numbers.max(0)
    inputs = torch.as_tensor((numbers - low) / (high - low) - _MIDDLE, dtype=torch.float32)
    targets = torch.as_tensor(1 - labels, dtype=torch.int64)  # scikit-learn has 0 for malignant
    train, test = (torch.from_numpy(rows) for rows in stratified_fifth(labels))
    return Source(
        name=info.name,
        train=Records(inputs[train], targets[train]),
        test=Records(inputs[test], targets[test]),
        num_classes=2,
        input_shape=(30,),
        description=info.description,
    )


BREAST_CANCER = SourceInfo(
    name="breast-cancer",
    description="breast tumours, 30 numbers each, benign or malignant; embedded, nothing to download",
    licence="CC BY 4.0",
    origin="scikit-learn's copy of the UCI Breast Cancer Wisconsin (Diagnostic) data set",
    num_train=456,
    num_test=113,
    input_shape=(30,),
    classes=("benign", "malignant"),
    client="a random shard of patients",
    default_clients=5,
    load=load_breast_cancer,
    unit_range=True,
)
