"""Texts as inputs of a model: which words they have (sparse), or their words in order, as numbers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from laconic.data.sparse import Inputs, SparseRows
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
    number = vocabulary.number
    rows = [np.fromiter(sorted({number(word) for word in words(text)}), dtype=np.int32) for text in texts]
    lengths = np.fromiter((len(row) for row in rows), dtype=np.int64, count=len(rows))
    indptr = np.concatenate([[0], np.cumsum(lengths)])
    indices = np.concatenate([*rows, np.empty(0, dtype=np.int32)])
    return SparseRows(torch.from_numpy(indptr), torch.from_numpy(indices), vocabulary.size)


def word_numbers(texts: Sequence[str], vocabulary: Vocabulary, length: int) -> Tensor:
    """(texts, length): a start mark and the words; a longer text keeps its last words, a shorter one has zeros before.

    Both as Keras does by default. In 16 bits where the vocabulary fits, as most of what is held in memory is this.
    """
    table = np.full((len(texts), length), PADDING, dtype=np.int16 if vocabulary.size < 1 << 15 else np.int32)
    for row, text in enumerate(texts):
        found = [START, *map(vocabulary.number, words(text))][-length:]
        table[row, length - len(found) :] = found
    return torch.from_numpy(table)
