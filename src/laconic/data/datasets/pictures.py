"""MNIST and Fashion-MNIST in IDX files, CIFAR-10 in binary batches.

An IDX file has a four-byte magic, big-endian sizes, then the values. Checksums are of the decompressed bytes: the
same data compressed by another tool, or with its gzip header stripped, has other bytes on disk but is the same data.

A batch is a row of 1 + 3,072 bytes for every picture: the class, then red, green and blue, each line by line.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import math
import tarfile
import zlib
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import BinaryIO, cast

import numpy as np
import torch

from laconic.data.download import REMEDY, check_sum, download, read_checked
from laconic.data.inputs import Pictures
from laconic.data.population import Records
from laconic.data.registry import Source, SourceInfo, cache_dir, search_dirs
from laconic.errors import DataError

_GZIP_MAGIC = b"\x1f\x8b"
_UNSIGNED_BYTE = 0x08
_CHUNK = 1 << 20
# A few kilobytes of gzip can unpack to more than the memory holds; no data set read here comes near this.
_MOST_BYTES = 1 << 30


def read_idx(path: Path, *, ndim: int, sha256: str | None = None) -> np.ndarray:
    """The array in an IDX file of unsigned bytes, plain or gzipped; a `DataError` names the file and the remedy."""
    try:
        return decode_idx(path, ndim=ndim, sha256=sha256)
    except ValueError as error:
        raise DataError(f"{path}: {error}; {REMEDY}") from None


def decode_idx(path: Path, *, ndim: int, sha256: str | None = None) -> np.ndarray:
    """As `read_idx`, but what is wrong comes as a `ValueError` with the bare reason, for callers that name the file."""
    data = _decompressed(path)
    array = _parse(data, ndim)
    if sha256 is not None:
        found = hashlib.sha256(data).hexdigest()
        if found != sha256.lower():
            raise ValueError(f"not the expected data: sha256 {sha256[:12]}... expected, {found[:12]}... found")
    return array


def _parse(data: bytearray, ndim: int) -> np.ndarray:
    if len(data) < 4:
        raise ValueError(f"truncated: {len(data)} bytes hold no IDX header")
    if data[0] or data[1]:
        raise ValueError(f"not an IDX file: it starts with {bytes(data[:4]).hex()}, not with two zero bytes")
    if data[2] != _UNSIGNED_BYTE:
        raise ValueError(f"IDX type 0x{data[2]:02x}, but unsigned bytes (0x08) were expected")
    if data[3] != ndim:
        raise ValueError(f"{data[3]} dimensions, but {ndim} were expected (images and labels exchanged?)")
    start = 4 + 4 * ndim
    if len(data) < start:
        raise ValueError(f"truncated: {len(data)} bytes, but the IDX header alone takes {start}")
    shape = tuple(int.from_bytes(data[at : at + 4], "big") for at in range(4, start, 4))
    expected, found = math.prod(shape), len(data) - start
    if found < expected:
        raise ValueError(f"truncated: the header promises {expected} values, the file holds {found}")
    if found > expected:
        raise ValueError(f"too long: {found - expected} bytes after the {expected} values that the header promises")
    return np.frombuffer(data, dtype=np.uint8, offset=start).reshape(shape)


def _decompressed(path: Path) -> bytearray:
    """The file's bytes, unpacked if it starts as gzip does; its name does not matter."""
    try:
        with path.open("rb") as file:
            zipped = file.read(2) == _GZIP_MAGIC
            file.seek(0)
            if not zipped:
                return _read_all(file)
            with gzip.GzipFile(fileobj=file) as unzipped:
                return _read_all(cast(BinaryIO, unzipped))
    except EOFError:
        raise ValueError("truncated: the gzip data end too early") from None
    except (gzip.BadGzipFile, zlib.error) as error:
        raise ValueError(f"damaged gzip data ({error})") from None
    except OSError as error:
        raise ValueError(f"cannot be read ({error.strerror or error})") from None


def _read_all(file: BinaryIO) -> bytearray:
    # A bytearray, because an array over immutable bytes would be read-only and torch warns of those.
    data = bytearray()
    while chunk := file.read(_CHUNK):
        data += chunk
        if len(data) > _MOST_BYTES:
            raise ValueError(f"too long: more than {_MOST_BYTES} bytes unpacked")
    return data


IDX_FILES = (
    "train-images-idx3-ubyte.gz",
    "train-labels-idx1-ubyte.gz",
    "t10k-images-idx3-ubyte.gz",
    "t10k-labels-idx1-ubyte.gz",
)


def load_idx(info: SourceInfo, data_dir: str | Path | None = None, *, mirrors: Sequence[str]) -> Source:
    """Classes of grey images in MNIST's four IDX files. `mirrors` are the URLs of the folders with them."""
    paths = info.locate(data_dir) or _download_idx(info, mirrors)
    arrays = [
        read_idx(path, ndim=_ndim(name), sha256=_sha256(info, name))
        for path, name in zip(paths, IDX_FILES, strict=True)
    ]
    train = _image_records(arrays[0], arrays[1])
    return Source(
        name=info.name,
        train=train,
        test=_image_records(arrays[2], arrays[3]),
        num_classes=len(info.classes),
        input_shape=tuple(train.inputs.shape[1:]),
        description=info.description,
    )


def _download_idx(info: SourceInfo, mirrors: Sequence[str]) -> list[Path]:
    """All four files in the cache, fetching those that are not there yet."""
    paths = []
    for name in IDX_FILES:
        path = cache_dir() / info.name / name
        if not path.is_file():
            check = partial(decode_idx, ndim=_ndim(name), sha256=_sha256(info, name))
            download([mirror + name for mirror in mirrors], path, check)
        paths.append(path)
    return paths


def _ndim(name: str) -> int:
    return 3 if "idx3" in name else 1


def _sha256(info: SourceInfo, name: str) -> str:
    return info.sums[name].removeprefix("sha256:")


def _image_records(images: np.ndarray, labels: np.ndarray) -> Records:
    inputs = torch.from_numpy(images).unsqueeze(1).to(torch.float32).div_(255)
    return Records(inputs, torch.from_numpy(labels).to(torch.int64))


MNIST = SourceInfo(
    name="mnist",
    description="handwritten digits, 28x28 grey, 10 classes",
    licence="CC BY-SA 3.0",
    origin="Y. LeCun, C. Cortes and C. Burges; download of 12 MB",
    num_train=60_000,
    num_test=10_000,
    input_shape=(1, 28, 28),
    classes=tuple("0123456789"),
    client="a random shard of pictures",
    default_clients=6000,
    files=IDX_FILES,
    sums={
        "train-images-idx3-ubyte.gz": "sha256:ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
        "train-labels-idx1-ubyte.gz": "sha256:65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
        "t10k-images-idx3-ubyte.gz": "sha256:0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
        "t10k-labels-idx1-ubyte.gz": "sha256:ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
    },
    load=partial(
        load_idx,
        mirrors=(
            "https://ossci-datasets.s3.amazonaws.com/mnist/",
            "https://storage.googleapis.com/cvdf-datasets/mnist/",
        ),
    ),
    citation="LeCun, Bottou, Bengio and Haffner, Gradient-based learning applied to document recognition, 1998",
)

FASHION_MNIST = SourceInfo(
    name="fashion-mnist",
    description="pictures of clothes, 28x28 grey, 10 classes",
    licence="MIT",
    origin="Zalando Research; download of 31 MB, or Debian's package dataset-fashion-mnist",
    num_train=60_000,
    num_test=10_000,
    input_shape=(1, 28, 28),
    classes=(
        "T-shirt",
        "trouser",
        "pullover",
        "dress",
        "coat",
        "sandal",
        "shirt",
        "sneaker",
        "bag",
        "ankle boot",
    ),
    client="a random shard of pictures",
    default_clients=6000,
    files=IDX_FILES,
    sums={
        "train-images-idx3-ubyte.gz": "sha256:c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
        "train-labels-idx1-ubyte.gz": "sha256:bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
        "t10k-images-idx3-ubyte.gz": "sha256:5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
        "t10k-labels-idx1-ubyte.gz": "sha256:0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
    },
    load=partial(load_idx, mirrors=("http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",)),
    citation="Xiao, Rasul and Vollgraf, Fashion-MNIST, arXiv:1708.07747, 2017",
)


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
