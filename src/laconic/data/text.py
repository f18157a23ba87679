"""Texts as numbers: a text cut into its words, which number a word has, and a bag of words or the words in order.

What a vocabulary reveals depends on where it is from. A hash needs no data and reveals nothing. A list of the user's
reveals nothing about the clients if it is public. A list that is fitted on the training texts is the clients' own
words: that is said in the privacy statement.

0 is padding, 1 the start of a text and 2 a word that is not in the vocabulary, as in Keras; words are numbered from
3.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from array import array
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from laconic.audience import Sentence
from laconic.data.files.user_file import open_file, refused
from laconic.data.inputs import Inputs, SparseRows
from laconic.errors import ConfigError, DataError, one_line

_WORD = re.compile(r"[^\W_]+(?:'[^\W_]+)*")


def words(text: str) -> list[str]:
    """The words in lower case, without punctuation: letters and digits, with apostrophes inside ("don't").

    Characters that can be written in two ways are written in one (NFC). Scripts without spaces, such as Chinese, give
    one word per run of characters: segment them first.
    """
    if not text.isascii():
        text = unicodedata.normalize("NFC", text).replace("’", "'")
    return _WORD.findall(text.lower())


PADDING, START, UNKNOWN, FIRST_WORD = 0, 1, 2, 3
DEFAULT, FITTED = "hash:5000", "fit:"
MOST_WORDS = 1_000_000
_MOST_BYTES = 1 << 25
_LONGEST = 100
_KINDS = ("hash", "fit")


class Vocabulary(Protocol):
    """Numbers for words."""

    @property
    def size(self) -> int:
        """How many numbers there are, those of padding, start and unknown words among them."""

    @property
    def listed(self) -> tuple[str, ...]:
        """The words in the order of their numbers; none where any word has one."""

    @property
    def revealed(self) -> tuple[Sentence, ...]:
        """What the privacy statement must say about it."""

    def numbers(self, words: Iterable[str]) -> list[int]:
        """The number of each word."""


class _Hashes(dict[str, int]):
    """Every word is hashed once."""

    def __init__(self, size: int) -> None:
        self._size = size

    def __missing__(self, word: str) -> int:
        digest = hashlib.blake2b(word.encode("utf-8", "surrogatepass"), digest_size=8).digest()
        self[word] = number = FIRST_WORD + int.from_bytes(digest, "little") % (self._size - FIRST_WORD)
        return number


@dataclass(frozen=True, kw_only=True)
class HashedWords:
    """3 + (BLAKE2b of the word mod size − 3): fixed before any text was seen. Some words share a number."""

    size: int
    listed: tuple[str, ...] = ()
    revealed: tuple[Sentence, ...] = ()
    _hashes: _Hashes = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_hashes", _Hashes(self.size))

    def numbers(self, words: Iterable[str]) -> list[int]:
        hashes = self._hashes
        return [hashes[word] for word in words]


@dataclass(frozen=True, kw_only=True)
class ListedWords:
    """The words of a list, in its order; all others are unknown."""

    listed: tuple[str, ...]
    revealed: tuple[Sentence, ...] = ()
    _numbers: dict[str, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_numbers", {word: FIRST_WORD + i for i, word in enumerate(self.listed)})

    @property
    def size(self) -> int:
        return FIRST_WORD + len(self.listed)

    def numbers(self, words: Iterable[str]) -> list[int]:
        known = self._numbers
        return [known.get(word, UNKNOWN) for word in words]


def vocabulary_of(wanted: str | None, texts: Iterable[str]) -> Vocabulary:
    """The vocabulary that the option asks for: hash:N, fit:N or a file. `texts` are looked at only to fit one."""
    wanted = DEFAULT if wanted is None else wanted
    kind, colon, number = wanted.partition(":")
    if colon and kind in _KINDS:
        size = _size(wanted, number)
        return HashedWords(size=size) if kind == "hash" else fitted(texts, size)
    file = Path(wanted).expanduser()
    if file.is_file():
        return read_words(file)
    raise ConfigError(
        f"⟨vocabulary⟩ {wanted}: neither hash:N, fit:N nor a file that is there; write hash:5000, or name a file with"
        " one word per line"
    )


def fitted(texts: Iterable[str], size: int) -> ListedWords:
    """The words that most texts contain, as many as there are numbers for; of equals the first in the alphabet."""
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(set(words(text)))
    most = sorted(counts, key=lambda word: (-counts[word], word))[: size - FIRST_WORD]
    if not most:
        raise DataError(f"⟨vocabulary⟩ fit:{size}: there is no word in the training texts; check ⟨text-column⟩")
    note = (
        f"the vocabulary is the {len(most):,} words that occur in most of the clients' own texts: choosing it is not"
        " charged to ε, and a rare name in it shows that somebody wrote it (--vocabulary hash:N reveals nothing)"
    )
    return ListedWords(listed=tuple(most), revealed=(Sentence.public(note),))


def read_words(file: Path) -> ListedWords:
    """A list of words, one per line, in UTF-8."""
    if file.stat().st_size > _MOST_BYTES:
        raise refused(file, f"larger than {_MOST_BYTES >> 20} MiB: is this a list of words, one per line?")
    try:
        with open_file(file) as opened:
            lines = opened.read().decode("utf-8-sig").splitlines()
    except UnicodeDecodeError:
        raise refused(file, "is not UTF-8 text; save the list of words as UTF-8") from None
    except OSError as error:
        raise refused(file, f"cannot be read ({error.strerror or error})") from None
    if not lines:
        raise refused(file, "is empty; a vocabulary is a list of words, one per line")
    if len(lines) > MOST_WORDS:
        raise refused(file, f"has {len(lines):,} lines, more than {MOST_WORDS:,}; keep the most frequent words")
    found: dict[str, int] = {}
    for number, line in enumerate(lines, 1):
        word = line.strip()
        if len(word) > _LONGEST or words(word) != [word]:
            why = "has no word" if not word else "is not one word in lower case without punctuation"
            raise refused(file, f"line {number} {why}; write one word per line")
        if word in found:
            raise refused(file, f"line {number} repeats line {found[word]}; name every word once")
        found[word] = number
    name = one_line(file.name)
    note = f"the vocabulary is the list in {name}: it is public only if the clients' texts had no part in it"
    return ListedWords(listed=tuple(found), revealed=(Sentence.public(note),))


def _size(wanted: str, number: str) -> int:
    if not number.isascii() or not number.isdigit() or not FIRST_WORD < int(number[:9]) <= MOST_WORDS:
        raise ConfigError(
            f"⟨vocabulary⟩ {wanted}: after the colon comes how many words there are, 4 to {MOST_WORDS:,}, such as 5000"
        )
    return int(number)


MOST_LENGTH = 100_000
_SHOWN, _CHARACTERS = 3, 160


@dataclass(frozen=True)
class Wording:
    """What is left of texts besides their numbers: how many numbers words have, and a few texts to look at."""

    num_words: int
    examples: tuple[tuple[float, str], ...]
    """(target, beginning of the text)."""
    listed: tuple[str, ...] = ()
    """The words, where there is a list of them: without it the model cannot be used."""


def wording(texts: Sequence[str], targets: Tensor, vocabulary: Vocabulary) -> Wording:
    """With texts of as many targets as can be: of each the first that is not shown yet."""
    examples: list[tuple[float, str]] = []
    for target in np.unique(targets.numpy())[:_SHOWN].tolist():
        rows = (targets == target).nonzero()[:100, 0].tolist()
        shown = {text for _, text in examples}
        beginnings = (one_line(texts[row].strip(), _CHARACTERS) for row in rows)
        examples += [(target, next((text for text in beginnings if text not in shown), ""))]
    return Wording(vocabulary.size, tuple(examples), vocabulary.listed)


def encoded(texts: Sequence[str], vocabulary: Vocabulary, max_length: int | None) -> Inputs:
    """Bags of words without a length; numbers in order with one."""
    if max_length is None:
        return bags_of_words(texts, vocabulary)
    if not 1 < max_length <= MOST_LENGTH:
        raise ConfigError(f"⟨max-length⟩ {max_length}: a text keeps 2 to {MOST_LENGTH:,} words, such as 400")
    return word_numbers(texts, vocabulary, max_length)


def bags_of_words(texts: Sequence[str], vocabulary: Vocabulary) -> SparseRows:
    """(texts, vocabulary): 1 where the text has the word, however often; 0 elsewhere."""
    numbers, lengths = array("i"), np.empty(len(texts), dtype=np.int64)
    for row, text in enumerate(texts):
        found = vocabulary.numbers(words(text))
        numbers.extend(found)
        lengths[row] = len(found)
    rows = np.repeat(np.arange(len(texts)), lengths)
    places = np.sort(rows * vocabulary.size + np.frombuffer(numbers, dtype=np.int32))
    places = places[np.diff(places, prepend=-1) > 0]  # np.unique hashes, which takes many times as long here
    rows, columns = np.divmod(places, vocabulary.size)
    indptr = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=len(texts)))])
    return SparseRows(torch.from_numpy(indptr), torch.from_numpy(columns.astype(np.int32)), vocabulary.size)


def word_numbers(texts: Sequence[str], vocabulary: Vocabulary, length: int) -> Tensor:
    """(texts, length): a start mark and the words; a longer text keeps its last words, a shorter one has zeros before.

    Both as Keras does by default. In 32 bits, which layers that look words up take as well as 64.
    """
    table = np.full((len(texts), length), PADDING, dtype=np.int32)
    for row, text in enumerate(texts):
        found = [START, *vocabulary.numbers(words(text))][-length:]
        table[row, length - len(found) :] = found
    return torch.from_numpy(table)
