"""Texts as inputs of a model: which words they have (sparse), or their words in order, as numbers."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from laconic.data.inputs import Inputs
from laconic.data.sparse import SparseRows
from laconic.data.text.vocabulary import PADDING, START, Vocabulary
from laconic.data.text.words import words
from laconic.errors import ConfigError, one_line

MOST_LENGTH = 100_000
_SHOWN, _CHARACTERS = 3, 160


@dataclass(frozen=True)
class Wording:
    """What is left of texts besides their numbers: how many numbers words have, and a few texts to look at."""

    num_words: int
    examples: tuple[tuple[float, str], ...]
    """(target, beginning of the text)."""
    listed: tuple[str, ...] = ()
    """The words, where there is a list of them: without it nobody can use the model."""


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
        raise ConfigError(f"--max-length {max_length}: a text keeps 2 to {MOST_LENGTH:,} words, such as 400")
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
