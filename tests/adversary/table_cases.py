"""Tables, as one client's file and as one for all: CSV, plain and gzipped, and Parquet."""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
from user_file_tools import Case, constant, parquet, text_file, zeros_gzipped

HEADER, ROWS = "x,z,target", ["1,0.5,0", "2,1.5,1", "3,2.5,1"]
PLAIN = "\n".join([HEADER, *ROWS]) + "\n"
INPUTS, TARGETS = np.array([[1, 0.5], [2, 1.5], [3, 2.5]], dtype=np.float32), np.array([0, 1, 1])
RIGHT = (INPUTS, TARGETS)

READ_RIGHT: dict[str, str | bytes] = {
    "as it should be": PLAIN,
    "with a byte order mark": b"\xef\xbb\xbf" + PLAIN.encode(),
    "with DOS line ends": PLAIN.replace("\n", "\r\n"),
    "with old Mac line ends": PLAIN.replace("\n", "\r"),
    "without a last line end": PLAIN.rstrip(),
    "with blank lines": "\n" + PLAIN.replace("\n", "\n\n"),
    "with quoted numbers": PLAIN.replace("0.5", '"0.5"').replace("2,1", '"2",1'),
    "with quoted names": PLAIN.replace("x,z", '"x","z"'),
    "with a line end in a name": PLAIN.replace("x,z", '"x\nx",z'),
    "with a comma in a name": PLAIN.replace("x,z", '"x,x",z'),
    "with names in Greek": PLAIN.replace("x,z", "ξ,ζ"),
    "with spaces before numbers": PLAIN.replace(",0.5", ",  0.5"),
    "with exponents": PLAIN.replace("0.5", "5e-1").replace("2.5", "25E-1"),
    "with semicolons": PLAIN.replace(",", ";"),
    "with semicolons and decimal commas": PLAIN.replace(",", ";").replace(".", ","),
    "with signs": PLAIN.replace("0.5", "+0.5").replace("\n1,", "\n+1,"),
    "with leading zeros": PLAIN.replace("\n2,", "\n002,"),
    "with names that look repeated": PLAIN.replace("x,z", "x,x.1"),
    "with a name that looks made up": PLAIN.replace("x,z", "Unnamed: 0,z"),
    "with a comma at every end": PLAIN.replace(",0\n", ",0,\n").replace(",1\n", ",1,\n"),
    "with truth values as labels": PLAIN.replace(",0\n", ",False\n").replace(",1\n", ",True\n"),
}
REFUSED: dict[str, tuple[str | bytes, str]] = {
    "with two targets": (PLAIN.replace("x,z", "target,z"), "column 'target' twice"),
    "with two targets of three": ("target,target,target\n1,2,0\n3,4,1\n", "column 'target' twice"),
    "with a feature twice": (PLAIN.replace("x,z", "x,x"), "column 'x' twice"),
    "with a two-line name twice": (PLAIN.replace("x,z", '"a\nb","a\nb"'), "column 'a b' twice"),
    "with a very long name twice": (PLAIN.replace("x,z", f"{'x' * 9999},{'x' * 9999}"), "twice"),
    "with row numbers": ("," + PLAIN.replace("\n", "\n0,").rstrip("0,"), "column 1 has no name"),
    "with a surplus value": (PLAIN.replace("2.5,1", "2.5,1,9"), "line 4"),
    "with a surplus value in every row": (PLAIN.replace("5,", "5,9,"), "row 1 has more values"),
    "with row numbers from 0 but no name for them": (
        HEADER + "".join(f"\n{number},{row}" for number, row in enumerate(ROWS)),
        "row 1 has more values",
    ),
    "with a short row": (PLAIN.replace("3,2.5,1", "3,2.5"), "row 3, column 'target': missing"),
    "that is empty": ("", "damaged, empty"),
    "of blank lines": ("\n\n\n", "damaged, empty"),
    "of a header alone": (HEADER, "no rows below the header"),
    "without a header": ("\n".join(ROWS), "no column 'target'"),
    "of a target alone": ("target\n0\n1\n", "no columns besides the target"),
    "with a word": (PLAIN.replace("2,", "Smith,", 1), "row 2, column 'x': not a number"),
    "with a gap": (PLAIN.replace("1.5", ""), "row 2, column 'z': missing"),
    "with NaN": (PLAIN.replace("1.5", "nan"), "row 2, column 'z': missing"),
    "with infinity": (PLAIN.replace("1.5", "-inf"), "row 2, column 'z': missing, NaN or infinite"),
    "with 1e39": (PLAIN.replace("1.5", "1e39"), "NaN or infinity in the inputs of record 1"),
    "with 1e999": (PLAIN.replace("1.5", "1e999"), "row 2, column 'z'"),
    "with a gap for a label": (PLAIN.replace("5,0", "5,"), "row 1, column 'target': missing"),
    "with a word for a label": (PLAIN.replace("5,0", "5,no"), "column 'target': not a number"),
    "with a label of a million": (PLAIN.replace("2.5,1", "2.5,1000000"), "1,000,001 classes"),
    "with a label below 0": (PLAIN.replace("2.5,1", "2.5,-1"), "negative"),
    "with a label of 2**64 - 1": (PLAIN.replace("2.5,1", f"2.5,{2**64 - 1}"), "beyond 64 bits"),
    "with a label of forty digits": (PLAIN.replace("2.5,1", "2.5," + "9" * 40), "column 'target'"),
    "with complex numbers": (PLAIN.replace("1.5", "1+2j"), "column 'z': not a number"),
    "with thousands": (PLAIN.replace("1.5", '"1,500"'), "row 2, column 'z': not a number"),
    "with a date": (PLAIN.replace("1.5", "2020-01-01"), "row 2, column 'z': not a number"),
    "with a number in base 16": (PLAIN.replace("1.5", "0x1f"), "row 2, column 'z': not a number"),
    "with a zero byte": (PLAIN.replace("1.5", "1\0.5"), "column 'z': not a number"),
    "with an open quote": (PLAIN.replace("2,1.5", '"2,1.5'), "damaged"),
    "in UTF-16": (PLAIN.encode("utf-16"), "damaged"),
    "in Latin-1": (PLAIN.replace("x", "größe").encode("latin1"), "damaged"),
    "of random bytes": (np.random.default_rng(5).bytes(500), ""),
}


def table_cases() -> Iterator[Case]:
    for suffix in (".csv", ".csv.gz"):
        name = f"a{suffix}"
        for what, text in READ_RIGHT.items():
            yield Case(f"{suffix} {what}", "client", {name: constant(text_file(text, name))}, RIGHT)
        for what, (text, words) in REFUSED.items():
            yield Case(f"{suffix} {what}", "client", {name: constant(text_file(text, name))}, words=words)
    yield from _packed()
    yield from _parquet_right()
    yield from _parquet_refused()
    yield from _folders()
    yield from _one_for_all()


def _packed() -> Iterator[Case]:
    whole = text_file(PLAIN, "a.csv.gz")
    halves = text_file(PLAIN[:20], ".gz") + text_file(PLAIN[20:], ".gz")
    yield Case("gzip in two parts", "client", {"a.csv.gz": constant(halves)}, RIGHT)
    yield Case("gzip in capitals", "client", {"A.CSV.GZ": constant(whole)}, RIGHT)
    for what, content in {
        "that is plain": PLAIN.encode(),
        "without its end": whole[:-9],
        "with rubbish behind": whole + b"rubbish",
        "with another checksum": whole[:-8] + bytes(8),
        "of two bytes": whole[:2],
    }.items():
        yield Case(f"gzip {what}", "client", {"a.csv.gz": constant(content)}, words="damaged")
    bombs = {"rows": (b"x,target\n", b"0,0\n"), "one cell": (b"x,target\n", b"0"), "one header": (b"", b"x")}
    for what, (header, line) in bombs.items():
        files = {"a.csv.gz": lambda header=header, line=line: zeros_gzipped(header, line, 100)}
        yield Case(f"gzip that unpacks to 100 MiB of {what}", "client", files, words="200 times its size")


def _parquet_right() -> Iterator[Case]:
    z = pa.array([0.5, 1.5, 2.5])
    kinds = [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()]
    kinds += [pa.float16(), pa.float32(), pa.float64(), pa.decimal128(9, 2), pa.decimal256(40, 5)]
    for kind in kinds:
        values = [np.float16(v) for v in (1, 2, 3)] if kind == pa.float16() else [1, 2, 3]
        if pa.types.is_decimal(kind):
            values = [decimal.Decimal(v) for v in values]
        whole = pa.array([0, 1, 1], kind if pa.types.is_integer(kind) else pa.int64())
        content = parquet({"x": pa.array(values, kind), "z": z, "target": whole})
        yield Case(f"parquet of {kind}", "client", {"a.parquet": constant(content)}, RIGHT)
    x, target = pa.array([1, 2, 3]), pa.array([0, 1, 1])
    odd = {
        "with a dictionary of numbers": {"x": x.dictionary_encode(), "z": z.dictionary_encode(), "target": target},
        "with labels in a dictionary": {"x": x, "z": z, "target": target.dictionary_encode()},
        "with truth values for labels": {"x": x, "z": z, "target": pa.array([False, True, True])},
    }
    for what, columns in odd.items():
        yield Case(f"parquet {what}", "client", {"a.parquet": constant(parquet(columns))}, RIGHT)
    for options in ({"compression": "zstd"}, {"row_group_size": 1}, {"version": "1.0"}, {"data_page_version": "2.0"}):
        content = parquet({"x": x, "z": z, "target": target}, **options)
        yield Case(f"parquet by {options}", "client", {"a.parquet": constant(content)}, RIGHT)


def _parquet_refused() -> Iterator[Case]:
    x, target = [1, 2, 3], [0, 1, 1]
    cells: dict[str, tuple[Any, str]] = {
        "a gap": (pa.array([1, None, 3]), "row 2, column 'z': missing"),
        "a gap among truth values": (pa.array([True, None, False]), "column 'z'"),
        "gaps only": (pa.nulls(3), "column 'z'"),
        "NaN": (pa.array([1.0, float("nan"), 3.0]), "row 2, column 'z'"),
        "lists": (pa.array([[1], [2, 3], []]), "lists or structures"),
        "lists of fixed length": (pa.array([[1, 2]] * 3, pa.list_(pa.int8(), 2)), "lists or structures"),
        "structures": (pa.array([{"a": 1}] * 3), "lists or structures"),
        "maps": (pa.array([[("a", 1)]] * 3, pa.map_(pa.string(), pa.int64())), "lists or structures"),
        "text": (pa.array(["1", "2", "Smith"]), "row 3, column 'z': not a number"),
        "text in a dictionary": (pa.array(["a", "b", "a"]).dictionary_encode(), "column 'z': not a number"),
        "bytes": (pa.array([b"\xff", b"1", b"2"]), "column 'z': not a number"),
        "dates": (pa.array([datetime.date(2020, 1, 1)] * 3), "column 'z': not a number"),
        "times": (pa.array([datetime.datetime(2020, 1, 1)] * 3), "column 'z': not a number"),
        "durations": (pa.array([datetime.timedelta(1)] * 3), "column 'z': not a number"),
        "decimals too large": (pa.array([decimal.Decimal(10) ** 60] * 3), "NaN or infinity"),
    }
    for what, (values, words) in cells.items():
        content = constant(parquet({"x": x, "z": values, "target": target}))
        yield Case(f"parquet with {what}", "client", {"a.parquet": content}, words=words)
    tables: dict[str, tuple[Any, str]] = {
        "with two targets": ([("target", x), ("target", target)], "column 'target' twice"),
        "with a feature twice": ([("x\n", x), ("x\n", x), ("target", target)], "column 'x ' twice"),
        "without rows": ({"x": pa.array([], pa.int64()), "target": pa.array([], pa.int64())}, "no rows"),
        "without columns": ({}, "no column 'target'"),
        "with a label of a million": ({"x": x, "target": [0, 1, 10**6]}, "1,000,001 classes"),
        "with a label of 2**64 - 1": ({"x": x, "target": pa.array([0, 1, 2**64 - 1], pa.uint64())}, "beyond 64 bits"),
    }
    for what, (columns, words) in tables.items():
        yield Case(f"parquet {what}", "client", {"a.parquet": constant(parquet(columns))}, words=words)
    yield Case("parquet of 40 million zeros twice", "client", {"a.parquet": _zeros}, words="200 times its size")
    yield Case("parquet that is a CSV", "client", {"a.parquet": constant(PLAIN.encode())}, words="damaged")


def _zeros() -> bytes:
    zeros = pa.array(np.zeros(40_000_000, dtype=np.int8))
    return parquet({"x": zeros, "target": zeros})


def _folders() -> Iterator[Case]:
    """Clients that do not go together; the second file is the culprit."""
    good = constant(PLAIN.encode())
    others = {
        "another column": (PLAIN.replace("z", "y"), "not the feature columns of a.csv"),
        "another order": (PLAIN.replace("x,z", "z,x"), "another order"),
        "fewer columns": (PLAIN.replace("x,z", "x,target").replace("target,target", "target,q"), "not the feature"),
        "fractions for labels": (PLAIN.replace(",1\n", ",1.5\n"), "fractions, but whole in a.csv"),
        "one label of a million": (PLAIN.replace("2.5,1", "2.5,1000000"), "1,000,001 classes"),
    }
    for what, (text, words) in others.items():
        files = {"a.csv": good, "b.csv": constant(text.encode())}
        yield Case(f"folder with {what}", "client", files, culprit="b.csv", words=words)
    files = {"a.csv": good, "test.csv": constant(PLAIN.replace("2.5,1", "2.5,1000000").encode())}
    yield Case("folder with a test label of a million", "client", files, culprit="test.csv", words="test records")
    many = {f"{n}.csv": constant(PLAIN.replace("2.5,1", f"2.5,{n}").encode()) for n in range(120)}
    last = np.array([0, 1, 99])
    yield Case("folder with 120 classes", "client", many, (INPUTS, last))


def _one_for_all() -> Iterator[Case]:
    header, rows = "x,site,target\n", "".join(f"{i}.5,s{i % 2},{i % 3}\n" for i in range(10))
    inputs, targets = np.arange(10, dtype=np.float32)[:, None] + np.float32(0.5), np.arange(10) % 3
    right = (inputs, targets, np.array([f"s{i % 2}" for i in range(10)], dtype=object))
    for name in ("t.csv", "t.csv.gz"):
        yield Case(f"table {name}", "table", {name: constant(text_file(header + rows, name))}, right)
    bad = {
        "with two targets": (header.replace("x", "target") + rows, "column 'target' twice"),
        "with two client columns": (header.replace("x", "site") + rows, "column 'site' twice"),
        "with a row of nobody's": (header + rows + "1,,0\n", "row 11, column 'site': no value"),
        "without clients": (header.replace("site", "ward") + rows, "no column 'site'"),
        "with a label of a million": (header + rows + "1,s1,1000000\n", "1,000,001 classes"),
        "with a label below 0": (header + rows + "1,s1,-7\n", "negative"),
    }
    for what, (text, words) in bad.items():
        yield Case(f"table {what}", "table", {"t.csv": constant(text.encode())}, words=words)
    lists = constant(parquet({"x": [1.5] * 10, "site": [["a"]] * 10, "target": [0, 1] * 5}))
    yield Case("table with lists of clients", "table", {"t.parquet": lists}, words="lists or structures")
    names = pa.array([f"s{i % 2}" for i in range(10)]).dictionary_encode()
    content = constant(parquet({"x": inputs[:, 0], "site": names, "target": targets}))
    yield Case("table with clients in a dictionary", "table", {"t.parquet": content}, right)
