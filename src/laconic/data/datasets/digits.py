"""Handwritten digits of 8 × 8 pixels: small, and on every machine."""

from __future__ import annotations

from pathlib import Path

import torch

from laconic.data.datasets.stratified import stratified_fifth
from laconic.data.population import Records
from laconic.data.registry import Source, SourceInfo
from laconic.errors import DataError


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
)
