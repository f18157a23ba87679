"""MNIST and Fashion-MNIST: grey pictures of 28 × 28 pixels in four IDX files.

An IDX file has a four-byte magic, big-endian sizes, then the values. Checksums are of the decompressed bytes: the
same data compressed by another tool, or with its gzip header stripped, has other bytes on disk but is the same data.
"""

from __future__ import annotations

import gzip
import hashlib
import math
import zlib
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import BinaryIO, cast

import numpy as np
import torch

from laconic.data.download import download
from laconic.data.population import Records
from laconic.data.registry import Source, SourceInfo, cache_dir
from laconic.errors import DataError

REMEDY = "delete it to have it downloaded again, or point ⟨data-dir⟩ at the original files"

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
