"""A table of admissions, read once: every column encoded as numbers, texts kept in vocabularies.

What is done with a text is done once per distinct text of a block.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from laconic.data.ehr.blocks import Block
from laconic.data.ehr.outcome import Outcome
from laconic.data.ehr.schema import Codes, Filter, Numeric, Schema
from laconic.data.ehr.toml_values import LARGEST
from laconic.data.files.user_file import WAY_OUT, Decimals, Problems, has_comma
from laconic.errors import DataError, one_line


class Vocabulary:
    """Distinct texts, numbered as they come."""

    def __init__(self, texts: Iterable[str] = ()) -> None:
        self._numbers: dict[str, int] = {}
        for text in texts:
            self.number(text)

    def number(self, text: str) -> int:
        return self._numbers.setdefault(text, len(self._numbers))

    @property
    def texts(self) -> list[str]:
        return list(self._numbers)

    def __len__(self) -> int:
        return len(self._numbers)


def distinct(block: Block, column: str, *, codes: bool = False) -> tuple[list[str], np.ndarray]:
    """(distinct texts, which of them each cell is); a cell without a value is the empty text."""
    return _encoded(block, column, _texts(block, column, codes=codes))


GAPS = frozenset({"", "?", "na", "n/a", "#n/a", "<na>", "nan", "null", "missing", "not available"})
"""Texts that stand for no value wherever they occur."""


def numbers(
    block: Block,
    entry: Numeric,
    missing: tuple[str, ...],
    problems: Problems,
    decimals: Decimals | None = None,
    *,
    for_training: bool = True,
) -> np.ndarray:
    """A numeric column as float32, in its own units; NaN where a value is missing that is filled in later.

    In new records (`for_training=False`) the usual words for a gap are gaps, whatever the training records had.
    """
    import pyarrow as pa

    cells = _decoded(block.columns[entry.column])
    if pa.types.is_integer(cells.type) or pa.types.is_floating(cells.type):
        values = cells.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False).copy()
        gone, bad = np.isnan(values), np.isinf(values)
    else:
        texts, which = distinct(block, entry.column)
        plain, wrong = (decimals or Decimals()).with_points(entry.column, texts)
        if wrong:
            commas = np.array([has_comma(text) for text in texts], dtype=bool)[which]
            rows = block.numbers[commas] if commas.any() else None
            problems.add(entry.column, f"not a number: {wrong}", rows, WAY_OUT)
            return np.zeros(len(block.numbers), dtype=np.float32)
        gaps = missing if for_training else (*missing, *(text for text in texts if text.strip().lower() in GAPS))
        known = [_number(text, number, entry, gaps) for text, number in zip(texts, plain, strict=True)]
        values = np.array([np.nan if v is None else v for v in known])[which]
        gone = np.array([v is not None and np.isnan(v) for v in known], dtype=bool)[which]
        bad = np.array([v is None or np.isinf(v) for v in known], dtype=bool)[which]
    large = np.abs(np.where(bad, 0, values)) > LARGEST
    for what, rows, way_out in (
        ("not a number", bad, "mend it, or map such texts with replace (or missing, if they stand for no value)"),
        ("too large for the model's numbers", large, "filter it, or mend it"),
    ):
        if rows.any():
            problems.add(entry.column, what, block.numbers[rows], way_out)
            values[rows] = 0
    if gone.any():
        if entry.fill is None and not entry.gaps:
            way_out = 'give fill = NUMBER, or fill = "median", in its [[numeric]]'
            way_out += "" if for_training else " and train again; or fill the gaps of this table"
            problems.add(entry.column, "no value", block.numbers[gone], way_out)
        kept = entry.gaps or entry.fill is None or isinstance(entry.fill, str)  # what is missing is looked at later
        values[gone] = np.nan if kept else entry.fill
    result: np.ndarray = values.astype(np.float32)
    return result


def levels(block: Block, column: str, vocabulary: Vocabulary, missing: tuple[str, ...]) -> np.ndarray:
    """A categorical column as numbers in the vocabulary, −1 where there is no value."""
    texts, which = distinct(block, column)
    found: np.ndarray = _numbered([None if text in missing else text for text in texts], vocabulary)[which]
    return found


def identities(
    block: Block, column: str, vocabulary: Vocabulary, missing: tuple[str, ...], problems: Problems
) -> np.ndarray:
    """Whose a row is, as numbers in the vocabulary; every row must have a value."""
    found = levels(block, column, vocabulary, missing)
    if (found < 0).any():
        problems.add(column, "no value, so it is nobody's", block.numbers[found < 0], "add it or filter the row")
    return found


def labels(
    block: Block, outcome: Outcome, missing: tuple[str, ...], problems: Problems, decimals: Decimals
) -> np.ndarray:
    """Whether the outcome is there, which of the classes it is, or its number; every row must have a value."""
    column = outcome.label
    if outcome.quantity is not None:
        values = numbers(block, Numeric(column=column, fill="median"), missing, problems, decimals)
        _without_label(block, column, np.isnan(values), problems)
        return values
    texts, which = distinct(block, column)
    named = outcome.positive or outcome.classes
    gone = np.array([text in missing and text not in named for text in texts], dtype=bool)
    _without_label(block, column, gone[which], problems)
    if outcome.positive:
        found: np.ndarray = np.array([text in named for text in texts], dtype=bool)[which]
        return found
    places = {text: place for place, text in enumerate(named)}
    strange = ~gone & np.array([text not in places for text in texts], dtype=bool)
    if strange[which].any():
        way_out = "name it there, or filter such rows"
        problems.add(column, "a value that is none of the schema's classes", block.numbers[strange[which]], way_out)
    classes: np.ndarray = np.array([places.get(text, 0) for text in texts], dtype=np.int64)[which]
    return classes


def _without_label(block: Block, column: str, gone: np.ndarray, problems: Problems) -> None:
    if gone.any():
        way_out = f'filter such rows: [[filter]] with column = "{one_line(column, 60)}" and drop = [""]'
        problems.add(column, "no value, but it is the label", block.numbers[gone], way_out)


def codes(
    block: Block, entry: Codes, vocabulary: Vocabulary, missing: tuple[str, ...]
) -> tuple[np.ndarray, np.ndarray]:
    """(how many codes each row has, their numbers row by row); a code counts once in a row."""
    count = len(block.numbers)
    rows, found = [], []
    for column in entry.columns:
        texts, which, parent = _cells_of_codes(block, column, entry.delimiter)
        _refuse_floats(block, column, entry, texts, which, parent)
        prefix = f"{column}=" if entry.with_column else ""
        gone = {*missing, *entry.drop}
        cleaned = [_code(text, entry.cut_at_dot, gone) for text in texts]
        named = [None if code is None else prefix + code for code in cleaned]
        numbered = _numbered(named, vocabulary)[which]
        rows.append(parent[numbered >= 0])
        found.append(numbered[numbered >= 0])
    return distinct_per_row(np.concatenate(rows), np.concatenate(found), count, max(1, len(vocabulary)))


def distinct_per_row(
    rows: np.ndarray, numbers: np.ndarray, num_rows: int, num_codes: int
) -> tuple[np.ndarray, np.ndarray]:
    """(how many distinct codes each row has, the codes row by row, ascending)."""
    pairs = rows.astype(np.int64) * num_codes + numbers
    pairs.sort()  # np.unique would hash, which is slower here
    if len(pairs):
        pairs = pairs[np.concatenate([[True], np.diff(pairs) > 0])]
    return np.bincount(pairs // num_codes, minlength=num_rows), (pairs % num_codes).astype(np.int32)


def kept_rows(block: Block, entry: Filter, missing: tuple[str, ...]) -> np.ndarray:
    """Which rows a filter keeps."""
    texts, which = distinct(block, entry.column)
    keep = np.array([_passes(text, entry, missing) for text in texts], dtype=object)[which]
    bad = np.array([value is None for value in keep], dtype=bool)
    if bad.any():
        raise block.error(int(bad.argmax()), entry.column, "not a number, but its filter has min or max")
    result: np.ndarray = keep.astype(bool)
    return result


def _passes(text: str, entry: Filter, missing: tuple[str, ...]) -> bool | None:
    if text in entry.drop or (entry.keep is not None and text not in entry.keep):
        return False
    if entry.min is None and entry.max is None:
        return True
    if text in missing:
        return False
    try:
        value = float(text)
    except ValueError:
        return None
    return (entry.min is None or value >= entry.min) and (entry.max is None or value <= entry.max)


def _number(text: str, plain: str, entry: Numeric, missing: tuple[str, ...]) -> float | None:
    """The number, whose decimals have a point in `plain`; NaN for a missing value, None for what is none."""
    if entry.replace is not None and text in entry.replace:
        return entry.replace[text]
    if text in missing:
        return np.nan
    try:
        value = float(plain)
    except ValueError:
        return None
    return np.inf if np.isnan(value) else value  # a text 'nan' is no missing value unless the schema says so


def _code(text: str, cut_at_dot: bool, gone: set[str]) -> str | None:
    code = text.strip()
    if code in gone:
        return None
    return (code.partition(".")[0] if cut_at_dot else code) or None


def _numbered(texts: list[str | None], vocabulary: Vocabulary) -> np.ndarray:
    return np.array([-1 if text is None else vocabulary.number(text) for text in texts], dtype=np.int64)


def _cells_of_codes(block: Block, column: str, delimiter: str | None) -> tuple[list[str], np.ndarray, np.ndarray]:
    """(distinct texts, which of them each part of a cell is, the row of each part)."""
    import pyarrow as pa
    import pyarrow.compute as pc

    cells = block.columns[column]
    if pa.types.is_list(cells.type) or pa.types.is_large_list(cells.type):
        parts = cells
    else:
        cells = _texts(block, column, codes=True)
        if delimiter is None:
            texts, which = _encoded(block, column, cells)
            return texts, which, np.arange(len(cells))
        parts = pc.split_pattern(cells, pattern=delimiter)
    flat = _decoded(pc.list_flatten(parts))
    if pa.types.is_nested(flat.type) or pa.types.is_floating(flat.type):
        raise block.error(0, column, "holds lists of lists or of floating-point numbers; store lists of texts")
    flat = _as_texts(block, column, flat)
    return *_encoded(block, column, flat), np.asarray(pc.list_parent_indices(parts), dtype=np.int64)


def _texts(block: Block, column: str, *, codes: bool = False) -> Any:
    """A column as texts. Whole numbers are taken for their digits; fractions only where they are whole too."""
    import pyarrow as pa
    import pyarrow.compute as pc

    cells = _decoded(block.columns[column])
    if pa.types.is_nested(cells.type):
        raise block.error(0, column, "holds lists; only [[codes]] can")
    if pa.types.is_floating(cells.type):
        if codes:
            raise block.error(
                0, column, "codes stored as floating-point numbers: 008 and 8 are one already; store them as text"
            )
        whole = pc.fill_null(pc.equal(cells, pc.round(cells)), True).to_numpy(zero_copy_only=False)
        if not whole.all():
            raise block.error(int((~whole).argmax()), column, "a fraction, but a name or level is expected")
        large = np.abs(pc.fill_null(cells, 0).to_numpy(zero_copy_only=False)) >= 2.0**63
        if large.any():
            raise block.error(int(large.argmax()), column, "too large a number for a name or level; store it as text")
        cells = cells.cast(pa.int64())
    return _as_texts(block, column, cells)


def _as_texts(block: Block, column: str, cells: Any) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    try:
        if not pa.types.is_duration(cells.type):  # which would read as its number of microseconds, or of others
            return pc.fill_null(cells.cast(pa.string()), "")
    except pa.ArrowException:
        pass
    raise block.error(len(block.numbers), column, f"{cells.type} does not read as text; store it as text")


def _decoded(cells: Any) -> Any:
    """Without a dictionary: the values themselves."""
    import pyarrow as pa

    return cells.dictionary_decode() if pa.types.is_dictionary(cells.type) else cells


def _encoded(block: Block, column: str, cells: Any) -> tuple[list[str], np.ndarray]:
    encoded = cells.dictionary_encode()
    try:
        texts = encoded.dictionary.to_pylist()
    except UnicodeDecodeError:  # a damaged Parquet file; texts of a CSV were looked at before
        raise block.error(len(block.numbers), column, "not UTF-8 text; save the table as UTF-8") from None
    return texts, np.asarray(encoded.indices, dtype=np.int64)


def _refuse_floats(
    block: Block, column: str, entry: Codes, texts: list[str], which: np.ndarray, parent: np.ndarray
) -> None:
    """Codes that all end in '.0' went through a floating-point column; cut at the dot they are whole again."""
    filled = [text for text in texts if text.strip()]
    if not entry.cut_at_dot and filled and all(text.strip().endswith(".0") for text in filled):
        place = int(parent[which == texts.index(filled[0])][0])
        raise block.error(
            place, column, "codes that went through floating-point numbers (all end in .0): export them as text"
        )


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
    groups: dict[str, Levels] = field(default_factory=dict)
    """The columns of the subgroups."""

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
        self._problems, self._decimals = Problems(name), Decimals(schema.separator)
        self._parts: dict[str, list[np.ndarray]] = {}
        self._texts: dict[str, Vocabulary] = {}

    def add(self, block: Block) -> None:
        schema, missing = self._schema, self._schema.missing
        if self._for_training:
            for entry in schema.filters:
                block = block.keep(kept_rows(block, entry, missing))
            self._append("label", labels(block, schema.outcome, missing, self._problems, self._decimals))
            if schema.client:
                vocabulary = self._vocabulary("client")
                self._append("client", identities(block, schema.client, vocabulary, missing, self._problems))
            for column in schema.subgroups:
                key = f"group {column}"
                self._append(key, levels(block, column, self._vocabulary(key), missing))
        self._append("patient", self._patients(block))
        for number in schema.numeric:
            read = numbers(block, number, missing, self._problems, self._decimals, for_training=self._for_training)
            self._append(f"numeric {number.column}", read)
        for level in schema.categorical:
            key = f"categorical {level.column}"
            found = levels(block, level.column, self._vocabulary(key), missing)
            self._append(key, found.astype(np.int32))
        for code in schema.codes:
            key = f"codes {code.name}"
            counts, found = codes(block, code, self._vocabulary(key), missing)
            self._append(f"{key} counts", counts)
            self._append(key, found)

    def _patients(self, block: Block) -> np.ndarray:
        """Whose each row is; without such a column everybody has one row, and is called by its number."""
        vocabulary = self._vocabulary("patient")
        if self._schema.patient is not None:
            return identities(block, self._schema.patient, vocabulary, self._schema.missing, self._problems)
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
            groups={c: self._levels(f"group {c}") for c in schema.subgroups} if self._for_training else {},
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
