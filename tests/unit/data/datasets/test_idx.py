"""IDX files: what is read, and that everything damaged is refused by name."""

from __future__ import annotations

import gzip
import hashlib
import struct
from pathlib import Path

import numpy as np
import pytest

from laconic.data.datasets import pictures
from laconic.data.datasets.pictures import decode_idx, read_idx
from laconic.errors import DataError

pytestmark = pytest.mark.filterwarnings("error")

IMAGES = np.random.default_rng(1).integers(0, 256, size=(7, 4, 5), dtype=np.uint8)


def idx_bytes(array: np.ndarray) -> bytes:
    return bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "images.gz"


def test_reads_gzipped_and_plain_alike(path: Path) -> None:
    plain = path.with_name("images")
    plain.write_bytes(idx_bytes(IMAGES))
    path.write_bytes(gzip.compress(idx_bytes(IMAGES)))
    np.testing.assert_array_equal(read_idx(plain, ndim=3), IMAGES)
    np.testing.assert_array_equal(read_idx(path, ndim=3), IMAGES)
    assert read_idx(path, ndim=3).flags.writeable  # torch warns of arrays that are not


def test_reads_labels(path: Path) -> None:
    labels = np.arange(9, dtype=np.uint8)
    path.write_bytes(gzip.compress(idx_bytes(labels)))
    np.testing.assert_array_equal(read_idx(path, ndim=1), labels)


def test_sum_is_of_the_decompressed_bytes(path: Path) -> None:
    data = idx_bytes(IMAGES)
    expected = hashlib.sha256(data).hexdigest()
    packings = [gzip.compress(data, 9, mtime=1), gzip.compress(data, 1, mtime=2), data]
    assert len(set(packings)) == 3
    for packed in packings:
        path.write_bytes(packed)
        np.testing.assert_array_equal(read_idx(path, ndim=3, sha256=expected), IMAGES)


def test_wrong_sum_names_file_sums_and_remedy(path: Path) -> None:
    path.write_bytes(gzip.compress(idx_bytes(IMAGES)))
    found = hashlib.sha256(idx_bytes(IMAGES)).hexdigest()
    with pytest.raises(DataError) as caught:
        read_idx(path, ndim=3, sha256="ab" * 32)
    message = str(caught.value)
    assert str(path) in message and "abababababab..." in message and f"{found[:12]}..." in message
    assert "--data-dir" in message and found not in message


@pytest.mark.parametrize("left", [0.999, 0.5, 0.1])
def test_truncated_gzip(path: Path, left: float) -> None:
    packed = gzip.compress(idx_bytes(np.random.default_rng(2).integers(0, 256, (50, 9, 9), dtype=np.uint8)))
    path.write_bytes(packed[: int(len(packed) * left)])
    with pytest.raises(DataError, match="truncated: the gzip data end too early") as caught:
        read_idx(path, ndim=3)
    assert str(path) in str(caught.value)


def test_every_truncation_of_a_gzip_is_refused(path: Path) -> None:
    packed = gzip.compress(idx_bytes(IMAGES))
    for end in range(len(packed)):
        path.write_bytes(packed[:end])
        with pytest.raises(DataError):
            read_idx(path, ndim=3)


def test_damaged_gzip(path: Path) -> None:
    packed = bytearray(gzip.compress(idx_bytes(IMAGES)))
    packed[-6] ^= 0xFF  # in the checksum that gzip keeps itself
    path.write_bytes(packed)
    with pytest.raises(DataError, match="damaged gzip data"):
        read_idx(path, ndim=3)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "truncated: 0 bytes hold no IDX header"),
        (b"\0\0\x08", "truncated: 3 bytes"),
        (b"<html>moved</html>", "not an IDX file"),
        (b"\0\0\x0d\x03" + bytes(12), "type 0x0d"),
        (b"\0\0\x08\x01\0\0\0\0", "1 dimensions, but 3 were expected"),
        (b"\0\0\x08\x03\0\0\0\x01", "truncated: 8 bytes, but the IDX header alone takes 16"),
        (idx_bytes(IMAGES)[:-1], "truncated: the header promises 140 values, the file holds 139"),
        (idx_bytes(IMAGES) + b"xy", "too long: 2 bytes after"),
        (b"\0\0\x08\x03" + b"\xff" * 12, "truncated: the header promises"),
    ],
)
@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "gzip"])
def test_not_idx(path: Path, data: bytes, reason: str, pack: type) -> None:
    path.write_bytes(pack(data))
    with pytest.raises(DataError, match=reason) as caught:
        read_idx(path, ndim=3)
    assert str(caught.value).startswith(f"{path}: ")


def test_missing_file(path: Path) -> None:
    with pytest.raises(DataError, match="cannot be read"):
        read_idx(path, ndim=3)


def test_a_gzip_bomb_is_cut_off(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pictures, "_MOST_BYTES", 1000)
    path.write_bytes(gzip.compress(bytes(100_000)))
    with pytest.raises(DataError, match="more than 1000 bytes"):
        read_idx(path, ndim=3)


def test_decode_gives_the_bare_reason(path: Path) -> None:
    path.write_bytes(b"nonsense")
    with pytest.raises(ValueError, match="^not an IDX file") as caught:
        decode_idx(path, ndim=3)
    assert str(path) not in str(caught.value)
