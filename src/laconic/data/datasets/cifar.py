"""CIFAR-10: colour pictures of 32 × 32 pixels in six binary batches, unpacked or in the published archive.

A batch is a row of 1 + 3,072 bytes for every picture: the class, then red, green and blue, each line by line.
"""

from __future__ import annotations

import io
import tarfile
import zlib
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np
import torch

from laconic.data.download import REMEDY, check_sum, download, read_checked
from laconic.data.inputs import Pictures
from laconic.data.population import Records
from laconic.data.registry import Source, SourceInfo, cache_dir, search_dirs
from laconic.errors import DataError

BATCHES = (*(f"data_batch_{number}.bin" for number in range(1, 6)), "test_batch.bin")
ARCHIVE = "cifar-10-binary.tar.gz"
_SHAPE = (3, 32, 32)
_ROW = 1 + 3 * 32 * 32
_PICKLED = ("data_batch_1", "cifar-10-batches-py", "cifar-10-python.tar.gz")


def load_cifar(info: SourceInfo, data_dir: str | Path | None = None, *, urls: Sequence[str]) -> Source:
    """The six batches as bytes; nothing is unpacked to the disk."""
    try:
        paths = info.locate(data_dir)
    except DataError:
        _refuse_pickles(info, data_dir)
        raise
    if paths is None:
        _refuse_pickles(info, data_dir)
        target = cache_dir() / info.name / ARCHIVE
        paths = [download(urls, target, lambda part: _unpacked(part.read_bytes(), info))]
    if paths[0].name == ARCHIVE:
        batches = _read_archive(paths[0], info)
    else:
        batches = [read_checked(path, info) for path in paths]
    return Source(
        name=info.name,
        train=_records(batches[:-1]),
        test=_records(batches[-1:]),
        num_classes=len(info.classes),
        input_shape=_SHAPE,
        description=info.description,
    )


def _read_archive(path: Path, info: SourceInfo) -> list[bytes]:
    try:
        return _unpacked(read_checked(path, info), info)
    except ValueError as error:
        raise DataError(f"{path}: {error}; {REMEDY}") from None


def _unpacked(archive: bytes, info: SourceInfo) -> list[bytes]:
    """The batches in the archive; a `ValueError` says what is wrong with it."""
    check_sum(archive, info.sums[ARCHIVE])
    found: dict[str, bytes] = {}
    try:
        with tarfile.open(fileobj=io.BytesIO(archive), mode="r:gz") as files:
            for member in files:
                name = member.name.rpartition("/")[2]
                content = files.extractfile(member) if name in BATCHES else None
                if content is not None:
                    found[name] = content.read()
                    check_sum(found[name], info.sums[name])
    except (tarfile.TarError, OSError, EOFError, zlib.error) as error:
        raise ValueError(f"damaged, or not a gzipped tar archive ({type(error).__name__})") from None
    missing = [name for name in BATCHES if name not in found]
    if missing:
        raise ValueError(f"holds no {', '.join(missing)}")
    return [found[name] for name in BATCHES]


def _records(batches: Sequence[bytes]) -> Records:
    rows = [np.frombuffer(batch, dtype=np.uint8).reshape(-1, _ROW) for batch in batches]
    pixels = np.concatenate([some[:, 1:] for some in rows]).reshape(-1, *_SHAPE)
    targets = np.concatenate([some[:, 0] for some in rows]).astype(np.int64)
    return Records(Pictures(torch.from_numpy(pixels)), torch.from_numpy(targets))


def _refuse_pickles(info: SourceInfo, data_dir: str | Path | None) -> None:
    """The version for Python is pickles. They can run any code when they are opened, so they never are."""
    names = (info.name, *info.folders, "cifar-10-batches-py")
    given = None if data_dir is None else Path(data_dir).expanduser()
    folders = [folder for name in names for folder in (search_dirs(name) if given is None else [given / name])]
    for path in (folder / name for folder in (*folders, *([] if given is None else [given])) for name in _PICKLED):
        if path.exists():
            raise DataError(
                f"{path} is CIFAR-10's version for Python, which is pickles, and a pickle is never opened: take the"
                f" binary version, {ARCHIVE}, from https://www.cs.toronto.edu/~kriz/cifar.html"
            )


CIFAR10 = SourceInfo(
    name="cifar10",
    description="colour pictures of animals and vehicles, 32x32, 10 classes",
    licence="none stated; cite Krizhevsky 2009",
    origin="A. Krizhevsky, V. Nair and G. Hinton, University of Toronto; download of 170 MB",
    num_train=50_000,
    num_test=10_000,
    input_shape=_SHAPE,
    classes=("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"),
    client="a random shard of pictures",
    default_clients=1000,
    files=BATCHES,
    or_files=((ARCHIVE,),),
    folders=("cifar-10-batches-bin",),
    sums={
        "data_batch_1.bin": "sha256:cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5",
        "data_batch_2.bin": "sha256:a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed",
        "data_batch_3.bin": "sha256:bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67",
        "data_batch_4.bin": "sha256:014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48",
        "data_batch_5.bin": "sha256:755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add",
        "test_batch.bin": "sha256:8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b",
        ARCHIVE: "md5:c32a1d4ab5d03f1284b67883e8d87530",
    },
    load=partial(load_cifar, urls=(f"https://www.cs.toronto.edu/~kriz/{ARCHIVE}",)),
    citation="Krizhevsky, Learning multiple layers of features from tiny images, 2009",
)
