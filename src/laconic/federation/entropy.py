"""Randomness of a real federation: from the operating system, and never from a seed.

Only what everyone may know follows from a number that is written down: the public seeds of the run and of its rounds.
Batches, cohorts and noise are drawn anew in every process, so they cannot be repeated, not even with the run folder.
"""

from __future__ import annotations

import os
import secrets
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from laconic.errors import ConfigError, PrivacyError
from laconic.guard.noise import Tables, exact_tables
from laconic.streams import Stream, Streams

if TYPE_CHECKING:
    from torch import Generator, Tensor, device

TEST_SEED = "LACONIC_TEST_ONLY_SEED"
"""The environment variable by which a test makes a federation repeatable. A node's policy must allow it too."""
_PUBLIC = ("public", "model")


@dataclass(frozen=True)
class FederationStreams(Streams):
    """`seed` is the public one: it names the streams that everyone may know. All others are the process's own."""

    secret: int = field(default_factory=lambda: secrets.randbits(256), repr=False)

    def key(self, *path: str | int) -> int:
        return Streams(self.seed if path[0] in _PUBLIC else self.secret).key(*path)

    def stream(self, *path: str | int) -> Stream:
        return SystemStream(secrets.randbits(128))


@dataclass(frozen=True)
class SystemStream(Stream):
    """Noise from the operating system's generator: every word is read from it, and none can be read again."""

    def normal(self, shape: tuple[int, ...], device: device) -> Tensor:
        raise PrivacyError("a federation draws its noise on integers: leave out ⟨noise⟩ continuous")

    def words(self, count: int, device: device) -> Tensor:
        import torch

        drawn = np.frombuffer(bytearray(os.urandom(8 * count)), dtype=np.int64)
        return torch.from_numpy(drawn).to(device)

    def fork(self, name: str) -> Stream:
        return SystemStream(secrets.randbits(128))

    def _on(self, device: device) -> Generator:
        import torch

        return torch.Generator(device=device).manual_seed(secrets.randbits(63))


@dataclass(frozen=True)
class StreamWords:
    """The words of a stream for the guard's sampler, in numpy's arrays: only for tests that repeat a federation."""

    stream: Stream

    def words(self, count: int) -> np.ndarray:
        import torch

        return self.stream.words(count, torch.device("cpu")).numpy()

    def words_at(self, places: np.ndarray, count: int) -> np.ndarray:
        return self.words(len(places))

    def fork(self, name: str) -> StreamWords:
        return StreamWords(self.stream.fork(name))

    def tables(self, scale: float, num_means: int) -> Tables:
        return exact_tables(scale, num_means)


def federation_streams(public_seed: int, *, test_seed_allowed: bool = True) -> Streams:
    """The streams of this process; those of a test if `LACONIC_TEST_ONLY_SEED` is set, and if that is allowed."""
    refuse_test_seed(test_seed_allowed)
    seed = seed_for_tests()
    return FederationStreams(public_seed) if seed is None else Streams(seed)


def refuse_test_seed(allowed: bool) -> None:
    """Refuse to go on with noise that could be repeated, unless the node's policy allows it."""
    if seed_for_tests() is not None and not allowed:
        raise PrivacyError(f"{TEST_SEED} is set on this node: its noise could be repeated; unset it")


def seed_for_tests() -> int | None:
    """The number in `LACONIC_TEST_ONLY_SEED`, if it is set."""
    text = os.environ.get(TEST_SEED)
    if not text:
        return None
    if not text.isdecimal():
        raise ConfigError(f"{TEST_SEED} must be a whole number, not '{text}': unset it, it is for tests")
    return int(text)
