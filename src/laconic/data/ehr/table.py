"""A table of admissions, read once: every column encoded as numbers, texts kept in vocabularies."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from laconic.data.ehr import columns as encode
from laconic.data.ehr.blocks import Block
from laconic.data.ehr.columns import Vocabulary
from laconic.data.ehr.schema import Schema
from laconic.data.files.problems import Problems
from laconic.errors import DataError


@dataclass(frozen=True)
class Levels:
    """A categorical column: a number in `texts` per row, −1 where there is no value."""

    numbers: np.ndarray
    texts: list[str]


@dataclass(frozen=True)
class CodeLists:
    """The codes of every row: `numbers[starts[i]:starts[i + 1]]` in `texts` are those of row i."""

    starts: np.ndarray
    numbers: np.ndarray
    texts: list[str]


@dataclass(frozen=True)
class EhrTable:
    """Admissions: outcome, whose they are, and the columns of the features by name."""

    name: str
    patients: Levels
    labels: np.ndarray | None = None
    clients: Levels | None = None
    numeric: dict[str, np.ndarray] = field(default_factory=dict)
    categorical: dict[str, Levels] = field(default_factory=dict)
    codes: dict[str, CodeLists] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.patients.numbers)


def encode_table(schema: Schema, name: str, blocks: Iterator[Block], *, for_training: bool = True) -> EhrTable:
    """All blocks of a table. New patients (`for_training=False`) need no label, no client, and pass no filters."""
    collector = _Collector(schema, name, for_training)
    for block in blocks:
        collector.add(block)
    return collector.table()


class _Collector:
    def __init__(self, schema: Schema, name: str, for_training: bool) -> None:
        self._schema, self._name, self._for_training = schema, name, for_training
        self._problems = Problems(name)
        self._parts: dict[str, list[np.ndarray]] = {}
        self._texts: dict[str, Vocabulary] = {}

    def add(self, block: Block) -> None:
        schema, missing = self._schema, self._schema.missing
        if self._for_training:
            for entry in schema.filters:
                block = block.keep(encode.kept_rows(block, entry, missing))
            self._append("label", encode.labels(block, schema.label, schema.positive, missing, self._problems))
            if schema.client:
                vocabulary = self._vocabulary("client")
                self._append("client", encode.identities(block, schema.client, vocabulary, missing, self._problems))
        self._append("patient", self._patients(block))
        for number in schema.numeric:
            self._append(f"numeric {number.column}", encode.numbers(block, number, missing, self._problems))
        for level in schema.categorical:
            key = f"categorical {level.column}"
            found = encode.levels(block, level.column, self._vocabulary(key), missing)
            self._append(key, found.astype(np.int32))
        for code in schema.codes:
            key = f"codes {code.name}"
            counts, found = encode.codes(block, code, self._vocabulary(key), missing)
            self._append(f"{key} counts", counts)
            self._append(key, found)

    def _patients(self, block: Block) -> np.ndarray:
        """Whose each row is; without such a column everybody has one row, and is called by its number."""
        vocabulary = self._vocabulary("patient")
        if self._schema.patient is not None:
            return encode.identities(block, self._schema.patient, vocabulary, self._schema.missing, self._problems)
        return np.array([vocabulary.number(str(number)) for number in block.numbers], dtype=np.int64)

    def table(self) -> EhrTable:
        schema, name = self._schema, self._name
        if self._problems:
            raise self._problems.error()
        if not self._parts.get("patient") or not sum(map(len, self._parts["patient"])):
            kept = " that its filters keep" if schema.filters and self._for_training else ""
            raise DataError(f"{name}: no rows{kept}")
        return EhrTable(
            name,
            patients=self._levels("patient"),
            labels=self._joined("label") if self._for_training else None,
            clients=self._levels("client") if self._for_training and schema.client else None,
            numeric={n.column: self._joined(f"numeric {n.column}") for n in schema.numeric},
            categorical={c.column: self._levels(f"categorical {c.column}") for c in schema.categorical},
            codes={c.name: self._codes(f"codes {c.name}") for c in schema.codes},
        )

    def _append(self, key: str, values: np.ndarray) -> None:
        self._parts.setdefault(key, []).append(values)

    def _vocabulary(self, key: str) -> Vocabulary:
        return self._texts.setdefault(key, Vocabulary())

    def _joined(self, key: str) -> np.ndarray:
        return np.concatenate(self._parts.pop(key))

    def _levels(self, key: str) -> Levels:
        return Levels(self._joined(key), self._texts[key].texts)

    def _codes(self, key: str) -> CodeLists:
        starts = np.concatenate([[0], np.cumsum(self._joined(f"{key} counts"))])
        return CodeLists(starts, self._joined(key), self._texts[key].texts)
