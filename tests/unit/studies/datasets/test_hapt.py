"""HAPT: people are clients, and no sample is in a training and in a test window."""

from __future__ import annotations

import dataclasses
import hashlib
import io
import os
from pathlib import Path

import numpy as np
import pytest
import torch

from laconic.data.sources import SOURCES, load_source
from laconic.errors import DataError
from laconic_studies.datasets.hapt import HAPT, split_in_time

REAL = os.environ.get("LACONIC_DATA")
RNG = np.random.default_rng(7)


def block(person: int, label: int, count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """So many windows of one activity, each of which begins in the middle of the one before."""
    samples = RNG.normal(size=(64 * (count + 1), 6)).astype(np.float16)
    windows = np.stack([samples[64 * i : 64 * i + 128] for i in range(count)])
    return windows, np.full(count, label, np.uint8), np.full(count, person, np.uint8)


def arrays() -> list[np.ndarray]:
    blocks = [
        block(person, label, count)
        for person in (1, 2, 3)
        for label, count in ((5, 6), (7, 1), (4, 5), (5, 9), (7, 1), (4, 5), (11, 1))
    ]
    return [np.concatenate(parts) for parts in zip(*blocks, strict=True)]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    packed = io.BytesIO()
    np.savez(packed, **dict(zip(("x", "y", "user"), arrays(), strict=True)))
    (tmp_path / "hapt.npz").write_bytes(packed.getvalue())
    sums = {"hapt.npz": f"sha256:{hashlib.sha256(packed.getvalue()).hexdigest()}"}
    monkeypatch.setitem(SOURCES, "hapt", dataclasses.replace(HAPT, sums=sums))
    return tmp_path


def samples_of(windows: np.ndarray) -> set[bytes]:
    return {sample.tobytes() for sample in windows.reshape(-1, 6)}


def test_the_last_fifth_of_each_activity_is_tested_and_shares_no_sample_with_the_rest() -> None:
    windows, labels, people = arrays()
    train, test = split_in_time(windows, labels, people)
    assert not samples_of(windows[train]) & samples_of(windows[test])
    for person in (1, 2, 3):
        for label, count in ((5, 3), (4, 2), (7, 1), (11, 0)):
            tested = test[(people[test] == person) & (labels[test] == label)]
            trained = train[(people[train] == person) & (labels[train] == label)]
            assert len(tested) == count
            assert count == 0 or trained.max() < tested.min()  # in time, too
    # A gap of one window for sitting and for standing, but none for windows that do not overlap.
    assert len(train) + len(test) == len(labels) - 3 * 2


def test_people_are_the_owners(folder: Path) -> None:
    source = load_source("hapt", folder)
    assert source.owners is not None and source.test_owners is not None
    assert sorted(set(source.owners.tolist())) == [1, 2, 3] and len(source.owners) == len(source.train.targets)
    assert len(source.test_owners) == len(source.test.targets) == 18
    assert source.train.inputs.dtype == torch.float32 and source.train.inputs.shape[1:] == (128, 6)
    assert set(source.train.targets.tolist()) == {3, 4, 6, 10} and source.num_classes == 12
    assert [HAPT.classes[label] for label in (3, 4, 6, 10)] == ["sitting", "standing", "stand to sit", "stand to lie"]


def test_a_damaged_file_is_refused_by_its_name(folder: Path, tmp_path: Path) -> None:
    content = (folder / "hapt.npz").read_bytes()
    (folder / "hapt.npz").write_bytes(content[:-1])
    with pytest.raises(DataError, match=r"hapt.npz: not the expected data: sha256.*with an \.npz per person"):
        load_source("hapt", folder)


def test_without_the_file_the_way_to_get_it_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LACONIC_DATA", raising=False)
    monkeypatch.setenv("LACONIC_CACHE", str(tmp_path))
    for given in (None, tmp_path):
        with pytest.raises(DataError, match=r"hapt.*put hapt\.npz \(x: 10,929 x 128 x 6"):
            load_source("hapt", given)


def test_a_file_with_the_sum_but_without_the_arrays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    np.savez(tmp_path / "hapt.npz", x=np.zeros(3))
    sums = {"hapt.npz": f"sha256:{hashlib.sha256((tmp_path / 'hapt.npz').read_bytes()).hexdigest()}"}
    monkeypatch.setitem(SOURCES, "hapt", dataclasses.replace(HAPT, sums=sums))
    with pytest.raises(DataError, match="hapt.npz: damaged, or not the file that was expected"):
        load_source("hapt", tmp_path)


@pytest.mark.realdata
def test_the_real_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LACONIC_DATA", REAL or "")
    if HAPT.locate() is None:
        pytest.skip("LACONIC_DATA has no hapt")
    source = load_source("hapt")
    assert (len(source.train.targets), len(source.test.targets)) == (HAPT.num_train, HAPT.num_test)
    assert source.owners is not None and len(np.unique(source.owners)) == 30
    assert np.bincount(source.test.targets).min() > 10
    whole = [np.asarray(records.inputs).astype(np.float16) for records in (source.train, source.test)]
    # Constant stretches repeat by chance, so single samples may be alike; runs of 16 of them are not.
    runs = [{w[s : s + 16].tobytes() for w in part for s in range(0, 128, 16)} for part in whole]
    assert not runs[0] & runs[1]
