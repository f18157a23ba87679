"""Words and their numbers: what a text is cut into, and where a vocabulary is from."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from laconic.data.inputs import SparseRows
from laconic.data.text import (
    FIRST_WORD,
    HashedWords,
    ListedWords,
    bags_of_words,
    encoded,
    fitted,
    vocabulary_of,
    word_numbers,
    wording,
    words,
)
from laconic.errors import ConfigError, LaconicError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Don't PANIC!", ["don't", "panic"]),
        ("don’t", ["don't"]),
        ("'quoted' -- a_b, 42nd.", ["quoted", "a", "b", "42nd"]),
        ("cafe\u0301 café", ["café", "café"]),
        ("ΣΊΣΥΦΟΣ Жук", ["σίσυφος", "жук"]),
        ("…!? \n", []),
    ],
)
def test_a_text_is_cut_into_words(text: str, expected: list[str]) -> None:
    assert words(text) == expected


def test_hashed_words_have_the_same_numbers_everywhere_and_never_a_mark() -> None:
    vocabulary = HashedWords(size=5000)
    assert vocabulary.numbers(["good", "bad", "the"]) == [833, 3102, 4789]
    numbers = HashedWords(size=10).numbers(f"word{i}" for i in range(500))
    assert set(numbers) == set(range(FIRST_WORD, 10))
    assert vocabulary.revealed == ()


def test_a_fitted_vocabulary_counts_texts_not_occurrences_and_says_what_it_reveals() -> None:
    vocabulary = fitted(["b b b b a", "a c", "c a"], size=5)
    assert vocabulary.listed == ("a", "c") and vocabulary.size == 5
    assert vocabulary.numbers("acb") == [3, 4, 2]
    assert "not charged" in vocabulary.revealed[0] and "2 words" in vocabulary.revealed[0]


def test_a_hash_does_not_look_at_the_texts() -> None:
    def private() -> object:
        raise AssertionError("looked at")
        yield

    assert vocabulary_of("hash:100", private()).size == 100  # type: ignore[arg-type]
    assert vocabulary_of(None, private()).size == 5000  # type: ignore[arg-type]


def test_a_list_of_words_is_read_in_its_order(tmp_path: Path) -> None:
    (tmp_path / "list.txt").write_bytes(b"\xef\xbb\xbfgood\r\nbad\r\n")
    vocabulary = vocabulary_of(str(tmp_path / "list.txt"), [])
    assert isinstance(vocabulary, ListedWords) and vocabulary.listed == ("good", "bad")
    assert vocabulary.revealed[0].startswith("the vocabulary is the list in list.txt: it is public only if")


BAD_FILES = {
    "empty": (b"", "is empty"),
    "duplicate": (b"good\nbad\ngood\n", "line 3 repeats line 1"),
    "blank line": (b"good\n\nbad\n", "line 2 has no word"),
    "two words": (b"good\nvery bad\n", "line 2 is not one word"),
    "capitals": (b"good\nBad\n", "line 2 is not one word in lower case"),
    "punctuation": (b"good!\n", "line 1 is not one word"),
    "latin-1": ("müde\n".encode("latin1"), "not UTF-8"),
    "counts": (b"good,17\n", "line 1 is not one word"),
    "long": (b"a" * 101, "line 1 is not one word"),
    "binary": (bytes(range(256)), "not UTF-8"),
    "huge": (b"a\n" * (1 << 24) + b"b", "MiB"),
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_a_bad_list_of_words_is_refused_with_its_line(name: str, tmp_path: Path) -> None:
    content, expected = BAD_FILES[name]
    (tmp_path / "list.txt").write_bytes(content)
    with pytest.raises(LaconicError, match=expected) as caught:
        vocabulary_of(str(tmp_path / "list.txt"), [])
    assert "list.txt" in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "wanted", ["hash:", "hash:3", "hash:-5", "fit:1e4", "hash:²", "fit:99999999999", "nowhere", "hsh:5"]
)
def test_a_bad_option_is_refused_with_an_example(wanted: str) -> None:
    with pytest.raises(ConfigError, match=r"--vocabulary .*5000") as caught:
        vocabulary_of(wanted, ["some text"])
    assert "\n" not in str(caught.value)


def test_fitting_on_texts_without_words_is_refused() -> None:
    with pytest.raises(LaconicError, match="no word"):
        fitted(["...", ""], size=10)


def test_a_bag_of_words_says_which_words_a_text_has() -> None:
    rows = bags_of_words(["a b a", "", "zebra"], ListedWords(listed=("a", "b")))
    assert isinstance(rows, SparseRows) and rows.problem() is None
    assert rows.dense().tolist() == [[0, 0, 0, 1, 1], [0, 0, 0, 0, 0], [0, 0, 1, 0, 0]]
    assert bags_of_words(["one two three", "..."], HashedWords(size=4)).indices.tolist() == [3]


def test_numbers_in_order_begin_with_a_mark_and_keep_the_last_words() -> None:
    table = word_numbers(["a b", "", "b b b a"], ListedWords(listed=("a", "b")), 4)
    assert table.tolist() == [[0, 1, 3, 4], [0, 0, 0, 1], [4, 4, 4, 3]]
    assert table.dtype == torch.int32


def test_a_few_texts_are_kept_to_look_at() -> None:
    found = wording(["a\nb", "a\nb", "c" * 999], torch.tensor([0, 1, 1]), HashedWords(size=10))
    assert found.num_words == 10 and [target for target, _ in found.examples] == [0, 1]
    assert found.examples[0][1] == "a b" and len(found.examples[1][1]) == 160  # not the same text twice


@pytest.mark.parametrize("length", [0, 1, -3, 10**9])
def test_a_length_that_keeps_nothing_or_too_much_is_refused(length: int) -> None:
    with pytest.raises(ConfigError, match="--max-length"):
        encoded(["a"], HashedWords(size=10), length)
