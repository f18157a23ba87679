"""Health records with their schema, schemas that mean nothing, and images' labels in IDX files."""

from __future__ import annotations

import datetime
import gzip
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
from user_file_tools import Case, constant, parquet, text_file, zeros_gzipped

SCHEMA = """
label = "died"
positive = "1"
patient = "pid"
virtual_hospitals = 2

[[numeric]]
column = "age"
min = 0
max = 100

[[categorical]]
column = "sex"
levels = ["F", "M"]

[[codes]]
name = "icd"
columns = ["codes"]
delimiter = ";"
vocabulary = ["008", "250"]
"""
COUNT = 40
CELLS: dict[str, list[Any]] = {
    "pid": [f"p{i}" for i in range(COUNT)],
    "died": [i % 2 for i in range(COUNT)],
    "age": [20.5 + i for i in range(COUNT)],
    "sex": ["FM"[i % 2] for i in range(COUNT)],
    "codes": ["008;250" if i % 3 else "" for i in range(COUNT)],
}
RIGHT = (np.array([COUNT * 4 // 5, 6]),)


def csv(**changed: Any) -> str:
    columns = {**CELLS, **changed}
    return "\n".join([",".join(columns), *(",".join(map(str, row)) for row in zip(*columns.values(), strict=True))])


def changed_at(name: str, value: Any) -> list[Any]:
    return [*CELLS[name][:4], value, *CELLS[name][5:]]


def health_cases() -> Iterator[Case]:
    for case in (*_csv(), *_parquet()):
        yield Case(
            case.name,
            "health",
            {**case.files, "schema.toml": constant(SCHEMA.encode())},
            case.expected,
            words=case.words,
        )
    yield from _schemas()
    yield from _idx()


def _csv() -> Iterator[Case]:
    good = csv()
    for name in ("t.csv", "t.csv.gz"):
        for what, text in {
            "as they should be": good,
            "with a byte order mark": "\ufeff" + good,
            "with DOS line ends": good.replace("\n", "\r\n"),
            "with a column that is not looked at": csv(note=['"a\nb"'] * COUNT),
        }.items():
            yield Case(f"health {name} {what}", "", {name: constant(text_file(text, name))}, RIGHT)
    for what, (text, words) in {
        "with the label twice": (good.replace("age", "died", 1), "column 'died' twice"),
        "with a two-line name twice": ('"a","a",' + good.replace("\n", "\n1,2,"), "column 'a' twice"),
        "without a column": (good.replace("age", "a\tge", 1), "missing column 'age'"),
        "without a column of a thousand": (
            good.replace("age", ",".join(f"c{i}" for i in range(1000)), 1),
            "missing column 'age'",
        ),
        "with a word for an age": (csv(age=changed_at("age", "old")), "row 5, column 'age': not a number"),
        "with an infinite age": (csv(age=changed_at("age", "inf")), "row 5, column 'age'"),
        "with an age of 1e39": (csv(age=changed_at("age", "1e39")), "row 5, column 'age': too large"),
        "with an age of 1e999": (csv(age=changed_at("age", "-1e999")), "row 5, column 'age'"),
        "without an age": (csv(age=changed_at("age", "")), "row 5, column 'age': no value"),
        "without a patient": (csv(pid=changed_at("pid", "")), "row 5, column 'pid': no value"),
        "with a surplus cell": (csv(codes=changed_at("codes", "1,2")), "row 5 has more or fewer cells"),
        "with a surplus cell that is no text": (
            csv(codes=changed_at("codes", "1,\udc8a")).encode(errors="surrogateescape"),
            "row 5 has more or fewer cells",
        ),
        "with a code that is no text": (
            csv(codes=changed_at("codes", "\udc8a")).encode(errors="surrogateescape"),
            "row 5, column 'codes': not UTF-8",
        ),
        "with an open quote": (csv(sex=changed_at("sex", '"M')), "row 5 has more or fewer cells"),
        "that are empty": ("", "is empty"),
        "of a header alone": (good.splitlines()[0], ""),
        "with one outcome": (csv(died=[1] * COUNT), "always has the positive value"),
        "in UTF-16": (good.encode("utf-16"), ""),
    }.items():
        yield Case(f"health {what}", "", {"t.csv": constant(text_file(text, "t.csv"))}, words=words)
    for what, line in {"rows": b",,,,\n", "one header": b"x"}.items():
        header = b"" if what == "one header" else good.splitlines()[0].encode() + b"\n"
        yield Case(f"health gzip of 100 MiB of {what}", "", {"t.csv.gz": _gzipped(header, line)})
    cut = text_file(good, "t.csv.gz")[:-12]
    yield Case("health gzip without its end", "", {"t.csv.gz": constant(cut)}, words="damaged")


def _gzipped(header: bytes, line: bytes) -> Any:
    return lambda: zeros_gzipped(header, line, 100)


def _parquet() -> Iterator[Case]:
    decimals = pa.array(CELLS["age"]).cast(pa.decimal128(9, 2))
    lists = [["008", "250"]] * COUNT
    for what, changed in {
        "as it should be": {},
        "with decimals": {"age": decimals},
        "with ages in a dictionary": {"age": pa.array(CELLS["age"]).dictionary_encode()},
        "with lists of codes": {"codes": pa.array(lists)},
        "with large lists of codes": {"codes": pa.array(lists, pa.large_list(pa.string()))},
        "with whole numbers for patients": {"pid": np.arange(COUNT)},
    }.items():
        yield Case(f"health parquet {what}", "", {"t.parquet": constant(parquet({**CELLS, **changed}))}, RIGHT)
    days = pa.array([datetime.timedelta(1)] * COUNT)
    refused: dict[str, tuple[Any, str]] = {
        "with the label twice": ([*CELLS.items(), ("died", CELLS["died"])], "column 'died' twice"),
        "with lists of ages": ({**CELLS, "age": [[1]] * COUNT}, "column 'age': holds lists"),
        "with lists of lists": ({**CELLS, "codes": [[["1"]]] * COUNT}, "column 'codes': holds lists of lists"),
        "with lists of fractions": ({**CELLS, "codes": [[1.5]] * COUNT}, "column 'codes': holds lists of"),
        "with codes as fractions": ({**CELLS, "codes": [250.0] * COUNT}, "codes stored as floating-point"),
        "with raw bytes": ({**CELLS, "sex": [b"\xff\xfe"] * COUNT}, "column 'sex'"),
        "with text that is none": ({**CELLS, "sex": _no_text()}, "column 'sex': not UTF-8"),
        "with durations": ({**CELLS, "age": days}, "column 'age'"),
        "with structures": ({**CELLS, "sex": [{"a": 1}] * COUNT}, "column 'sex': holds lists"),
        "with infinite patients": ({**CELLS, "pid": [float("inf")] * COUNT}, "row 1, column 'pid'"),
        "with patients of 1e300": ({**CELLS, "pid": [1e300] * COUNT}, "row 1, column 'pid': too large"),
        "with NaN": ({**CELLS, "age": changed_at("age", float("nan"))}, "row 5, column 'age': no value"),
        "with ages of 1e200": ({**CELLS, "age": [1e200] * COUNT}, "row 1, column 'age': too large"),
        "without rows": ({name: pa.array([], pa.string()) for name in CELLS}, "no rows"),
    }
    for what, (columns, words) in refused.items():
        yield Case(f"health parquet {what}", "", {"t.parquet": constant(parquet(columns))}, words=words)
    yield Case("health parquet of nothing", "", {"t.parquet": constant(b"")}, words="damaged")
    yield Case("health parquet of 16 million zeros", "", {"t.parquet": _zeros}, words="200 times its size")


def _no_text() -> Any:
    """Bytes that are called text."""
    raw = pa.array([b"\xbb"] * COUNT)
    return pa.Array.from_buffers(pa.string(), COUNT, raw.buffers())


def _zeros() -> bytes:
    zeros = pa.array(np.zeros(16_000_000, dtype=np.int8))
    return parquet(dict.fromkeys(CELLS, zeros))


def _schemas() -> Iterator[Case]:
    columns = np.array(["died", "pid", "age", "sex", "codes"])
    yield Case("schema as it should be", "schema", {"s.toml": constant(SCHEMA.encode())}, (columns,))
    for what, (old, new, words) in {
        "with nan for a bound": ("min = 0", "min = nan", "min must be a finite number"),
        "with inf for a bound": ("max = 100", "max = inf", "max must be a finite number"),
        "with a bound of 400 digits": ("max = 100", "max = 1" + "0" * 400, "max must be a finite number"),
        "with a bound of 5000 digits": ("max = 100", "max = 1" + "0" * 5000, "not valid TOML"),
        "with arrays in arrays": ("min = 0", "min = " + "[" * 5000 + "]" * 5000, "not valid TOML"),
        "with a date for a column": ('"age"', "2020-01-01", "column must be text"),
        "with a separator of two bytes": ('positive = "1"', 'positive = "1"\nseparator = "é"', "separator must be one"),
        "with a line end for a separator": ('positive = "1"', 'positive = "1"\nseparator = "\\n"', "separator must be"),
        "with a quote for a separator": ('positive = "1"', "positive = '1'\nseparator = '\"'", "separator must be"),
        "with a very long text for a number": ("min = 0", f"min = '{'x' * 9999}'", "min must be a finite number"),
        "with a two-line key": ("min = 0", '"mi\\nn" = 0', "unknown key 'mi n'"),
        "with a key twice": ("min = 0", "min = 0\nmin = 1", "not valid TOML"),
        "with fewer than no hospitals": ("virtual_hospitals = 2", "virtual_hospitals = -5", "virtual_hospitals"),
        "with the label for a feature": ('column = "age"', 'column = "died"', "'died' is the label"),
        "with a two-line level twice": ('"F", "M"', '"a\\nb", "a\\nb"', "'a b' is there twice"),
    }.items():
        yield Case(f"schema {what}", "schema", {"s.toml": constant(SCHEMA.replace(old, new).encode())}, words=words)
    for what, content in {
        "of random bytes": bytes(range(256)),
        "of nothing": b"",
        "in UTF-16": SCHEMA.encode("utf-16"),
    }.items():
        yield Case(f"schema {what}", "schema", {"s.toml": constant(content)})


def _idx() -> Iterator[Case]:
    head, values = b"\0\0\x08\x01", bytes(range(7))
    good = head + (7).to_bytes(4, "big") + values
    right = (np.arange(7, dtype=np.uint8),)
    yield Case("idx as it should be", "idx", {"labels": constant(good)}, right)
    yield Case("idx gzipped", "idx", {"labels": constant(gzip.compress(good))}, right)
    for what, content in {
        "that claims 4 GiB": head + (2**32 - 1).to_bytes(4, "big") + values,
        "that claims less": head + (6).to_bytes(4, "big") + values,
        "of three dimensions": b"\0\0\x08\x03" + good[4:],
        "of doubles": b"\0\0\x0e\x01" + good[4:],
        "of nothing": b"",
        "of half a header": good[:6],
        "cut off in its gzip": gzip.compress(good)[:-5],
    }.items():
        yield Case(f"idx {what}", "idx", {"labels": constant(content)})
