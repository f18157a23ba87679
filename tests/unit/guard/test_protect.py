"""What leaves a guard is to the last bit what a simulated client sends, and bounded whatever training says."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from offer_tools import CASES, ROUNDS

from laconic.errors import PrivacyError
from laconic.federation.entropy import StreamWords
from laconic.federation.offer import Offer
from laconic.guard import protect
from laconic.guard.contract import ENTRIES, L2, MARKS, PARTS, Release, Steps
from laconic.guard.protect import bounded, noisy_step, residues
from laconic.plan import RoundPlan
from laconic.planning import plan_of_sum
from laconic.privacy.mechanism.discrete_gaussian import noisy_sum
from laconic.round import noisy_codes, noisy_terms
from laconic.streams import Stream, Streams

NOISY = [name for name in CASES if any(one.units for one in CASES[name]().contract.releases)]
STEPPED = [name for name in CASES if CASES[name]().contract.releases[-1].steps]


def vectors(size: int) -> list[np.ndarray]:
    """What training may say: plain vectors, tiny and huge ones, and those with numbers that are none."""
    rng = np.random.default_rng(size)
    plain = rng.normal(size=size).astype(np.float32)
    hollow = plain * (rng.random(size) < 0.1)
    wrong = [np.where(rng.random(size) < 0.1, np.float32(bad), plain) for bad in (math.nan, math.inf, -math.inf)]
    return [plain, np.sign(plain), hollow, plain * 1e-6, plain * 1e-42, plain * 1e30, plain * 0, -plain * 0, *wrong]


def plan(offer: Offer, round: int, cohort: int) -> RoundPlan:
    return plan_of_sum(
        offer.scheme,
        offer.sampler,
        np.arange(cohort),
        streams=Streams(offer.public_seed),
        round=round,
        attempt=0,
        num_clients=offer.num_clients,
        max_dropouts=offer.max_dropouts,
        max_colluders=offer.max_colluders,
    )


@pytest.mark.parametrize("name", NOISY)
def test_residues_are_those_of_a_simulated_client_to_the_last_bit(name: str) -> None:
    offer = CASES[name]()
    kinds = {offer.contract.release(round).phase: round for round in range(ROUNDS, 0, -1)}
    for round in kinds.values():
        parts, release = offer.scheme.at(round), offer.contract.release(round)
        for cohort in {max(offer.contract.least_cohort, offer.contract.slack + 1), offer.contract.largest_cohort}:
            told, share = plan(offer, round, cohort), offer.contract.share_scale(release, cohort)
            for number, vector in enumerate(vectors(release.code_size)):
                stream = Streams(5).stream("noise", round, 0, number)
                if release.clip == PARTS:  # what units add up to is bounded before
                    vector = np.nan_to_num(vector * 1e3, posinf=2.0**40).clip(-(2.0**52), 2.0**52).astype(np.int64)
                    there = noisy_terms(parts, told, torch.from_numpy(vector)[None], streams=[stream])[0].numpy()
                else:
                    code = parts.clip(torch.from_numpy(vector)[None])
                    there = noisy_codes(parts, told, code, streams=[stream])[0].numpy()
                here = residues(release, vector, share=share, source=StreamWords(stream))
                assert here.dtype == np.int64
                assert np.array_equal(here, there)


@pytest.mark.parametrize("name", STEPPED)
def test_the_noise_of_a_step_is_that_of_a_simulated_client_to_the_last_bit(name: str) -> None:
    offer = CASES[name]()
    steps, train = steps_of(offer), offer.scheme.train
    for number, vector in enumerate(vectors(steps.size)[:8]):
        total = vector.astype(np.float64) * steps.clip_norm
        if np.abs(total).max() > 1e20:
            continue
        stream = Streams(5).stream("record noise", number)
        there = noisy_sum(
            torch.from_numpy(total), clip_norm=train.clip_norm, noise_multiplier=train.sigma, stream=stream
        )
        here = noisy_step(steps, total, source=StreamWords(stream))
        assert here.dtype == np.float32
        assert np.array_equal(here, there.numpy())


def steps_of(offer: Offer) -> Steps:
    steps = offer.contract.releases[-1].steps
    assert steps is not None
    return steps


class Centre:
    """A source without noise: every draw is its own mean, to 256ths."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.drawn: list[np.ndarray] = []

        def drawn(fixed: np.ndarray, scale: float, bits: int, source: object, *, whole: bool) -> np.ndarray:
            self.drawn.append(fixed * 256 if whole else fixed)
            return fixed & (2**bits - 1)

        monkeypatch.setattr(protect, "noisy_residues", drawn)


def kinds(size: int) -> list[Release]:
    """Every bound, from the smallest to the largest."""
    stated = [(L2, 1e-30), (L2, 0.3), (L2, 1e30), (ENTRIES, 1.0), (MARKS, 0.1), (MARKS, 1.0)]
    whole = {MARKS, ENTRIES}
    return [
        Release(phase="x", code_size=size, clip=clip, bound=bound, scale=64.0, bits=20, whole=clip in whole)
        for clip, bound in stated
    ]


@pytest.mark.parametrize("size", [1, 3, 400, 100_001])
def test_no_vector_is_longer_on_the_grid_than_the_contract_says(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exactly, in whole numbers: what noise is drawn around has a norm of u·S at most."""
    around = Centre(monkeypatch)
    for release in kinds(size):
        units = float(math.ceil(3.7 / release.sensitivity)) if release.whole else 37.7 / release.sensitivity
        for vector in vectors(size):
            residues(replace(release, units=units), vector, share=4.0)
            squares = sum(int(value) ** 2 for value in around.drawn.pop().tolist())
            assert squares <= (256 * units * release.sensitivity) ** 2 * (1 + 1e-12)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_vector_without_a_norm_is_noise_alone(bad: float) -> None:
    """The same bytes as of no vector: nothing but the noise is in them."""
    release = CASES["fl-std-dp"]().contract.releases[-1]
    vector = vectors(release.code_size)[0]
    vector[3] = bad
    alone, sent = (residues(release, given, share=9.0, source=StreamWords(Stream(4))) for given in (None, vector))
    assert np.array_equal(alone, sent)
    vector[3] = 1.0
    assert not np.array_equal(alone, residues(release, vector, share=9.0, source=StreamWords(Stream(4))))


def test_vectors_of_other_types_are_bounded_alike() -> None:
    """Lists of doubles, strided arrays and arrays with methods of their own."""

    class Lying(np.ndarray):
        def __array_wrap__(self, *args: object, **kwargs: object) -> np.ndarray:
            return np.full(5, 1e9, dtype=np.float32)

        def __mul__(self, other: object) -> np.ndarray:
            return np.full(5, 1e9, dtype=np.float32)

    release = kinds(5)[1]
    wanted = bounded(release, np.array([1, 2, 3, 4, 5], dtype=np.float32))
    assert float(np.linalg.norm(wanted.astype(float))) <= 0.3
    doubles = np.array([1.0, 2.0, 3.0, 4.0, 5.0])
    strided = np.repeat(doubles, 2)[::2]
    for given in (doubles, strided, doubles.tolist(), doubles.view(Lying), np.arange(1, 6)):
        assert np.array_equal(bounded(release, given), wanted)
    assert not bounded(release, np.array([1e300] * 5)).any()  # infinite in float32


@pytest.mark.parametrize("largest", [2**62, -(2**63), 2**63 - 256])
def test_a_sum_of_any_whole_numbers_leaves_with_the_whole_share_of_the_noise(largest: int) -> None:
    """The bound of a unit is training's to keep. That other nodes' units have this noise is not."""
    release = CASES["patients of two nodes"]().contract.releases[-1]
    total = np.full(release.code_size, largest, dtype=np.int64)
    alone, sent = (residues(release, given, share=9.0, source=StreamWords(Stream(4))) for given in (None, total))
    ring = 2**release.bits
    assert np.array_equal((sent - alone) % ring, np.full(release.code_size, (largest >> 8) % ring))


@pytest.mark.parametrize("kind", [np.float64, np.float32, np.int32, np.uint64, object])
def test_a_sum_of_other_numbers_is_refused(kind: type) -> None:
    release = CASES["patients of two nodes"]().contract.releases[-1]
    with pytest.raises(PrivacyError, match="values of int64"):
        residues(release, np.zeros(release.code_size, dtype=kind), share=9.0)
    with pytest.raises(PrivacyError, match="values of int64"):
        residues(release, np.zeros(release.code_size - 1, dtype=np.int64), share=9.0)
    with pytest.raises(PrivacyError, match="nothing bounds"):
        bounded(release, np.zeros(release.code_size))


@pytest.mark.parametrize("shape", [(), (4,), (6,), (5, 1), (1, 5)])
def test_a_vector_of_another_shape_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(PrivacyError, match="a code has 5 values"):
        bounded(kinds(5)[1], np.zeros(shape))
    with pytest.raises(PrivacyError, match="a gradient has 5 values"):
        noisy_step(step(), np.zeros(shape))


def test_a_vector_that_changes_while_it_is_bounded_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its norm is taken of the values that are sent."""
    release, vector = kinds(1000)[1], np.ones(1000, dtype=np.float32)
    clip = protect.clip_l2

    def slow(code: np.ndarray, norm: float) -> np.ndarray:
        vector[:] = 1e6
        return clip(code, norm)

    monkeypatch.setattr(protect, "clip_l2", slow)
    assert float(np.linalg.norm(bounded(release, vector))) <= 0.3


def step(size: int = 5) -> Steps:
    return Steps(size=size, rate=0.1, count=1, clip_norm=1.0, noise_multiplier=1.0, units=40.0, scale=50.0)


def test_sums_that_no_integer_holds_move_a_step_no_further_than_their_difference() -> None:
    """Cutting a coordinate moves two sums no further apart, so the noise still hides one record."""
    totals = [np.array([1e300, -1e300, math.nan, math.inf, 3.0]), np.array([1e18, -1e18, 0.0, 1e18, 3.0])]
    cut, same = (noisy_step(step(), total, source=StreamWords(Stream(1))) for total in totals)
    assert np.array_equal(cut, same)
    assert np.isfinite(cut).all()


def test_noise_alone_is_what_no_records_give() -> None:
    alone = noisy_step(step(), None, source=StreamWords(Stream(1)))
    assert np.array_equal(alone, noisy_step(step(), np.zeros(5), source=StreamWords(Stream(1))))
    assert alone.any()


def test_the_noise_is_the_operating_systems_unless_a_test_says_otherwise() -> None:
    release = CASES["fl-std-dp"]().contract.releases[-1]
    one, other = (residues(release, None, share=9.0) for _ in "ab")
    assert not np.array_equal(one, other)
    one, other = (noisy_step(step(), None) for _ in "ab")
    assert not np.array_equal(one, other)


def test_a_kind_without_noise_or_without_a_bound_is_not_masked() -> None:
    bare = CASES["fl-std"]().contract.releases[-1]
    with pytest.raises(PrivacyError, match="no noise"):
        residues(bare, np.zeros(bare.code_size), share=4.0)
    with pytest.raises(PrivacyError, match="nothing bounds"):
        bounded(bare, np.zeros(bare.code_size))
