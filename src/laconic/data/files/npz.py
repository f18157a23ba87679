"""A client's `.npz`: the arrays `inputs` and `targets`, or `x` and `y`; and those of a data set by their names.

The file is not numpy's to open: that would allocate all that a header claims, evaluate the header, and leave bytes in
another order to those who come later. Here nothing is believed that the file cannot hold, and only numbers are read.
"""

from __future__ import annotations

import math
import re
import struct
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import IO

import numpy as np
import torch

from laconic.data.files.user_file import listed, named, open_file, refused, refused_as_too_much, too_much, unreadable
from laconic.data.population import Records, check_records
from laconic.errors import LaconicError, one_line

_PAIRS = (("inputs", "targets"), ("x", "y"))
_MAGIC = b"\x93NUMPY"
_LONGEST_HEADER = 4096
_NUMBERS = {"b": (1,), "i": (1, 2, 4, 8), "u": (1, 2, 4, 8), "f": (2, 4, 8)}
_ENTRY = r"\s*['\"](descr|fortran_order|shape)['\"]\s*:\s*('[^']*'|\"[^\"]*\"|True|False|\([\d\s,L]*\))\s*"
_HEADER = re.compile(rf"\{{{_ENTRY},{_ENTRY},{_ENTRY},?\s*\}}\s*")
_TYPE = re.compile(r"([<>=|]?)([A-Za-z?])(\d{0,9})(?:\[\w+\])?")


def read_npz(file: Path) -> Records:
    """The records in the file; a `DataError` says what else it holds."""
    inputs, targets = (_as_torch_takes(file, name, array) for name, array in _read(file, _PAIRS).items())
    return check_records(Records(torch.from_numpy(inputs), torch.from_numpy(targets)), one_line(file))


def read_inputs(file: Path) -> torch.Tensor:
    """The inputs alone, for records without targets."""
    ((name, array),) = _read(file, (("inputs",), ("x",))).items()
    inputs = torch.from_numpy(_as_torch_takes(file, name, array))
    if inputs.ndim == 0 or 0 in inputs.shape:
        raise refused(file, f"'{name}' holds no records")
    if inputs.is_floating_point() and not bool(torch.isfinite(inputs).all()):
        raise refused(file, f"NaN or infinity in '{name}'; clean or drop such records")
    return inputs


def read_arrays(file: Path, names: Sequence[str]) -> dict[str, np.ndarray]:
    """The arrays of these names, in the types that the file has."""
    return _read(file, (tuple(names),))


def _read(file: Path, choices: Sequence[tuple[str, ...]]) -> dict[str, np.ndarray]:
    try:
        with open_file(file) as opened, zipfile.ZipFile(opened) as archive:
            return {name: _array(file, archive, name, info) for name, info in _members(file, archive, choices)}
    except LaconicError:
        raise
    except Exception as error:  # a damaged archive makes its readers raise nearly anything
        raise unreadable(file, error) from None


def _members(
    file: Path, archive: zipfile.ZipFile, choices: Sequence[tuple[str, ...]]
) -> list[tuple[str, zipfile.ZipInfo]]:
    """The arrays of the first choice that is there, by name, as numpy names them: without `.npy`."""
    found: dict[str, zipfile.ZipInfo] = {}
    twice = set()
    for info in archive.infolist():
        name = info.filename.removesuffix(".npy")
        if name in found:
            twice.add(name)
        found[name] = info
    chosen = next((names for names in choices if set(names) <= set(found)), None)
    if chosen is None:
        expected = " and ".join(map(repr, choices[0])) if len(choices[0]) < 3 else ", ".join(map(repr, choices[0]))
        raise refused(file, f"holds [{listed(map(repr, sorted(found)))}]; expected arrays {expected}")
    if repeated := twice.intersection(chosen):
        raise refused(file, f"holds the array {named(min(repeated))} twice; leave one out")
    return [(name, found[name]) for name in chosen]


def _array(file: Path, archive: zipfile.ZipFile, name: str, info: zipfile.ZipInfo) -> np.ndarray:
    """One member, in this machine's byte order."""
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise refused(file, f"'{name}' is packed in a way that numpy does not use; write the file with np.savez")
    if too_much(info.file_size, min(info.compress_size, file.stat().st_size)):
        raise refused_as_too_much(f"{file}: '{name}'", "if that is right, write it with np.savez, not compressed")
    with archive.open(info) as member:
        header, length = _header(file, name, member)
        kind, fortran, shape = _parsed(file, name, header)
        claimed, there = math.prod(shape) * kind.itemsize, info.file_size - length
        if claimed != there:
            raise refused(file, f"'{name}' claims {claimed:,} bytes in its header, but has {there:,}; write it anew")
        data = member.read(claimed + 1)
    if len(data) != claimed:
        raise refused(file, f"'{name}' ends after {len(data):,} of {claimed:,} bytes; write it anew")
    values = np.frombuffer(data, dtype=kind).reshape(shape, order="F" if fortran else "C")
    return values.astype(kind.newbyteorder("="), order="C")


def _as_torch_takes(file: Path, name: str, values: np.ndarray) -> np.ndarray:
    """As float32 or int64: what models and losses take."""
    kind = values.dtype
    if kind.kind == "u" and kind.itemsize == 8 and values.size and values.max() > np.iinfo(np.int64).max:
        raise refused(file, f"'{name}' holds whole numbers beyond 64 bits with a sign; save them as float64")
    with np.errstate(over="ignore"):  # what is too large becomes infinite, and is refused as such
        return values.astype(np.float32 if kind.kind == "f" else np.int64)


def _header(file: Path, name: str, member: IO[bytes]) -> tuple[str, int]:
    """(the header's text, how many bytes come before the values)."""
    start = member.read(8)
    if start[:6] != _MAGIC or len(start) < 8:
        raise refused(file, f"'{name}' is no array; write the file with np.savez")
    if start[6] not in (1, 2, 3):
        raise refused(file, f"'{name}' has version {start[6]} of numpy's format; versions 1 to 3 are known")
    size = struct.Struct("<H" if start[6] == 1 else "<I")
    (length,) = size.unpack(member.read(size.size))
    if length > _LONGEST_HEADER:
        raise refused(file, f"'{name}' is no array of numbers: its header has {length:,} bytes")
    return member.read(length).decode("latin1"), 8 + size.size + length


def _parsed(file: Path, name: str, header: str) -> tuple[np.dtype, bool, tuple[int, ...]]:
    """(type, whether columns come first, shape)."""
    match = _HEADER.fullmatch(header)
    entries = dict(zip(match.groups()[::2], match.groups()[1::2], strict=True)) if match else {}
    shape, order = entries.get("shape", ""), entries.get("fortran_order")
    kind = _number_type(file, name, header if match is None else entries.get("descr", ""))
    if not shape.startswith("(") or order not in ("True", "False"):
        raise refused(file, f"'{name}' has a damaged header; write the file with np.savez")
    return kind, order == "True", tuple(int(length) for length in re.findall(r"\d+", shape))


def _number_type(file: Path, name: str, text: str) -> np.dtype:
    match = _TYPE.fullmatch(text[1:-1])
    if match is None:
        raise refused(file, f"'{name}' holds no plain numbers, or has a damaged header; save an array of numbers")
    code, size = match[2], int(match[3] or 0)
    if size in _NUMBERS.get(code, ()):
        return np.dtype(text[1:-1])
    if code == "O":
        raise refused(file, f"'{name}' holds Python objects, and a pickle is never opened; save an array of numbers")
    if code == "f":
        raise refused(file, f"'{name}' holds long doubles, which differ between machines; save them as float64")
    raise refused(file, f"'{name}' holds {_type_name(text[1:-1])}, not numbers; encode it as numbers")


def _type_name(text: str) -> str:
    try:
        return str(np.dtype(text))
    except TypeError:
        return text
