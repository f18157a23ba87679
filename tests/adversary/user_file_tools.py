"""What the generated files share: a case with its oracle, writers for what numpy would never write, and the reading."""

from __future__ import annotations

import gzip
import io
import struct
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from laconic.data.datasets.pictures import read_idx
from laconic.data.ehr.schema import Schema
from laconic.data.files.folder import load_table
from laconic.data.inputs import dense
from laconic.options.sections import DataSection
from laconic.settings.data.datasets import load_federation
from laconic.streams import Streams

RIGHT_OR_REFUSED = "right or refused"
"""The oracle of files that were damaged at random: if they are read, then right."""
ANYTHING_TAME = "anything tame"
"""The oracle where damage cannot be noticed, as in formats without a checksum: no traceback, no gigabytes."""


@dataclass(frozen=True)
class Case:
    """A generated file, how it is read, and what must come out: arrays, or None for a refusal in one line."""

    name: str
    kind: str
    files: dict[str, Callable[[], bytes]]
    expected: tuple[np.ndarray, ...] | None = None
    leeway: str | None = None
    culprit: str | None = None
    """The file that the refusal must name; by default the only one."""
    words: str = ""


def read(case: Case, folder: Path) -> tuple[np.ndarray, ...]:
    """Write the files and read them back as a run would."""
    for name, content in case.files.items():
        (folder / name).write_bytes(content())
    first = folder / next(iter(case.files))
    if case.kind == "client":
        federation = load_federation(DataSection(dataset=str(folder)), holdout=0.0, streams=Streams(0))
        records = federation.population.records(federation.population.num_clients - 1)
        return dense(records.inputs).numpy(), records.targets.numpy()
    if case.kind == "table":
        load_federation(DataSection(dataset=str(first), client_column="site"), holdout=0.0, streams=Streams(0))
        records, owners, _, _ = load_table(first, "target", "site")
        return dense(records.inputs).numpy(), records.targets.numpy(), owners
    if case.kind == "health":
        section = DataSection(dataset=str(first), schema=str(folder / "schema.toml"))
        population = load_federation(section, holdout=0.0, streams=Streams(0)).population
        sizes = [population.size(client) for client in range(population.num_clients)]
        values = [dense(population.records(client).inputs) for client in range(population.num_clients)]
        assert all(bool(v.isfinite().all()) for v in values)
        return (np.array([sum(sizes), values[0].shape[1]]),)
    if case.kind == "schema":
        return (np.array(Schema.from_toml(first).columns),)
    assert case.kind == "idx"
    return (read_idx(first, ndim=1),)


def npy(
    array: np.ndarray,
    *,
    claim: str | None = None,
    header: bytes | None = None,
    version: int = 1,
    length: int | None = None,
) -> bytes:
    """An array as numpy writes it, or with another shape claimed, or with another header."""
    order = array.flags.f_contiguous and not array.flags.c_contiguous
    text = f"{{'descr': {array.dtype.str!r}, 'fortran_order': {order}, 'shape': {claim or array.shape}, }}"
    head = header if header is not None else text.encode()
    size = struct.pack("<H" if version == 1 else "<I", len(head) if length is None else length)
    return b"\x93NUMPY" + bytes([version, 0]) + size + head + array.tobytes(order="F" if order else "C")


def npz(members: dict[str, bytes] | list[tuple[str, bytes]], method: int = zipfile.ZIP_STORED) -> bytes:
    """An archive with these members, whatever they hold and however often a name comes."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", method) as archive:
        for name, content in members.items() if isinstance(members, dict) else members:
            archive.writestr(zipfile.ZipInfo(name), content, method)
    return stream.getvalue()


def text_file(text: str | bytes, name: str) -> bytes:
    """A CSV as plain or gzipped bytes, by its name."""
    plain = text if isinstance(text, bytes) else text.encode()
    return gzip.compress(plain, mtime=0) if name.endswith(".gz") else plain


def parquet(columns: dict[str, Any] | list[tuple[str, Any]], **options: Any) -> bytes:
    """A Parquet file with these Arrow arrays; names may come twice."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    pairs = list(columns.items()) if isinstance(columns, dict) else columns
    table = pa.Table.from_arrays([pa.array(values) for _, values in pairs], names=[name for name, _ in pairs])
    stream = io.BytesIO()
    pq.write_table(table, stream, **options)
    return stream.getvalue()


def constant(content: bytes) -> Callable[[], bytes]:
    return lambda: content


def zeros_gzipped(header: bytes, line: bytes, megabytes: int) -> bytes:
    """A small gzip file that unpacks to many megabytes of one line."""
    stream = io.BytesIO()
    with gzip.GzipFile(fileobj=stream, mode="wb", compresslevel=1, mtime=0) as packed:
        packed.write(header)
        block = line * ((1 << 20) // len(line))
        for _ in range(megabytes):
            packed.write(block)
    return stream.getvalue()
