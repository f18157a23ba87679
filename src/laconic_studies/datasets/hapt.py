"""HAPT: what 30 people did while a smartphone at the waist recorded acceleration and rotation.

A record is a window of 2.56 s (128 samples at 50 Hz, three axes of acceleration in g and three of rotation in rad/s).
Windows of one activity overlap by half. So the test set is the last fifth of each person's windows of each activity in
time, and the window before it is left out if it overlaps: no sample is in a training and in a test window.
"""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import numpy as np
import torch

from laconic.data.datasets.checked import read_checked
from laconic.data.population import Records
from laconic.data.registry import Source, SourceInfo
from laconic.errors import DataError

_FILE = "hapt.npz"
_HALF = 64


def load_hapt(info: SourceInfo, data_dir: str | Path | None = None) -> Source:
    (file,) = info.needed(data_dir)
    windows, labels, people = _arrays(file, info)
    train, test = split_in_time(windows, labels, people)
    inputs, targets = torch.from_numpy(windows.astype(np.float32)), torch.from_numpy(labels.astype(np.int64) - 1)
    return Source(
        name=info.name,
        train=Records(inputs[train], targets[train]),
        test=Records(inputs[test], targets[test]),
        num_classes=len(info.classes),
        input_shape=tuple(windows.shape[1:]),
        description=info.description,
        owners=people[train].astype(np.int64),
        test_owners=people[test].astype(np.int64),
    )


def _arrays(path: Path, info: SourceInfo) -> list[np.ndarray]:
    content = read_checked(path, info)
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
            return [arrays[name] for name in ("x", "y", "user")]
    except (zipfile.BadZipFile, ValueError, KeyError) as error:
        raise DataError(f"{path}: damaged, or not the file that was expected ({type(error).__name__})") from None


def split_in_time(windows: np.ndarray, labels: np.ndarray, people: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rows (train, test): of each person's windows of each activity the last fifth, at least one of two, is tested."""
    is_test = np.zeros(len(labels), dtype=bool)
    for person in np.unique(people):
        for label in np.unique(labels):
            rows = np.flatnonzero((people == person) & (labels == label))
            count = max(1, round(len(rows) / 5)) if len(rows) > 1 else 0
            is_test[rows[len(rows) - count :]] = True
    overlaps = (windows[:-1, _HALF:] == windows[1:, :-_HALF]).all(axis=(1, 2))
    gap = np.zeros_like(is_test)
    gap[:-1] |= overlaps & is_test[1:]
    gap[1:] |= overlaps & is_test[:-1]
    return np.flatnonzero(~is_test & ~gap), np.flatnonzero(is_test)


HAPT = SourceInfo(
    name="hapt",
    description="activities of 30 people from a smartphone's sensors, windows of 128 samples and 6 axes, 12 classes",
    licence="CC BY 4.0",
    origin="UCI Machine Learning Repository (Reyes-Ortiz et al. 2015), from the raw recordings",
    num_train=8_456,
    num_test=2_232,
    input_shape=(128, 6),
    classes=(
        "walking",
        "walking upstairs",
        "walking downstairs",
        "sitting",
        "standing",
        "laying",
        "stand to sit",
        "sit to stand",
        "sit to lie",
        "lie to sit",
        "stand to lie",
        "lie to stand",
    ),
    client="a person with all their windows",
    default_clients=30,
    natural=True,
    files=(_FILE,),
    sums={_FILE: "sha256:3746b0843f473158d4008212d14f6d0cb1fcb84437c0505c3cc5cde857cc8625"},
    load=load_hapt,
    citation="Reyes-Ortiz et al., Transition-aware human activity recognition using smartphones, 2016",
    how_to_get=(
        "put hapt.npz (x: 10,929 x 128 x 6 in float16, y: 1 to 12, user: 1 to 30), made from the raw recordings of"
        " UCI's data set 341, into a folder called hapt; windows of your own go into a folder with an .npz per person,"
        " which is what --dataset then names"
    ),
)
