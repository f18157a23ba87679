"""The built-in data sets: where their files are looked for, and what comes out."""

from __future__ import annotations

import dataclasses
import gzip
import hashlib
import os
import shutil
import struct
import sys
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
import torch

from laconic.data import registry, sources
from laconic.data.datasets.pictures import load_idx
from laconic.data.registry import cache_dir, locate, search_dirs
from laconic.data.sources import SOURCES, SourceInfo, load_source
from laconic.errors import ConfigError, DataError

pytestmark = pytest.mark.filterwarnings("error")

PARTS = ("train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1")
FILES = [f"{part}-ubyte.gz" for part in PARTS]
REAL_DATA = os.environ.get("LACONIC_DATA")


def idx_bytes(array: np.ndarray) -> bytes:
    return bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


RNG = np.random.default_rng(3)
SHAPES = ((256, (6, 3, 3)), (10, 6), (256, (2, 3, 3)), (10, 2))
ARRAYS = [RNG.integers(0, top, shape, dtype=np.uint8) for top, shape in SHAPES]
SUMS = [hashlib.sha256(idx_bytes(array)).hexdigest() for array in ARRAYS]
MIRROR = "http://127.0.0.1:9/tiny/"


def write_files(folder: Path) -> Path:
    folder.mkdir(parents=True)
    for name, array in zip(FILES, ARRAYS, strict=True):
        (folder / name).write_bytes(gzip.compress(idx_bytes(array)))
    return folder


@pytest.fixture(autouse=True)
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of the machine's own is seen, and nothing can be downloaded."""
    monkeypatch.delenv("LACONIC_DATA", raising=False)
    monkeypatch.setenv("LACONIC_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("LACONIC_OFFLINE", "1")
    monkeypatch.setattr(registry, "SYSTEM_DATASETS", tmp_path / "system")
    tiny = SourceInfo(
        name="tiny",
        description="six tiny images",
        licence="none",
        origin="this test",
        num_train=6,
        num_test=2,
        input_shape=(1, 3, 3),
        classes=tuple("0123456789"),
        client="a shard",
        default_clients=3,
        load=partial(load_idx, mirrors=[MIRROR]),
        files=tuple(FILES),
        sums={name: f"sha256:{sha256}" for name, sha256 in zip(FILES, SUMS, strict=True)},
    )
    monkeypatch.setitem(SOURCES, "tiny", tiny)


def check_tiny(source: sources.Source) -> None:
    assert source.name == "tiny" and source.description == "six tiny images"
    assert source.num_classes == 10 and source.input_shape == (1, 3, 3)
    assert source.train.inputs.dtype == torch.float32 and source.train.targets.dtype == torch.int64
    np.testing.assert_allclose(source.train.inputs.numpy()[:, 0], ARRAYS[0] / 255, rtol=1e-6)
    np.testing.assert_array_equal(source.train.targets, ARRAYS[1])
    np.testing.assert_allclose(source.test.inputs.numpy()[:, 0], ARRAYS[2] / 255, rtol=1e-6)
    np.testing.assert_array_equal(source.test.targets, ARRAYS[3])


def test_digits() -> None:
    source, info = load_source("digits"), SOURCES["digits"]
    assert (len(source.train.targets), len(source.test.targets)) == (info.num_train, info.num_test)
    assert info.num_records == 1797
    for records in (source.train, source.test):
        assert records.inputs.shape == (len(records.targets), 1, 8, 8)
        assert records.inputs.dtype == torch.float32 and records.targets.dtype == torch.int64
        assert records.inputs.min() == 0 and records.inputs.max() == 1
    classes = np.bincount(source.train.targets) + np.bincount(source.test.targets)
    np.testing.assert_allclose(np.bincount(source.test.targets) / classes, 0.2, atol=0.003)


def test_digits_split_never_changes() -> None:
    first, again = load_source("digits"), load_source("digits", data_dir="ignored")
    assert torch.equal(first.test.inputs, again.test.inputs)
    assert first.test.targets.tolist()[:12] == [1, 3, 6, 1, 2, 3, 9, 5, 1, 7, 6, 1]


def test_digits_without_scikit_learn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn", None)
    with pytest.raises(DataError, match="pip install scikit-learn"):
        load_source("digits")


def test_unknown_name() -> None:
    with pytest.raises(ConfigError, match="did you mean 'fashion-mnist'.*digits.*fashion-mnist.*mnist"):
        load_source("fashion_mnist")


def test_entries_say_what_they_are() -> None:
    for name, info in SOURCES.items():
        assert info.name == name
        assert info.description and "\n" not in info.description and info.licence and info.origin
    assert {"digits", "mnist", "fashion-mnist"} <= set(SOURCES)


@pytest.mark.parametrize("inside", ["", "tiny"])
def test_data_dir(tmp_path: Path, inside: str) -> None:
    write_files(tmp_path / "mine" / inside)
    check_tiny(load_source("tiny", tmp_path / "mine"))


def test_unpacked_files_will_do(tmp_path: Path) -> None:
    folder = write_files(tmp_path / "mine")
    for name in FILES[:3]:
        (folder / name.removesuffix(".gz")).write_bytes(gzip.decompress((folder / name).read_bytes()))
        (folder / name).unlink()
    check_tiny(load_source("tiny", folder))


def test_a_data_dir_without_the_files_is_an_error_whatever_else_there_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_files(tmp_path / "elsewhere" / "tiny")
    monkeypatch.setenv("LACONIC_DATA", str(tmp_path / "elsewhere"))
    mine = write_files(tmp_path / "mine" / "tiny")
    (mine / FILES[2]).unlink()
    with pytest.raises(DataError) as caught:
        load_source("tiny", tmp_path / "mine")
    message = str(caught.value)
    assert f"--data-dir {tmp_path / 'mine'}" in message and f"{mine} or {mine.parent}" in message
    assert all(name in message for name in FILES)
    assert message.endswith(f"{mine} lacks {FILES[2]}")
    with pytest.raises(DataError, match="nowhere is not a folder"):
        load_source("tiny", tmp_path / "nowhere")


def test_an_archive_that_was_unpacked_inside_the_folder_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when cifar-10-binary.tar.gz is unpacked in a folder cifar10."""
    monkeypatch.setitem(SOURCES, "tiny", dataclasses.replace(SOURCES["tiny"], folders=("tiny-bin",)))
    inside = write_files(tmp_path / "data" / "tiny" / "tiny-bin")
    for given in (inside, inside.parent, inside.parent.parent):
        check_tiny(load_source("tiny", given))
    monkeypatch.setenv("LACONIC_DATA", str(tmp_path / "data"))
    check_tiny(load_source("tiny"))


def test_search_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LACONIC_DATA", f"{tmp_path / 'one'}{os.pathsep}{os.pathsep}{tmp_path / 'two'}")
    order = search_dirs("tiny")
    assert order == [tmp_path / place / "tiny" for place in ("one", "two", "cache", "system")]
    for folder in reversed(order):
        write_files(folder)
        found = locate("tiny", FILES)
        assert found == [folder / name for name in FILES]
    (order[0] / FILES[3]).unlink()
    assert locate("tiny", FILES) == [order[1] / name for name in FILES]
    check_tiny(load_source("tiny"))
    for folder in order:
        shutil.rmtree(folder)
    assert locate("tiny", FILES) is None


def test_cache_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("LACONIC_CACHE", "~/kept")
    assert cache_dir() == tmp_path / "kept"
    monkeypatch.delenv("LACONIC_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_dir() == tmp_path / "xdg" / "laconic"
    for useless in ("", "relative/path"):
        monkeypatch.setenv("XDG_CACHE_HOME", useless)
        assert cache_dir() == tmp_path / ".cache" / "laconic"


def test_found_nowhere_and_offline() -> None:
    with pytest.raises(DataError) as caught:
        load_source("tiny")
    assert f"{MIRROR}{FILES[0]}" in str(caught.value) and "--data-dir" in str(caught.value)


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The tiny files on a server; the list of the paths that it was asked for."""
    asked: list[str] = []

    class Handler(SimpleHTTPRequestHandler):
        def log_message(self, *args: object) -> None:
            asked.append(self.path)

    folder = write_files(tmp_path / "served")
    monkeypatch.delenv("LACONIC_OFFLINE")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(folder))) as server:
        load = partial(load_idx, mirrors=[f"http://127.0.0.1:{server.server_port}/"])
        monkeypatch.setitem(SOURCES, "tiny", dataclasses.replace(SOURCES["tiny"], load=load))
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield asked
        server.shutdown()
        thread.join()


def test_downloads_only_what_the_cache_lacks(tmp_path: Path, served: list[str]) -> None:
    cached = write_files(tmp_path / "cache" / "tiny")
    for name in FILES[1:3]:
        (cached / name).unlink()
    check_tiny(load_source("tiny"))
    assert served == [f"/{name}" for name in FILES[1:3]]
    check_tiny(load_source("tiny"))
    assert len(served) == 2


def test_a_mirror_with_other_data_leaves_nothing_in_the_cache(tmp_path: Path, served: list[str]) -> None:
    (tmp_path / "served" / FILES[1]).write_bytes(gzip.compress(idx_bytes(ARRAYS[1][::-1])))
    with pytest.raises(DataError, match="cannot download train-labels.*not the expected data"):
        load_source("tiny")
    assert os.listdir(tmp_path / "cache" / "tiny") == [FILES[0]]


def test_files_of_another_data_set_are_refused(tmp_path: Path) -> None:
    folder = write_files(tmp_path / "mine")
    with pytest.raises(DataError, match="not the expected data: sha256 ba891046e650... expected") as caught:
        load_source("mnist", folder)
    assert str(folder / FILES[0]) in str(caught.value)


@pytest.mark.realdata
@pytest.mark.skipif(not REAL_DATA, reason="LACONIC_DATA does not name a folder with the real files")
@pytest.mark.parametrize(("name", "mean"), [("mnist", 0.1307), ("fashion-mnist", 0.2860)])
def test_real_files(name: str, mean: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LACONIC_DATA", REAL_DATA or "")
    source, info = load_source(name), SOURCES[name]
    assert (len(source.train.targets), len(source.test.targets)) == (info.num_train, info.num_test)
    assert source.train.inputs.shape == (60_000, 1, 28, 28) and source.input_shape == (1, 28, 28)
    assert source.train.inputs.mean().item() == pytest.approx(mean, abs=5e-5)  # as published with the data
    assert np.bincount(source.test.targets, minlength=10).min() > 800


@pytest.mark.realdata
@pytest.mark.skipif(not REAL_DATA, reason="LACONIC_DATA does not name a folder with the real files")
def test_a_truncated_real_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LACONIC_DATA", REAL_DATA or "")
    found = locate("mnist", FILES)
    assert found is not None
    for path in found:
        (tmp_path / path.name).symlink_to(path)
    whole = found[2].read_bytes()
    (tmp_path / found[2].name).unlink()
    (tmp_path / found[2].name).write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError, match="t10k-images-idx3-ubyte.*truncated"):
        load_source("mnist", tmp_path)
