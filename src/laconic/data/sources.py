"""The built-in data sets. A new one is a loader and an entry in `SOURCES`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
import torch

from laconic.data.download import download
from laconic.data.idx import decode_idx, read_idx
from laconic.data.locate import cache_dir, locate
from laconic.data.population import Records
from laconic.errors import ConfigError, DataError, unknown


@dataclass(frozen=True)
class Source:
    """A data set in memory, split into training and test records."""

    name: str
    train: Records
    test: Records
    num_classes: int
    input_shape: tuple[int, ...]
    description: str


Loader = Callable[["SourceInfo", str | Path | None], Source]
"""Given its own entry and the user's data folder, if any, returns the data set."""


@dataclass(frozen=True)
class SourceInfo:
    """What can be said of a data set without loading it, and the loader."""

    name: str
    description: str
    licence: str
    origin: str
    num_train: int
    num_test: int
    load: Loader = field(repr=False)
    files: tuple[str, ...] = ()

    @property
    def num_records(self) -> int:
        return self.num_train + self.num_test

    def where(self, data_dir: str | Path | None = None) -> str:
        """Where its files are, or what will happen without them, for people."""
        if not self.files:
            return "embedded"
        try:
            paths = locate(self.name, self.files, data_dir)
        except DataError:
            return f"not found in {data_dir}"
        return f"found in {paths[0].parent}" if paths else "not found; will be downloaded on first use"


def load_source(name: str, data_dir: str | Path | None = None) -> Source:
    """The named data set. `data_dir` is for those that come in files; an embedded one does not look at it."""
    if name not in SOURCES:
        raise ConfigError(unknown("data set", name, SOURCES))
    info = SOURCES[name]
    if _kept is None:
        return info.load(info, data_dir)
    if (name, data_dir) not in _kept:
        _kept[name, data_dir] = info.load(info, data_dir)
    return _kept[name, data_dir]


_kept: dict[tuple[str, str | Path | None], Source] | None = None


@contextmanager
def sources_kept() -> Iterator[None]:
    """Inside this block each data set is read once, for whoever starts many runs; outside nothing stays in memory."""
    global _kept
    before, _kept = _kept, {}
    try:
        yield
    finally:
        _kept = before


def load_digits(info: SourceInfo, data_dir: str | Path | None = None) -> Source:
    """The 8x8 digits inside scikit-learn; a fifth of every class, always the same, is the test set."""
    try:
        from sklearn import datasets
    except ImportError:
        raise DataError(f"the data set '{info.name}' is part of scikit-learn: pip install scikit-learn") from None
    images, labels = datasets.load_digits(return_X_y=True)
    inputs = torch.as_tensor(images, dtype=torch.float32).div_(16).reshape(-1, 1, 8, 8)
    targets = torch.as_tensor(labels, dtype=torch.int64)
    train, test = (torch.from_numpy(rows) for rows in _stratified_fifth(labels))
    return Source(
        name=info.name,
        train=Records(inputs[train], targets[train]),
        test=Records(inputs[test], targets[test]),
        num_classes=10,
        input_shape=(1, 8, 8),
        description=info.description,
    )


def _stratified_fifth(labels: np.ndarray, seed: int = 20) -> tuple[np.ndarray, np.ndarray]:
    """Rows (train, test) with a fifth of each class in the test set."""
    # Not default_rng: only RandomState promises the same numbers, so the same split, in every numpy.
    rng = np.random.RandomState(seed)
    is_test = np.zeros(len(labels), dtype=bool)
    for label in np.unique(labels):
        members = rng.permutation(np.flatnonzero(labels == label))
        is_test[members[: round(len(members) / 5)]] = True
    return np.flatnonzero(~is_test), np.flatnonzero(is_test)


_IDX_FILES = (
    "train-images-idx3-ubyte.gz",
    "train-labels-idx1-ubyte.gz",
    "t10k-images-idx3-ubyte.gz",
    "t10k-labels-idx1-ubyte.gz",
)


def load_idx(
    info: SourceInfo, data_dir: str | Path | None = None, *, mirrors: Sequence[str], sums: Sequence[str]
) -> Source:
    """Ten classes of grey images in MNIST's four IDX files.

    `sums` are the sha256 sums of the four files, decompressed; `mirrors` are the URLs of the folders with them.
    """
    paths = locate(info.name, _IDX_FILES, data_dir) or _download_idx(info.name, mirrors, sums)
    arrays = [
        read_idx(path, ndim=_ndim(name), sha256=sha256)
        for path, name, sha256 in zip(paths, _IDX_FILES, sums, strict=True)
    ]
    train = _image_records(arrays[0], arrays[1])
    return Source(
        name=info.name,
        train=train,
        test=_image_records(arrays[2], arrays[3]),
        num_classes=10,
        input_shape=tuple(train.inputs.shape[1:]),
        description=info.description,
    )


def _download_idx(dataset: str, mirrors: Sequence[str], sums: Sequence[str]) -> list[Path]:
    """All four files in the cache, fetching those that are not there yet."""
    paths = []
    for name, sha256 in zip(_IDX_FILES, sums, strict=True):
        path = cache_dir() / dataset / name
        if not path.is_file():
            check = partial(decode_idx, ndim=_ndim(name), sha256=sha256)
            download([mirror + name for mirror in mirrors], path, check)
        paths.append(path)
    return paths


def _ndim(name: str) -> int:
    return 3 if "idx3" in name else 1


def _image_records(images: np.ndarray, labels: np.ndarray) -> Records:
    inputs = torch.from_numpy(images).unsqueeze(1).to(torch.float32).div_(255)
    return Records(inputs, torch.from_numpy(labels).to(torch.int64))


SOURCES: dict[str, SourceInfo] = {
    info.name: info
    for info in (
        SourceInfo(
            name="digits",
            description="handwritten digits, 8x8 grey, 10 classes; embedded, nothing to download",
            licence="CC BY 4.0",
            origin="scikit-learn's copy of the UCI Optical Recognition of Handwritten Digits test set",
            num_train=1438,
            num_test=359,
            load=load_digits,
        ),
        SourceInfo(
            name="mnist",
            description="handwritten digits, 28x28 grey, 10 classes",
            licence="CC BY-SA 3.0",
            origin="Y. LeCun, C. Cortes and C. Burges; download of 12 MB",
            num_train=60_000,
            num_test=10_000,
            files=_IDX_FILES,
            load=partial(
                load_idx,
                mirrors=(
                    "https://ossci-datasets.s3.amazonaws.com/mnist/",
                    "https://storage.googleapis.com/cvdf-datasets/mnist/",
                ),
                sums=(
                    "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
                    "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
                    "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
                    "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
                ),
            ),
        ),
        SourceInfo(
            name="fashion-mnist",
            description="pictures of clothes, 28x28 grey, 10 classes",
            licence="MIT",
            origin="Zalando Research; download of 31 MB, or Debian's package dataset-fashion-mnist",
            num_train=60_000,
            num_test=10_000,
            files=_IDX_FILES,
            load=partial(
                load_idx,
                mirrors=("http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",),
                sums=(
                    "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
                    "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
                    "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
                    "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
                ),
            ),
        ),
    )
}
