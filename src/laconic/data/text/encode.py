"""Texts as inputs of a model: which words they have (sparse), or their words in order, as numbers."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from laconic.data.inputs import Inputs
from laconic.data.sparse import SparseRows
from laconic.data.text.vocabulary import PADDING, START, Vocabulary
from laconic.data.text.words import words
from laconic.errors import ConfigError

MOST_LENGTH = 100_000


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

    Both as Keras does by default. In 16 bits where the vocabulary fits, as most of what is held in memory is this.
    """
    table = np.full((len(texts), length), PADDING, dtype=np.int16 if vocabulary.size < 1 << 15 else np.int32)
    for row, text in enumerate(texts):
        found = [START, *vocabulary.numbers(words(text))][-length:]
        table[row, length - len(found) :] = found
    return torch.from_numpy(table)
