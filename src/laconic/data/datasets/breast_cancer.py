"""Breast tumours, described by 30 numbers each: a small medical table that is on every machine."""

from __future__ import annotations

from pathlib import Path

import torch

from laconic.data.datasets.stratified import stratified_fifth
from laconic.data.population import Records
from laconic.data.registry import Source, SourceInfo
from laconic.errors import DataError

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
)
