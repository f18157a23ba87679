"""Faces with attributes that can be had more easily than LFW: a stand-in, and called one wherever it is used."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from laconic.audience import Sentence
from laconic.data.files.npz import read_arrays
from laconic.data.files.user_file import refused
from laconic.data.inputs import Pictures
from laconic.data.population import Records
from laconic.data.registry import Source, SourceInfo
from laconic.errors import DataError
from laconic_studies.datasets.lfw import TEST_SHARE, stratified

_FILE = "faces.npz"
_TASK, _PROPERTIES = "male", ("young", "beard", "wavy")
_UNKNOWN = 255
_NOTE = Sentence.public(
    "these are not the pictures of LFW but a stand-in: 64 × 64 faces out of CelebA; numbers for LFW cannot be compared"
    " with those found here"
)


def load_faces(info: SourceInfo, data_dir: str | Path | None = None) -> Source:
    """Arrays `images` (count, 3, height, width) in bytes, and `male`, `young`, `beard`, `wavy`: 0, 1 or 255 (unknown).

    The task is gender. 30 % of each gender, always the same, are the test set.
    """
    (file,) = info.needed(data_dir)
    try:
        arrays = read_arrays(file, ("images", _TASK, *_PROPERTIES))
    except DataError as error:
        raise DataError(f"{error}; {info.how_to_get}") from None
    images = arrays["images"]
    if images.dtype != np.uint8 or images.ndim != 4 or images.shape[1] != 3 or not images.size:
        raise refused(file, f"'images' is {images.dtype} of {images.shape}; expected uint8 (count, 3, height, width)")
    for name in (_TASK, *_PROPERTIES):
        values = arrays[name]
        if values.shape != images.shape[:1] or not np.isin(values, (0, 1, _UNKNOWN)).all():
            raise refused(file, f"'{name}' must be 0, 1 or {_UNKNOWN} for each of the {len(images):,} pictures")
    known = np.flatnonzero(arrays[_TASK] != _UNKNOWN)
    male = arrays[_TASK][known].astype(np.int64)
    if len(np.unique(male)) < 2:
        raise refused(file, f"'{_TASK}' names only one gender, so there is nothing to learn")
    train, test = stratified(male, TEST_SHARE)
    return Source(
        name=info.name,
        train=Records(Pictures(torch.from_numpy(images[known[train]])), torch.from_numpy(male[train])),
        test=Records(Pictures(torch.from_numpy(images[known[test]])), torch.from_numpy(male[test])),
        num_classes=2,
        input_shape=images.shape[1:],
        description=info.description,
        attributes={name: _known(arrays[name][known[train]]) for name in _PROPERTIES},
        notes=(_NOTE,),
    )


def _known(values: np.ndarray) -> np.ndarray:
    return np.where(values == _UNKNOWN, -1, values.astype(np.int8)).astype(np.int8)


FACES = SourceInfo(
    name="faces",
    description="faces of well-known people, 64x64 in colour; the task is gender; a stand-in for lfw",
    licence="CelebA's: research that is not commercial; never pass the pictures on",
    origin="7,000 pictures out of CelebA (Chinese University of Hong Kong), with four of its attributes",
    num_train=4_900,
    num_test=2_100,
    input_shape=(3, 64, 64),
    classes=("female", "male"),
    client="a random shard of pictures",
    default_clients=100,
    load=load_faces,
    files=(_FILE,),
    stand_in_for="lfw",
    citation="Liu et al., Deep Learning Face Attributes in the Wild, ICCV 2015",
    how_to_get=(
        "write CelebA's pictures at 64 x 64 and its attributes into faces.npz: arrays images (uint8, n x 3 x 64 x 64),"
        " male, young, beard, wavy (0, 1, or 255 for unknown)"
    ),
)
