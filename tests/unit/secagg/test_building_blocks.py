"""The pieces of the protocol: vectors mod 2^b, masks, secret sharing, sizes, the ring."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations
from math import comb

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import hypergeom
from secagg_tools import make_plan, make_terms

from laconic.errors import ConfigError
from laconic.secagg.crypto.masks import Ring, add_masks, keystream
from laconic.secagg.crypto.shamir import LIMBS, PRIME, complete, evaluate, from_limbs, reconstruct, to_limbs
from laconic.secagg.shares import deal, num_corrected, pads
from laconic.secagg.terms import _tail, committee_size, ring_degree, whole_threshold

seeds = st.binary(min_size=32, max_size=32)

# Vectors and masks


@given(st.integers(8, 64), st.lists(st.integers(-(2**63), 2**63 - 1), max_size=20))
def test_vectors_are_residues(bits: int, values: list[int]) -> None:
    ring = Ring(bits)
    words = ring.words(np.array(values, dtype=np.int64))
    assert ring.reduced(words).tolist() == [v % 2**bits for v in values]
    again = ring.unpack(ring.pack(words), len(values))
    assert ring.reduced(again).tolist() == [v % 2**bits for v in values]
    assert 8 * ring.word.itemsize < 2 * max(bits, 9)


@pytest.mark.parametrize("bits", [-1, 0, 7, 65])
def test_widths_that_cannot_be(bits: int) -> None:
    with pytest.raises(ConfigError, match="bits must be 8 to 64"):
        Ring(bits)


def test_the_keystream_is_aes_256_in_counter_mode() -> None:
    """AES-256 of the blocks 0 and 1 under the zero key: published test vectors."""
    stream = keystream(bytes(32), 32).tobytes()
    assert stream.hex() == "dc95c078a2408989ad48a21492842087530f8afbc74536b9a963b4f1c4cb738b"


@pytest.mark.parametrize("bits", [8, 13, 16, 17, 31, 32, 47, 64])
def test_a_mask_is_its_keystream(bits: int) -> None:
    """Also when it is longer than the pieces in which it is made."""
    ring = Ring(bits)
    words = ring.zeros(150_001)
    add_masks(words, plus=[b"k" * 32])
    raw = keystream(b"k" * 32, words.nbytes).view(ring.word)
    assert np.array_equal(words, raw)
    add_masks(words, minus=[b"k" * 32])
    assert not words.any()


@given(st.integers(8, 64), st.lists(st.tuples(seeds, st.booleans()), max_size=6), st.randoms(), st.integers(0, 40))
def test_masks_cancel_in_any_order(bits: int, masks: list[tuple[bytes, bool]], rng: object, size: int) -> None:
    ring = Ring(bits)
    start = np.arange(size)
    words = ring.words(start)
    for seed, plus in masks:
        add_masks(words, **{"plus" if plus else "minus": [seed]})  # type: ignore[arg-type]
    rng.shuffle(masks)  # type: ignore[attr-defined]
    add_masks(words, plus=[s for s, plus in masks if not plus], minus=[s for s, plus in masks if plus])
    assert ring.reduced(words).tolist() == [v % 2**bits for v in start.tolist()]


@pytest.mark.stat
@pytest.mark.parametrize("sabotaged", [False, True])
@pytest.mark.parametrize("bits", [8, 10, 13])
def test_masked_residues_are_uniform(bits: int, sabotaged: bool) -> None:
    """χ² of 800,000 masked zeros over all 2^bits residues; false-alarm rate 1e-6, two-sided, normal approximation.

    The sabotaged twin draws from 2^b + 3 values and reduces them, as a modulus that does not divide the word would.
    """
    ring = Ring(bits)
    words = ring.zeros(800_000)
    add_masks(words, plus=[b"s" * 32])
    residues = ring.reduced(words)
    if sabotaged:
        wide = keystream(b"s" * 32, 4 * len(words)).view("<u4")
        residues = wide % np.uint32(2**bits + 3) % np.uint32(2**bits)
    counts = np.bincount(residues.astype(np.int64), minlength=2**bits)
    expected = len(words) / 2**bits
    chi2 = float(((counts - expected) ** 2 / expected).sum())
    freedom = 2**bits - 1
    assert (abs(chi2 - freedom) < 4.9 * np.sqrt(2 * freedom)) is not sabotaged


# Secret sharing


@settings(max_examples=60)
@given(st.data())
def test_any_t_members_open_and_all_agree(data: st.DataObject) -> None:
    members = data.draw(st.integers(1, 12))
    threshold = data.draw(st.integers(1, members))
    secrets = data.draw(st.lists(seeds, min_size=1, max_size=4))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    first = rng.integers(0, PRIME, (threshold - 1, len(secrets), LIMBS))
    shares = np.concatenate([first, complete(to_limbs(secrets), first, members)])
    assert shares.shape == (members, len(secrets), LIMBS)
    some = data.draw(st.permutations(range(members)))[:threshold]
    points = tuple(i + 1 for i in some)
    assert from_limbs(reconstruct(points, shares[list(some)])) == secrets
    for target in range(members):
        assert np.array_equal(evaluate(points, shares[list(some)], target + 1), shares[target])


def test_shares_are_values_of_a_polynomial() -> None:
    """Against Lagrange's formula in Python's own integers."""
    rng = np.random.default_rng(0)
    secret, first = rng.integers(0, PRIME, (1, LIMBS)), rng.integers(0, PRIME, (4, 1, LIMBS))
    others = complete(secret, first, 9)
    known = {0: int(secret[0, 3])} | {i + 1: int(first[i, 0, 3]) for i in range(4)}
    for i, x in enumerate(range(5, 10)):
        value = 0
        for a, y in known.items():
            term = y
            for b in known:
                if a != b:
                    term = term * (x - b) * pow(a - b, -1, PRIME) % PRIME
            value += term
        assert int(others[i, 0, 3]) == value % PRIME


def test_fewer_shares_fit_every_secret() -> None:
    """For t − 1 = 3 shares and any secret there is one polynomial: what the other members would then hold differs."""
    first = np.random.default_rng(1).integers(0, PRIME, (3, 1, LIMBS))
    others = {complete(np.full((1, LIMBS), secret), first, 4).tobytes() for secret in range(0, PRIME, 331)}
    assert len(others) == len(range(0, PRIME, 331))


def test_elements_that_are_no_secret_are_marked() -> None:
    limbs = np.zeros((2, LIMBS), dtype=np.int64)
    limbs[1, 5] = PRIME - 1
    assert from_limbs(limbs) == [bytes(32), None]
    assert from_limbs(np.zeros((0, LIMBS), dtype=np.int64)) == []


def test_pads_are_remainders_of_128_bit_words() -> None:
    key = b"p" * 32
    raw = keystream(key, 3 * 256).tobytes()
    words = [int.from_bytes(raw[16 * i : 16 * (i + 1)], "little") % PRIME for i in range(3 * LIMBS)]
    assert pads([key], 3).reshape(-1).tolist() == words
    assert np.array_equal(pads([b"q" * 32, key], 3)[1], pads([key], 3)[0])


def test_what_a_dealer_sends_are_shares_under_the_pads_of_their_members() -> None:
    plan = make_plan(make_terms(), range(6))
    keys, secrets = [bytes([i]) * 32 for i in range(6)], [bytes([i + 99]) * 32 for i in range(6)]
    corrections = deal(plan, secrets, keys).corrections(plan)
    assert corrections.shape == (num_corrected(plan), 6, LIMBS) == (2, 6, LIMBS)
    shares = pads(keys, 6)
    shares[plan.threshold - 1 :] = (shares[plan.threshold - 1 :] + corrections) % PRIME
    for some in combinations(range(6), plan.threshold):
        assert from_limbs(reconstruct(tuple(i + 1 for i in some), shares[list(some)])) == secrets


# Sizes


@pytest.mark.parametrize(
    ("cohort", "marked", "drawn"), [(40, 7, 11), (300, 100, 60), (1000, 300, 115), (50, 50, 9), (9, 0, 4)]
)
def test_tails_are_those_of_scipy_and_of_exact_fractions(cohort: int, marked: int, drawn: int) -> None:
    tail = _tail(cohort, marked, drawn)
    assert np.allclose(tail, hypergeom.sf(np.arange(drawn + 1), cohort, marked, drawn), rtol=1e-9, atol=1e-300)
    masses = [
        Fraction(comb(marked, x) * comb(cohort - marked, drawn - x), comb(cohort, drawn)) for x in range(drawn + 1)
    ]
    for x in range(drawn):
        exact = float(sum(masses[x + 1 :]))
        assert tail[x] == pytest.approx(exact, rel=1e-9, abs=1e-300)


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("cohort", [33, 100, 257, 1000])
def test_a_committee_is_the_smallest_that_keeps_its_bounds(cohort: int, signed: bool) -> None:
    dropouts, colluders = cohort // 10, cohort // 10

    def good(members: int, threshold: int) -> bool:
        fails = hypergeom.sf(members - threshold, cohort, dropouts, members)
        breaks = hypergeom.sf((2 * threshold - members if signed else threshold) - 1, cohort, colluders, members)
        return bool(2 * threshold > members and fails <= 2.0**-20 and breaks <= 2.0**-40)

    members, threshold = committee_size(cohort, dropouts, colluders, signed=signed, security_bits=40, failure_bits=20)
    assert members < cohort
    assert good(members, threshold)
    smaller = range(max(1, members - 6), members)
    assert not any(good(c, t) for c in smaller for t in range(1, c + 1))


def test_without_a_smaller_committee_it_is_the_cohort() -> None:
    size = committee_size(20, 9, 9, signed=True, security_bits=40, failure_bits=20)
    assert size == (20, whole_threshold(20, 9, 9, signed=True)) == (20, 15)


@given(st.integers(1, 200), st.data())
def test_the_threshold_of_a_whole_cohort(cohort: int, data: st.DataObject) -> None:
    colluders = data.draw(st.integers(0, cohort - 1))
    dropouts = data.draw(st.integers(0, cohort - 1 - colluders))
    for signed in (False, True):
        threshold = whole_threshold(cohort, dropouts, colluders, signed=signed)
        assert max(colluders, cohort // 2) < threshold <= cohort
        assert not signed or 2 * threshold > cohort + colluders
    if dropouts < cohort / 2 and colluders < cohort - dropouts:
        assert whole_threshold(cohort, dropouts, 0, signed=False) <= cohort - dropouts


def connected_by_search(plan, present: set[int]) -> bool:  # type: ignore[no-untyped-def]
    reached = {min(present)}
    border = set(reached)
    while border:
        border = {other for client in border for other in plan.neighbours(client)} & present - reached
        reached |= border
    return reached == present


def test_the_ring_stays_connected_as_often_as_is_promised() -> None:
    """All sets of absent clients of a ring of 11: exactly how many make it fall apart, against the bound."""
    plan = make_plan(make_terms(small_cohort=2, security_bits=1, dropout_rate=0.2, collusion_rate=0.2), range(11))
    reach = plan.degree // 2
    assert plan.degree == 6
    for client in plan.cohort:
        assert all(client in plan.neighbours(other) for other in plan.neighbours(client))
        assert len(plan.neighbours(client)) == plan.degree
    for removed in (6, 7, 8):
        apart = 0
        for gone in combinations(plan.cohort, removed):
            present = set(plan.cohort) - set(gone)
            connected = connected_by_search(plan, present)
            assert plan.connected(present) == connected
            apart += not connected
        bound = comb(11, 2) * Fraction(comb(11 - 2 * reach, removed - 2 * reach), comb(11, removed))
        assert 0 < Fraction(apart, comb(11, removed)) <= bound


@pytest.mark.parametrize(("cohort", "removed"), [(40, 8), (100, 20), (100, 40), (1000, 200), (1000, 999), (5, 4)])
def test_the_degree_is_the_least_that_keeps_the_bound(cohort: int, removed: int) -> None:
    def chance(degree: int) -> Fraction:
        ways = comb(cohort - degree, removed - degree) if degree <= removed else 0
        return comb(cohort, 2) * Fraction(ways, comb(cohort, removed))

    degree = ring_degree(cohort, removed, 40)
    assert degree == cohort - 1 or (degree % 2 == 0 and chance(degree) <= Fraction(1, 2**40))
    assert degree <= 2 or chance(degree - 2) > Fraction(1, 2**40)


def test_in_signed_mode_no_choice_of_the_absent_cuts_the_ring() -> None:
    terms = make_terms(consistency="signed", max_dropouts=20)
    plan = make_plan(terms, range(100))
    assert plan.degree > 20 + 10  # a tenth of the cohort is assumed to collude
    plain = make_plan(make_terms(max_dropouts=20), range(100))
    assert plain.degree < plan.degree


def test_neighbours_and_committee_follow_from_the_beacon_and_the_attempt() -> None:
    def layout(beacon: bytes, **options: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        plan = make_plan(make_terms(beacon=beacon), range(60), **options)
        assert set(plan.committee) < set(plan.cohort)
        assert plan.contacts(plan.committee[0]) == set(plan.cohort)
        outsider = next(client for client in plan.cohort if client not in plan.point)
        assert plan.contacts(outsider) == {outsider, *plan.neighbours(outsider), *plan.committee}
        return plan.committee, plan.neighbours(0)

    assert layout(b"b" * 32) == layout(b"b" * 32)
    assert len({layout(b"b" * 32), layout(b"c" * 32), layout(b"b" * 32, round=2), layout(b"b" * 32, attempt=1)}) == 4
