"""CIFAR-10 from its batches or its archive: made miniatures everywhere, the real files where they are at hand."""

from __future__ import annotations

import dataclasses
import gzip
import hashlib
import io
import os
import tarfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

from laconic.data import registry
from laconic.data.datasets.pictures import ARCHIVE, BATCHES, CIFAR10, load_cifar
from laconic.data.inputs import Pictures
from laconic.data.sources import SOURCES, load_source
from laconic.errors import DataError

RNG = np.random.default_rng(10)
ROWS = {name: RNG.integers(0, 256, (4, 3073), dtype=np.uint8) for name in BATCHES}
for _rows in ROWS.values():
    _rows[:, 0] %= 10
REAL = os.environ.get("LACONIC_DATA")


def archive_of(rows: dict[str, np.ndarray]) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as files:
        for name, batch in rows.items():
            info = tarfile.TarInfo(f"cifar-10-batches-bin/{name}")
            info.size = batch.size
            files.addfile(info, io.BytesIO(batch.tobytes()))
    return gzip.compress(packed.getvalue(), mtime=0)


@pytest.fixture(autouse=True)
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches of four pictures, with sums of their own; nothing of the machine's is seen."""
    monkeypatch.delenv("LACONIC_DATA", raising=False)
    monkeypatch.setenv("LACONIC_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("LACONIC_OFFLINE", "1")
    monkeypatch.setattr(registry, "SYSTEM_DATASETS", tmp_path / "system")
    sums = {name: f"sha256:{hashlib.sha256(batch).hexdigest()}" for name, batch in ROWS.items()}
    sums[ARCHIVE] = f"md5:{hashlib.md5(archive_of(ROWS), usedforsecurity=False).hexdigest()}"
    monkeypatch.setitem(SOURCES, "cifar10", dataclasses.replace(CIFAR10, sums=sums))


def write_batches(folder: Path) -> Path:
    folder.mkdir(parents=True)
    for name, batch in ROWS.items():
        (folder / name).write_bytes(batch.tobytes())
    return folder


def check(data_dir: Path | None) -> None:
    source = load_source("cifar10", data_dir)
    expected = np.concatenate([ROWS[name] for name in BATCHES[:5]])
    assert isinstance(source.train.inputs, Pictures) and source.train.inputs.pixels.dtype == torch.uint8
    assert source.input_shape == (3, 32, 32) and source.num_classes == 10
    np.testing.assert_array_equal(source.train.targets, expected[:, 0])
    pixels = expected[:, 1:].reshape(-1, 3, 32, 32).astype(np.float32) / np.float32(255)
    np.testing.assert_array_equal(source.train.inputs[:].numpy(), pixels)
    np.testing.assert_array_equal(source.test.targets, ROWS["test_batch.bin"][:, 0])
    assert source.test.inputs.shape == (4, 3, 32, 32)


@pytest.mark.parametrize("inside", ["", "cifar10", "cifar-10-batches-bin"])
def test_batches_in_the_folder_that_the_user_names(tmp_path: Path, inside: str) -> None:
    write_batches(tmp_path / "mine" / inside)
    check(tmp_path / "mine")


def test_batches_below_the_data_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_batches(tmp_path / "data" / "cifar-10-batches-bin")
    monkeypatch.setenv("LACONIC_DATA", str(tmp_path / "data"))
    check(None)
    assert "found in" in SOURCES["cifar10"].where()


def test_the_archive_is_read_without_unpacking_it(tmp_path: Path) -> None:
    (tmp_path / ARCHIVE).write_bytes(archive_of(ROWS))
    check(tmp_path)
    assert os.listdir(tmp_path) == [ARCHIVE]


def test_a_download_is_checked_and_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    served = tmp_path / "served"
    served.write_bytes(archive_of(ROWS))
    monkeypatch.delenv("LACONIC_OFFLINE")
    load = partial(load_cifar, urls=(served.as_uri(),))
    monkeypatch.setitem(SOURCES, "cifar10", dataclasses.replace(SOURCES["cifar10"], load=load))
    check(None)
    served.write_bytes(b"something else")
    check(None)  # from the cache
    (tmp_path / "cache" / "cifar10" / ARCHIVE).unlink()
    with pytest.raises(DataError, match=f"cannot download {ARCHIVE}.*not the expected data: md5"):
        load_source("cifar10")


def truncated(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def altered(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[100] ^= 1
    path.write_bytes(bytes(content))


def renamed(path: Path) -> None:
    path.write_bytes(path.with_name("data_batch_1.bin").read_bytes())


@pytest.mark.parametrize("damage", [truncated, altered, renamed])
def test_a_damaged_batch_is_refused_by_its_name(tmp_path: Path, damage: Callable[[Path], None]) -> None:
    folder = write_batches(tmp_path / "mine")
    damage(folder / "data_batch_3.bin")
    with pytest.raises(DataError, match="data_batch_3.bin: not the expected data: sha256"):
        load_source("cifar10", folder)


@pytest.mark.parametrize("damage", [truncated, altered])
def test_a_damaged_archive_is_refused_by_its_name(tmp_path: Path, damage: Callable[[Path], None]) -> None:
    (tmp_path / ARCHIVE).write_bytes(archive_of(ROWS))
    damage(tmp_path / ARCHIVE)
    with pytest.raises(DataError, match=f"{ARCHIVE}: not the expected data: md5"):
        load_source("cifar10", tmp_path)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (
            archive_of({name: rows for name, rows in ROWS.items() if name != "data_batch_2.bin"}),
            "holds no data_batch_2",
        ),
        (archive_of(ROWS | {"test_batch.bin": ROWS["data_batch_1.bin"]}), "not the expected data: sha256"),
        (gzip.compress(b"no archive", mtime=0), "damaged, or not a gzipped tar archive"),
        (b"no archive", "damaged, or not a gzipped tar archive"),
    ],
)
def test_an_archive_that_has_the_sum_is_still_looked_into(
    tmp_path: Path, content: bytes, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ARCHIVE).write_bytes(content)
    sums = SOURCES["cifar10"].sums | {ARCHIVE: f"md5:{hashlib.md5(content, usedforsecurity=False).hexdigest()}"}
    monkeypatch.setitem(SOURCES, "cifar10", dataclasses.replace(SOURCES["cifar10"], sums=sums))
    with pytest.raises(DataError, match=f"{ARCHIVE}: {why}"):
        load_source("cifar10", tmp_path)


@pytest.mark.parametrize("name", ["cifar-10-batches-py/data_batch_1", "data_batch_1", "cifar-10-python.tar.gz"])
def test_pickles_are_refused_by_name_with_the_way_out(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "cifar10" / name
    path.parent.mkdir(parents=True)
    path.write_bytes(b"\x80\x04.")
    with pytest.raises(DataError, match=f"a pickle is never opened: take the binary version, {ARCHIVE}") as caught:
        load_source("cifar10", tmp_path / "cifar10")
    assert str(tmp_path / "cifar10") in str(caught.value)
    monkeypatch.setenv("LACONIC_DATA", str(tmp_path))
    with pytest.raises(DataError, match="a pickle is never opened"):
        load_source("cifar10")


def test_nothing_there(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=f"no complete cifar10 there.*{ARCHIVE} will do as well"):
        load_source("cifar10", tmp_path)
    with pytest.raises(DataError, match="LACONIC_OFFLINE forbids downloads"):
        load_source("cifar10")


@pytest.mark.realdata
def test_the_real_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LACONIC_DATA", REAL or "")
    monkeypatch.setitem(SOURCES, "cifar10", CIFAR10)
    if CIFAR10.locate() is None:
        pytest.skip("LACONIC_DATA has no CIFAR-10")
    source = load_source("cifar10")
    assert isinstance(source.train.inputs, Pictures)
    assert source.train.inputs.pixels.nbytes == 50_000 * 3072
    assert np.bincount(source.train.targets).tolist() == [5000] * 10
    assert np.bincount(source.test.targets).tolist() == [1000] * 10
    means = source.train.inputs.pixels.double().mean((0, 2, 3)) / 255
    assert means.tolist() == pytest.approx([0.4914, 0.4822, 0.4465], abs=5e-5)  # as published in many places
    assert SOURCES["cifar10"].classes[int(source.train.targets[0])] == "frog"
