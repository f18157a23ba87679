"""The guard's bounds and noise are to the last bit what the rest of the library computes with torch."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
import torch

from laconic.guard import noise
from laconic.guard.noise import Entropy, clip_entries, clip_l2, clip_marks, fixed_point, noisy_residues
from laconic.plan import RoundPlan
from laconic.privacy.mechanism.clip import L2Clip, Marks, UnitEntries
from laconic.privacy.mechanism.discrete_gaussian import DiscreteGaussian, StreamSource, discrete_tables
from laconic.streams import Stream

SIZE = 5000


def reader(seed: int) -> Callable[[int], bytes]:
    """Bytes of a generator, one read after the other."""
    return np.random.Generator(np.random.PCG64(seed)).bytes


@dataclass(frozen=True)
class Read(Stream):
    """The words of a federation's stream of torch tensors, where the entropy is given."""

    read: Callable[[int], bytes]

    def words(self, count: int, device: torch.device) -> torch.Tensor:
        return torch.from_numpy(np.frombuffer(bytearray(self.read(8 * count)), dtype=np.int64))

    def fork(self, name: str) -> Stream:
        return self


def plan(clients: int) -> RoundPlan:
    sizes = {"planned_cohort": float(clients), "least_cohort": clients, "largest_cohort": clients}
    cohort = np.arange(clients)
    return RoundPlan(round=1, attempt=0, cohort=cohort, run_seed=0, round_seed=0, fingerprint="", **sizes)


def codes(seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=SIZE).astype(np.float32)


@pytest.mark.parametrize("sigma", [0.5, 30.0])
@pytest.mark.parametrize("bits", [None, 28])
@pytest.mark.parametrize("clients", [3, 40])
@pytest.mark.parametrize("signs", [False, True])
def test_shares_are_those_of_torch_to_the_last_bit(signs: bool, clients: int, bits: int | None, sigma: float) -> None:
    clipped = np.sign(codes()) if signs else clip_l2(codes(), 1.0)
    sensitivity = math.sqrt(SIZE) if signs else 1.0
    mechanism, round = DiscreteGaussian(noise_multiplier=sigma, bits=bits, signs=signs), plan(clients)
    there = mechanism.share(
        torch.from_numpy(clipped)[None], sensitivity=sensitivity, plan=round, rng=Read(0, reader(5))
    )
    grid = mechanism.grid(code_size=SIZE, sensitivity=sensitivity, plan=round)
    fixed = fixed_point(clipped, grid.units, whole=signs)
    here = noisy_residues(fixed, grid.share_scale(clients), grid.bits, Entropy(reader(5)), whole=signs)
    assert here.dtype == np.int64
    assert np.array_equal(here, there.numpy()[0])
    other = noisy_residues(fixed, grid.share_scale(clients), grid.bits, Entropy(reader(6)), whole=signs)
    assert not np.array_equal(here, other)


@pytest.mark.parametrize("scale", [0.3, 3.9, 32.0, 100.0])
def test_words_on_a_boundary_are_decided_alike(scale: float) -> None:
    """Every word equals the first 64 bits of an entry, so that 64 more are read for each."""
    means = 256 if scale < 4 else 1
    tables = noise.exact_tables(scale, means)
    words = tables.high[-1][np.arange(400) % tables.high.shape[1]].tobytes()

    def read() -> Callable[[int], bytes]:
        more = reader(1)
        asked = iter([words])
        return lambda count: next(asked, None) or more(count)

    rows = None if means == 1 else np.full(400, means - 1)
    here = tables.draw(rows, 400, Entropy(read()))
    there = discrete_tables(scale, means, "cpu").draw(
        None if rows is None else torch.from_numpy(rows), 400, StreamSource(Read(0, read()), torch.device("cpu"))
    )
    assert np.array_equal(here, there.numpy())
    assert len(set((here - tables.draw(rows, 400, Entropy(lambda count: (words * 2)[:count]))).tolist())) > 1


@pytest.mark.parametrize("size", [0, 1, 7, 100, 1 << 15, 200_001])
@pytest.mark.parametrize("norm", [1e-20, 0.1, 1.0, 1e20])
def test_clips_are_those_of_torch_to_the_last_bit(size: int, norm: float) -> None:
    for seed in range(5):
        code = (codes(seed) if size <= SIZE else np.tile(codes(seed), 41))[:size] * np.float32(10.0 ** (seed - 2))
        rows = torch.from_numpy(code)[None]
        clipped = clip_l2(code, norm)
        assert clipped.dtype == np.float32
        assert np.array_equal(clipped, L2Clip(clip_norm=norm)(rows).numpy()[0])
        assert float(np.linalg.norm(clipped.astype(np.float64))) <= norm
        assert np.array_equal(clip_entries(code), UnitEntries()(rows).numpy()[0])
        if size:
            assert np.array_equal(clip_marks(code, 0.1), Marks(ratio=0.1)(rows).numpy()[0])


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_is_bounded_as_torch_bounds_it(bad: float) -> None:
    code = codes()
    code[[3, 17]] = bad
    rows = torch.from_numpy(code)[None]
    for here, there in (
        (clip_l2(code, 1.0), L2Clip(clip_norm=1.0)),
        (clip_entries(code), UnitEntries()),
        (clip_marks(code, 0.1), Marks(ratio=0.1)),
    ):
        assert np.array_equal(here, there(rows).numpy()[0])
    assert not clip_l2(code, 1.0).any()


def test_the_system_is_asked_for_every_word() -> None:
    one, other = (noisy_residues(np.zeros(100, dtype=np.int64), 50.0, 32, Entropy(), whole=False) for _ in "ab")
    assert not np.array_equal(one, other)


def test_the_guard_loads_no_torch() -> None:
    code = "import sys, laconic.guard.noise; print({'torch', 'scipy', 'dp_accounting'} & {*sys.modules})"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "set()"
