"""IDX files, the format of MNIST and its kin: a four-byte magic, big-endian sizes, then the values.

Checksums are of the decompressed bytes: the same data compressed by another tool, or with its gzip header
stripped, has other bytes on disk but is the same data.
"""

from __future__ import annotations

import gzip
import hashlib
import math
import zlib
from pathlib import Path
from typing import BinaryIO, cast

import numpy as np

from laconic.errors import DataError

REMEDY = "delete it to have it downloaded again, or point --data-dir at the original files"

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
    """The file's bytes, unpacked if it starts as gzip does, whatever its name."""
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
