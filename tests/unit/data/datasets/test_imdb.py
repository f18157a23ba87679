"""IMDB's reviews as Keras numbers and pads them."""

from __future__ import annotations

import dataclasses
import hashlib
import io
import lzma
import os
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from laconic.data import registry
from laconic.data.datasets.imdb import CONVERSION, IMDB, OWN, PACKED, pad
from laconic.data.sources import SOURCES, load_source
from laconic.errors import DataError

REAL = os.environ.get("LACONIC_DATA")
REVIEWS = [[14, 22, 2], list(range(100, 600)), [], list(range(10, 409)), list(range(10, 410))]
LABELS = [1, 1, 1, 0, 0]


def arrays_of(reviews: list[list[int]], labels: list[int]) -> dict[str, np.ndarray]:
    tokens = np.concatenate([np.array(review, dtype=np.uint16) for review in reviews])
    offsets = np.cumsum([0, *map(len, reviews)]).astype(np.int32)
    both = {f"{part}_{name}": a for part in ("train", "test") for name, a in (("tokens", tokens), ("offsets", offsets))}
    return both | {f"y_{part}": np.array(labels, dtype=np.uint8) for part in ("train", "test")}


def packed(arrays: dict[str, Any]) -> bytes:
    plain = io.BytesIO()
    np.savez(plain, **arrays)
    return lzma.compress(plain.getvalue())


@pytest.fixture(autouse=True)
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LACONIC_DATA", raising=False)
    monkeypatch.setenv("LACONIC_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(registry, "SYSTEM_DATASETS", tmp_path / "system")


def write(folder: Path, monkeypatch: pytest.MonkeyPatch, arrays: dict[str, Any]) -> Path:
    content = packed(arrays)
    (folder / PACKED).write_bytes(content)
    sums = {PACKED: f"sha256:{hashlib.sha256(content).hexdigest()}"}
    monkeypatch.setitem(SOURCES, "imdb", dataclasses.replace(IMDB, sums=sums))
    return folder


def check(folder: Path) -> None:
    source = load_source("imdb", folder)
    assert source.input_shape == (400,) and source.num_classes == 2
    assert source.train.inputs.dtype == torch.int64 and source.train.targets.dtype == torch.int64
    expected = {(*([0] * (399 - len(r))), *([1] if len(r) < 400 else []), *r[-400:]) for r in REVIEWS}
    assert {tuple(row) for row in source.train.inputs.tolist()} == expected
    assert sorted(source.train.targets.tolist()) == sorted(LABELS)
    by_review = dict(zip(map(tuple, source.train.inputs.tolist()), source.train.targets.tolist(), strict=True))
    assert by_review[*([0] * 396), 1, 14, 22, 2] == 1 and by_review[1, *range(10, 409)] == 0


def test_reviews_are_padded_in_front_and_lose_their_beginnings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check(write(tmp_path, monkeypatch, arrays_of(REVIEWS, LABELS)))


def test_padding_by_hand() -> None:
    tokens, offsets = np.array([5, 6, 7, 8, 9]), np.array([0, 2, 2, 5])
    assert pad(tokens, offsets, 3).tolist() == [[1, 5, 6], [0, 0, 1], [7, 8, 9]]
    assert pad(tokens[:0], np.array([0, 0]), 2).tolist() == [[0, 1]]


def test_the_order_is_shuffled_and_always_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arrays = arrays_of([[10 + number] for number in range(40)], [1] * 20 + [0] * 20)
    folder = write(tmp_path, monkeypatch, arrays)
    first, again = load_source("imdb", folder), load_source("imdb", folder)
    assert torch.equal(first.train.inputs, again.train.inputs)
    assert 3 < int(first.train.targets[:20].sum()) < 17
    assert ((first.train.inputs[:, -1] < 30).long() == first.train.targets).all()


def test_a_file_of_the_users_own_without_a_sum(tmp_path: Path) -> None:
    np.savez(tmp_path / OWN, **arrays_of(REVIEWS, LABELS))
    check(tmp_path)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"train_tokens": np.array([1, 14, 22])}, "offsets must rise from 0 to the number of tokens, 3"),
        ({"train_tokens": np.full(1302, 1)}, "leave out padding and start marks"),
        ({"test_tokens": np.full(1302, 5000)}, "test: tokens from 5000 to 5000, but words are 2 to 4999"),
        ({"train_offsets": np.array([0, 3, 2, 503, 902, 1302])}, "offsets must rise from 0"),
        ({"y_train": np.array([0, 1])}, "2 labels need 3 offsets, not 6"),
        ({"y_train": np.full(5, 2)}, "labels must be 0 \\(negative\\) or 1"),
        ({"y_test": np.zeros(5)}, "must be lists of whole numbers"),
    ],
)
def test_a_file_of_the_users_own_that_is_wrong_is_refused(tmp_path: Path, change: dict[str, Any], why: str) -> None:
    np.savez(tmp_path / OWN, **(arrays_of(REVIEWS, LABELS) | change))
    with pytest.raises(DataError, match=f"{OWN}: .*{why}"):
        load_source("imdb", tmp_path)


def test_many_reviews_without_words_are_refused_before_they_are_padded(tmp_path: Path) -> None:
    nothing, number = np.zeros(0, dtype=np.uint8), 170_000
    many = {"train_tokens": nothing, "train_offsets": np.zeros(number + 1, dtype=np.uint8)}
    np.savez(tmp_path / OWN, **(arrays_of(REVIEWS, LABELS) | many | {"y_train": np.zeros(number, dtype=np.uint8)}))
    with pytest.raises(DataError, match=f"{OWN}: train: 170,000 reviews, more than the 167,772 that are read; write"):
        load_source("imdb", tmp_path)


def test_pickled_arrays_are_never_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    objects = arrays_of(REVIEWS, LABELS) | {"train_tokens": np.array([object()])}
    np.savez(tmp_path / OWN, **objects)
    with pytest.raises(DataError, match="a pickle is never opened"):
        load_source("imdb", tmp_path)
    (tmp_path / OWN).unlink()
    with pytest.raises(DataError, match=f"{PACKED}: damaged"):
        load_source("imdb", write(tmp_path, monkeypatch, objects))


def test_keras_own_file_is_refused_by_name_with_the_way_out(tmp_path: Path) -> None:
    (tmp_path / "imdb.npz").write_bytes(b"PK")
    with pytest.raises(DataError, match=f"imdb.npz is Keras' file.*write {OWN} with Keras itself") as caught:
        load_source("imdb", tmp_path)
    assert "\n" not in str(caught.value)
    assert f'python -c "{CONVERSION}"' in str(caught.value) and '"' not in CONVERSION  # as it is typed


def test_the_line_for_keras_writes_the_file_that_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, Any] = {}

    def load_data(**options: Any) -> Any:
        asked.update(options)
        reviews = np.empty(len(REVIEWS), dtype=object)
        reviews[:] = REVIEWS
        return (reviews, np.array(LABELS)), (reviews, np.array(LABELS))

    keras = types.SimpleNamespace(datasets=types.SimpleNamespace(imdb=types.SimpleNamespace(load_data=load_data)))
    monkeypatch.setitem(sys.modules, "keras", keras)
    monkeypatch.chdir(tmp_path)
    exec(CONVERSION, {})
    assert asked == {"num_words": 5000, "start_char": None}
    check(tmp_path)


@pytest.mark.parametrize("damage", ["truncated", "altered"])
def test_a_damaged_file_is_refused_by_its_name(tmp_path: Path, damage: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path, monkeypatch, arrays_of(REVIEWS, LABELS)) / PACKED
    content = path.read_bytes()
    path.write_bytes(content[:-4] if damage == "truncated" else content[:50] + b"?" + content[51:])
    with pytest.raises(DataError, match=f"{PACKED}: not the expected data: sha256"):
        load_source("imdb", tmp_path)


def test_not_there(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="not for download in this form: write imdb_tokens.npz with Keras"):
        load_source("imdb")
    with pytest.raises(DataError, match=f"no complete imdb there.*{OWN} will do as well; to get it, write {OWN}"):
        load_source("imdb", tmp_path)


@pytest.mark.realdata
def test_the_real_reviews(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LACONIC_DATA", REAL or "")
    if IMDB.locate() is None:
        pytest.skip("LACONIC_DATA has no imdb")
    source = load_source("imdb")
    for records, share in ((source.train, 0.139), (source.test, 0.127)):
        assert records.inputs.shape == (25_000, 400) and np.bincount(records.targets).tolist() == [12_500, 12_500]
        assert isinstance(records.inputs, torch.Tensor)
        assert int(records.inputs.min()) >= 0 and int(records.inputs.max()) == 4999
        # The start mark is gone from reviews of 400 words or more: 13.9 % and 12.7 % of them.
        assert float((records.inputs == 1).any(1).float().mean()) == pytest.approx(1 - share, abs=6e-4)
        assert 10_000 < 20_000 * float(records.targets[:2000].float().mean()) + 500 < 11_000
