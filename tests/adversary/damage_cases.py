"""Good files with bytes flipped, cut out or put in at random: if they are still read, then right."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator

import numpy as np
from user_file_tools import ANYTHING_TAME, RIGHT_OR_REFUSED, Case, constant, npy, npz, parquet, text_file

INPUTS = np.random.default_rng(1).normal(size=(6, 2)).astype(np.float32)
TARGETS = np.arange(6) % 3
EACH = 12


def damage_cases() -> Iterator[Case]:
    members = {"inputs.npy": npy(INPUTS), "targets.npy": npy(TARGETS)}
    rows = "".join(f"{a!r},{b!r},{t}\n" for (a, b), t in zip(INPUTS.tolist(), TARGETS.tolist(), strict=True))
    files = {
        "stored.npz": npz(members),
        "packed.npz": npz(members, zipfile.ZIP_DEFLATED),
        "table.csv.gz": text_file("x,z,target\n" + rows, ".gz"),
        "table.parquet": parquet({"x": INPUTS[:, 0], "z": INPUTS[:, 1], "target": TARGETS}),
    }
    for seed, (name, whole) in enumerate(files.items()):
        rng = np.random.default_rng(seed)
        # Parquet has no checksum, so a flipped value is as good as another.
        leeway = ANYTHING_TAME if name.endswith(".parquet") else RIGHT_OR_REFUSED
        for number in range(EACH):
            content = constant(_damaged(whole, rng, number % 3))
            yield Case(f"damage {number} to {name}", "client", {name: content}, (INPUTS, TARGETS), leeway)


def _damaged(whole: bytes, rng: np.random.Generator, how: int) -> bytes:
    at = int(rng.integers(len(whole)))
    if how == 0:
        return whole[:at] + bytes([whole[at] ^ int(rng.integers(1, 256))]) + whole[at + 1 :]
    if how == 1:
        return whole[:at] + whole[at + int(rng.integers(1, 40)) :]
    return whole[:at] + rng.bytes(int(rng.integers(1, 40))) + whole[at:]
