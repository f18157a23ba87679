"""Clients as `.npz`: every type, byte order and memory order read right; what is no numbers, or lies, refused."""

from __future__ import annotations

import io
import struct
import zipfile
from collections.abc import Iterator

import numpy as np
from user_file_tools import Case, constant, npy, npz

WHOLE, REAL = ("b1", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8"), ("f2", "f4", "f8")
INPUTS, TARGETS = np.arange(8.0).reshape(4, 2), np.array([0, 1, 1, 0])
GOOD = npy(TARGETS)
SHAPES = [(4,), (4, 1), (4, 3), (5, 2, 3), (3, 1, 2, 2)]


def array_cases() -> Iterator[Case]:
    yield from _types()
    yield from _no_numbers()
    yield from _values()
    yield from _headers()
    yield from _archives()


def case(name: str, content: bytes, expected: tuple[np.ndarray, ...] | None = None, words: str = "") -> Case:
    return Case(f"npz {name}", "client", {"a.npz": constant(content)}, expected, words=words)


def _types() -> Iterator[Case]:
    """All types of numbers, in both byte orders and both memory orders."""
    for number, (kind, swap, order) in enumerate(
        (kind, swap, order) for kind in (*WHOLE, *REAL) for swap in "<>" for order in "CF"
    ):
        rng = np.random.default_rng(number)
        shape = SHAPES[number % len(SHAPES)]
        real = rng.normal(size=shape) * 9
        values = real.astype(kind) if kind in REAL else np.abs(real).astype(kind)
        inputs = np.asarray(values.astype(values.dtype.newbyteorder(swap)), order=order)
        labels = rng.integers(0, 3, shape[0]).astype(np.dtype(WHOLE[1 + number % 8]).newbyteorder(swap))
        names = ("x.npy", "y.npy") if number % 2 else ("inputs.npy", "targets.npy")
        method = zipfile.ZIP_DEFLATED if number % 3 else zipfile.ZIP_STORED
        content = npz({names[0]: npy(inputs, version=1 + number % 3), names[1]: npy(labels)}, method)
        wide = values.astype(np.float32 if kind in REAL else np.int64)
        yield case(f"of {swap}{kind} in order {order}", content, (wide, labels.astype(np.int64)))


def _no_numbers() -> Iterator[Case]:
    """What has a header and values, but not numbers that mean the same on every machine."""
    arrays = {
        "long doubles": (INPUTS[:, 0].astype(np.longdouble), "long doubles"),
        "complex numbers": (INPUTS[:, 0] * 1j, "complex128"),
        "text": (INPUTS[:, 0].astype(str), "not numbers"),
        "bytes": (INPUTS[:, 0].astype("S4"), "not numbers"),
        "dates": (np.array(["2020-01-01"] * 4, dtype="M8[D]"), "datetime64"),
        "durations": (np.arange(4).astype("m8[s]"), "timedelta64"),
        "records": (np.zeros(4, dtype=[("a", "f4"), ("b", "i4")]), "no plain numbers"),
        "raw bytes": (np.zeros(4, dtype="V8"), "not numbers"),
    }
    for what, (array, words) in arrays.items():
        header = repr({"descr": np.lib.format.dtype_to_descr(array.dtype), "fortran_order": False, "shape": (4,)})
        member = npy(array, header=header.encode())
        yield case(f"with {what} as inputs", npz({"inputs.npy": member, "targets.npy": GOOD}), None, words)
        yield case(f"with {what} as targets", npz({"x.npy": npy(INPUTS), "y.npy": member}), None, words)
    header = b"{'descr': '|O', 'fortran_order': False, 'shape': (4,), }"
    pickle = npy(np.frombuffer(b"cos\nsystem\n(S'false'\ntR.", dtype=np.uint8), header=header)
    yield case("with a pickle", npz({"inputs.npy": pickle, "targets.npy": GOOD}), None, "never opened")


def _values() -> Iterator[Case]:
    def pair(name: str, inputs: np.ndarray, targets: np.ndarray, words: str) -> Case:
        return case(name, npz({"inputs.npy": npy(inputs), "targets.npy": npy(targets)}), None, words)

    one_bad = INPUTS.copy()
    for name, value in (("NaN", np.nan), ("infinity", np.inf), ("minus infinity", -np.inf), ("1e300", 1e300)):
        one_bad[2, 1] = value
        yield pair(f"with {name} in the inputs", one_bad.copy(), TARGETS, "NaN or infinity in the inputs of record 2")
        yield pair(f"with {name} in the targets", INPUTS, one_bad[:, 1].copy(), "NaN or infinity in the targets")
    yield pair("without features", np.zeros((4, 0)), TARGETS, "hold no values")
    yield pair("with targets of width 0", INPUTS, np.zeros((4, 0)), "hold no values")
    yield pair("without records", INPUTS[:0], TARGETS[:0], "has no records")
    yield pair("with a lone number as inputs", np.array(1.0), TARGETS, "pair up")
    yield pair("with a lone number as targets", INPUTS, np.array(1), "pair up")
    yield pair("with too few targets", INPUTS, TARGETS[:3], "pair up")
    yield pair("with a negative label", INPUTS, TARGETS - 1, "numbered from 0")
    yield pair("with a label of a million", INPUTS, TARGETS * 10**6, "1,000,001 classes")
    yield pair("with a label of 2**62", INPUTS, TARGETS * 2**62, "renumber the classes")
    yield pair("with a label of 2**64 - 1", INPUTS, TARGETS.astype("u8") * (2**64 - 1), "beyond 64 bits")
    yield pair("with inputs of 2**63", INPUTS.astype("u8") + 2**63, TARGETS, "beyond 64 bits")
    two = (INPUTS.astype(np.float32), TARGETS + 5)
    yield case("with labels from 5", npz({"inputs.npy": npy(INPUTS), "targets.npy": npy(TARGETS + 5)}), two)
    real = (INPUTS.astype(np.float32), (TARGETS * 1e6 + 0.5).astype(np.float32))
    yield case("with real targets of a million", npz({"x.npy": npy(INPUTS), "y.npy": npy(TARGETS * 1e6 + 0.5)}), real)


def _headers() -> Iterator[Case]:
    """Headers that lie about the values, or are no headers."""
    plain = b"{'descr': '<f8', 'fortran_order': False, 'shape': (4, 2), }"
    damaged = {
        "claims 18 GiB": npy(INPUTS, claim="(4, 603979776)"),
        "claims 2**200 values": npy(INPUTS, claim=f"(4, {2**200})"),
        "claims 70 dimensions": npy(INPUTS, claim=str((4, 2) + (1,) * 68)),
        "claims nothing of much": npy(np.zeros((0, 2)), claim=f"(0, {2**80})"),
        "claims less than there is": npy(INPUTS, claim="(2, 2)"),
        "claims a negative length": npy(INPUTS, claim="(-4, -2)"),
        "claims a length of 4.0": npy(INPUTS, claim="(4.0, 2)"),
        "claims no shape": npy(INPUTS, claim="'(4, 2)'"),
        "lacks the shape": npy(INPUTS, header=b"{'descr': '<f8', 'fortran_order': False}"),
        "is empty": npy(INPUTS, header=b""),
        "is no text": npy(INPUTS, header=bytes(range(128, 200))),
        "calls a function": npy(INPUTS, header=plain.replace(b"False", b"print()")),
        "is nested a thousandfold": npy(INPUTS, header=b"(" * 1500 + b")" * 1500),
        "has a thousand minus signs": npy(INPUTS, header=plain.replace(b"(4", b"(" + b"-" * 3000 + b"4")),
        "is 4 GiB long": npy(INPUTS, version=2, length=2**32 - 1),
        "is cut off": npy(INPUTS)[:30],
        "is of version 9": npy(INPUTS, version=9),
        "names a type that is none": npy(INPUTS, header=plain.replace(b"<f8", b"<f7")),
        "names a type of 2**31 bytes": npy(INPUTS, header=plain.replace(b"<f8", b"|V2147483647")),
    }
    for what, member in damaged.items():
        yield case(f"whose header {what}", npz({"inputs.npy": member, "targets.npy": GOOD}))
    other = b'{"shape": (4L, 2L), "descr": "<f8", "fortran_order": False}\n'
    content = npz({"inputs.npy": npy(INPUTS, header=other), "targets.npy": GOOD})
    yield case("with a header in another order", content, (INPUTS.astype(np.float32), TARGETS))


def _archives() -> Iterator[Case]:
    """Members that are no arrays, come twice, or are packed to deceive."""
    good = {"inputs.npy": npy(INPUTS), "targets.npy": GOOD}
    right = (INPUTS.astype(np.float32), TARGETS)
    members: dict[str, bytes] = {
        "text": b"x,y\n1,2\n",
        "nothing": b"",
        "half the magic": b"\x93NUM",
        "a zip": npz(good),
    }
    for what, member in members.items():
        yield case(f"with {what} for inputs", npz({"inputs.npy": member, "targets.npy": GOOD}), None, "is no array")
    yield case("with text called targets", npz({"inputs.npy": npy(INPUTS), "targets": b"01"}), None, "is no array")
    yield case("with two inputs", npz([("inputs", npy(INPUTS)), *good.items()]), None, "'inputs' twice")
    yield case("with other names", npz({"a\nb": npy(INPUTS), "c": GOOD}), None, "expected arrays")
    yield case("without members", npz({}), None, "expected arrays")
    yield case("with text beside the arrays", npz({**good, "notes.txt": b"hello"}), right)
    for method in (zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA):
        yield case(f"packed by method {method}", npz(good, method), None, "np.savez")
    yield case("that is an array alone", npy(INPUTS), None, "damaged")
    yield case("behind other bytes", b"#!/bin/sh\n" + npz(good), right)
    yield case("that claims a password", _patched(npz(good), 8, struct.pack("<H", 1)))
    yield case("whose list claims 18 GiB", _patched(npz(good), 24, struct.pack("<I", 0xFFFFFFF0)))
    bomb = {"a.npz": _bomb}
    yield Case("npz that unpacks to 520 MiB", "client", bomb, words="200 times its size")


def _patched(archive: bytes, at: int, value: bytes) -> bytes:
    """The archive with another value in the first entry of its directory."""
    place = archive.index(b"PK\x01\x02") + at
    return archive[:place] + value + archive[place + len(value) :]


def _bomb() -> bytes:
    """A true one: the values are there, all of them zero."""
    stream, block = io.BytesIO(), bytes(1 << 20)
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        with archive.open("inputs.npy", "w") as member:
            member.write(npy(np.zeros((0, 2)), claim=str((520 << 16, 2))))
            for _ in range(520):
                member.write(block)
        archive.writestr("targets.npy", GOOD)
    return stream.getvalue()
