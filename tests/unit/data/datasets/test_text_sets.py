"""The data sets that are texts, from made miniatures; and the real files where they are."""

from __future__ import annotations

import dataclasses
import gzip
import json
import os
from pathlib import Path

import numpy as np
import pytest

from laconic.data.inputs import dense
from laconic.data.sources import SOURCES, load_source, sources_kept
from laconic.errors import ConfigError, DataError

pytestmark = pytest.mark.filterwarnings("error")

REVIEWS = [("Good<br /><br />film", 1), ("bad film", 0)]


def lines(reviews: list[tuple[object, object]]) -> bytes:
    return gzip.compress("".join(json.dumps({"text": t, "label": y}) + "\n" for t, y in reviews).encode(), mtime=0)


def flipped(content: bytes) -> bytes:
    """With a wrong byte where the packed data begin: 3 is no kind of block in RFC 1951."""
    return content[:10] + b"\xff" + content[11:]


def expect(reviews: int, monkeypatch: pytest.MonkeyPatch) -> None:
    info = dataclasses.replace(SOURCES["imdb-text"], num_train=reviews, num_test=reviews)
    monkeypatch.setitem(SOURCES, "imdb-text", info)


@pytest.fixture
def imdb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    expect(3, monkeypatch)
    for part in ("train", "test"):
        (tmp_path / f"{part}.jsonl.gz").write_bytes(lines([*REVIEWS, (f"{part} film", 1)]))
    return tmp_path


def test_reviews_are_words_without_line_ends(imdb: Path) -> None:
    source = load_source("imdb-text", imdb, vocabulary="fit:6")
    assert source.train.targets.tolist() == [1, 0, 1]
    # film is in three reviews, the others in one: bad and good come first in the alphabet
    assert dense(source.train.inputs)[:, 2:].tolist() == [[0, 1, 0, 1], [0, 1, 1, 0], [1, 1, 0, 0]]
    assert "3 words" in source.notes[0]


def write_original(folder: Path) -> None:
    for part in ("train", "test"):
        for label, text in (("pos", "Good<br /><br />film"), ("neg", "bad film")):
            (folder / part / label).mkdir(parents=True)
            (folder / part / label / "0_9.txt").write_text(text)
    (folder / "imdb.vocab").write_text("film\n")


def test_the_original_folder_is_read_as_well(imdb: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listed = load_source("imdb-text", imdb, max_length=5)
    write_original(tmp_path / "mine" / "aclImdb")
    with pytest.raises(DataError, match=r"aclImdb/train: has 2 reviews, not 3; fetch"):
        load_source("imdb-text", tmp_path / "mine")
    expect(2, monkeypatch)
    source = load_source("imdb-text", tmp_path / "mine", max_length=5)
    assert source.train.targets.tolist() == [0, 1]
    assert source.train.inputs.tolist() == [listed.train.inputs[1].tolist(), listed.train.inputs[0].tolist()]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "damaged"),
        (b"no gzip", "damaged"),
        (lines(list(REVIEWS))[:-9], "damaged"),
        (flipped(lines(list(REVIEWS) * 100)), "damaged after line 0 (error)"),
        (gzip.compress(b"[" * 100_000, mtime=0), "damaged after line 0 (RecursionError)"),
        (gzip.compress(b"[" * ((1 << 20) + 1), mtime=0), "line 1 is longer than 1 MiB; fetch"),
        (gzip.compress(b"not json\n", mtime=0), "damaged after line 0"),
        (gzip.compress(b"[1, 2]\n", mtime=0), "line 1 is no review"),
        (lines([(None, 1)]), "line 1 is no review"),
        (lines([("a", 1), ("b", 2)]), "line 2 has no label"),
        (lines([("a", 1), ("b", "pos")]), "line 2 has no label"),
        (lines([("a", 1)]), "one of the two labels"),
        (lines(list(REVIEWS)), "has 2 reviews, not 3; fetch it anew"),
        (gzip.compress('{"text": "müde"}'.encode("latin1"), mtime=0), "damaged"),
    ],
)
def test_damaged_reviews_are_refused_in_a_line(content: bytes, words: str, imdb: Path) -> None:
    (imdb / "test.jsonl.gz").write_bytes(content)
    with pytest.raises(DataError) as caught:
        load_source("imdb-text", imdb)
    assert "test.jsonl.gz" in str(caught.value) and words in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("what", "words"),
    [("pipe", "is a pipe or a device"), ("device", "is a pipe or a device"), ("long", "is longer than 1 MiB")],
)
def test_a_file_of_the_original_folder_that_is_no_review_is_refused(what: str, words: str, tmp_path: Path) -> None:
    write_original(tmp_path)
    file = tmp_path / "train" / "pos" / "1_9.txt"
    if what == "pipe":
        os.mkfifo(file)
    elif what == "device":
        file.symlink_to(os.devnull)
    else:
        file.write_bytes(b"a" * ((1 << 20) + 1))
    with pytest.raises(DataError) as caught:
        load_source("imdb-text", tmp_path)
    assert str(file) in str(caught.value) and words in str(caught.value) and "\n" not in str(caught.value)


def test_an_original_folder_without_reviews_is_refused(tmp_path: Path) -> None:
    (tmp_path / "imdb.vocab").write_text("film\n")
    with pytest.raises(DataError, match=r"neg: no reviews .*unpack aclImdb_v1"):
        load_source("imdb-text", tmp_path)


def test_a_kept_data_set_is_kept_for_the_options_it_was_read_with(imdb: Path) -> None:
    with sources_kept():
        first = load_source("imdb-text", imdb, vocabulary="hash:10")
        assert load_source("imdb-text", imdb, vocabulary="hash:10", max_length=None) is first
        assert load_source("imdb-text", imdb, vocabulary="hash:20").input_shape == (20,)


def test_an_option_that_a_data_set_does_not_take_is_refused() -> None:
    with pytest.raises(ConfigError, match="--max-length means nothing to the data set 'digits'"):
        load_source("digits", max_length=5)
    assert load_source("digits", max_length=None).name == "digits"


@pytest.mark.realdata
def test_the_real_reviews() -> None:
    if SOURCES["imdb-text"].locate() is None:
        pytest.skip("LACONIC_DATA has no imdb-text")
    source, info = load_source("imdb-text"), SOURCES["imdb-text"]
    assert (len(source.train.targets), len(source.test.targets)) == (info.num_train, info.num_test)
    assert np.bincount(source.train.targets).tolist() == np.bincount(source.test.targets).tolist() == [12_500] * 2
