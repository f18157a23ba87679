"""Randomness by name: every draw comes from a stream that is named by what it is for.

A stream depends only on the run's seed and its path (`"noise", round, attempt, client, run`), never on how many draws
came before. So a resumed run, another engine or a separate process sees the same numbers, and nothing has to be
saved. Paths are hashed one way: publishing the public seed of a round says nothing about its cohort or its noise.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from torch import Generator, Tensor, device


@dataclass(frozen=True)
class Streams:
    """All the streams of one run."""

    seed: int
    run: str = ""
    """What the run is, in the names of its noise (`noise_name`); empty where nothing is private."""

    def of_run(self, *path: str | int) -> tuple[str | int, ...]:
        """The path of something that no other run may draw, with another model or other data, say."""
        return (*path, self.run) if self.run else path

    def key(self, *path: str | int) -> int:
        """The 128-bit name of a stream."""
        return int.from_bytes(_digest("/".join(map(_part, (self.seed, *path)))), "little")

    def words_of(self, *path: str | int, numbers: Sequence[int]) -> np.ndarray:
        """The low 64 bits of the names that this path has with each of the numbers behind it (uint64)."""
        before = "/".join(map(_part, (self.seed, *path))) + "/i"
        return np.frombuffer(bytearray().join(_digest(f"{before}{number}")[:8] for number in numbers), dtype="<u8")

    def numpy(self, *path: str | int) -> np.random.Generator:
        return np.random.Generator(np.random.Philox(key=self.key(*path)))

    def public_seed(self, *path: str | int) -> int:
        """A number of 63 bits that everyone may know."""
        return self.key(*path) & (2**63 - 1)

    def stream(self, *path: str | int) -> Stream:
        return Stream(self.key(*path))


def _part(part: str | int) -> str:
    return f"{type(part).__name__[0]}{part}"


def _digest(text: str) -> bytes:
    return hashlib.blake2b(text.encode(), digest_size=16).digest()


@dataclass(frozen=True)
class Stream:
    """One stream of noise, drawn where the tensor lives."""

    key: int

    def normal(self, shape: tuple[int, ...], device: device) -> Tensor:
        """Standard normal float32 values. On the CPU they do not depend on the number of threads."""
        import torch

        if device.type == "cpu":
            generator = np.random.Generator(np.random.Philox(key=self.key))
            return torch.from_numpy(generator.standard_normal(shape, dtype=np.float32))
        return torch.randn(shape, generator=self._on(device), device=device)

    def words(self, count: int, device: device) -> Tensor:
        """Uniform 64-bit words, as int64."""
        import torch

        if device.type == "cpu":
            return torch.from_numpy(np.random.Philox(key=self.key).random_raw(count).view(np.int64))
        return torch.empty(count, dtype=torch.int64, device=device).random_(-(2**63), None, generator=self._on(device))

    def words_at(self, places: Tensor, count: int) -> Tensor:
        """Words for some of `count` places that words were drawn for."""
        return self.words(len(places), places.device)

    def signs(self, shape: tuple[int, ...], device: device) -> Tensor:
        """Uniform ±1 as float32."""
        import math

        import torch

        if device.type == "cuda":
            bits = torch.empty(shape, dtype=torch.int8, device=device).random_(0, 2, generator=self._on(device))
            return (2 * bits - 1).to(torch.float32)
        count = math.prod(shape)
        words = self.words(-(-count // 64), device)
        bits = (words[:, None] >> torch.arange(64, device=device)) & 1
        return (2 * bits.reshape(-1)[:count] - 1).to(torch.float32).reshape(shape)

    def fork(self, name: str) -> Stream:
        """Another stream, named after this one."""
        digest = hashlib.blake2b(f"{self.key}/{name}".encode(), digest_size=16).digest()
        return Stream(int.from_bytes(digest, "little"))

    def _on(self, device: device) -> Generator:
        import torch

        return torch.Generator(device=device).manual_seed(self.key & (2**63 - 1))


@dataclass(frozen=True)
class SideBySide(Stream):
    """Streams of several rows that are drawn at once, on the CPU: each row gets what its own stream would give."""

    rows: tuple[Stream, ...]

    def normal(self, shape: tuple[int, ...], device: device) -> Tensor:
        import torch

        return torch.stack([row.normal(shape[1:], device) for row in self.rows])

    def words(self, count: int, device: device) -> Tensor:
        import torch

        return torch.cat([row.words(count // len(self.rows), device) for row in self.rows])

    def words_at(self, places: Tensor, count: int) -> Tensor:
        import torch

        owners = places // (count // len(self.rows))
        counts = torch.bincount(owners, minlength=len(self.rows)).tolist()  # places are in ascending order
        return torch.cat([row.words(n, places.device) for row, n in zip(self.rows, counts, strict=True)])

    def fork(self, name: str) -> Stream:
        return SideBySide(super().fork(name).key, tuple(row.fork(name) for row in self.rows))


def side_by_side(streams: Sequence[Stream]) -> Stream:
    """The streams of several rows as one; a single one stays itself."""
    return streams[0] if len(streams) == 1 else SideBySide(joint(streams).key, tuple(streams))


def joint(streams: Sequence[Stream]) -> Stream:
    """One stream for what several streams are for; a single one stays itself."""
    if len(streams) == 1:
        return streams[0]
    digest = hashlib.blake2b("/".join(str(stream.key) for stream in streams).encode(), digest_size=16).digest()
    return Stream(int.from_bytes(digest, "little"))


_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def hashed(keys: np.ndarray) -> np.ndarray:
    """SplitMix64's finaliser on uint64 values: a counter becomes a well-mixed 64-bit number, for whole arrays."""
    x = keys.astype(np.uint64) * _GOLDEN + _GOLDEN
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
