"""The robust rules against loops that were written by themselves, and what must hold for any codes."""

from __future__ import annotations

from collections.abc import Callable

import naive_rules as naive
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from laconic.aggregate.base import Aggregator
from laconic.aggregate.clipping import CentredClipping, NormBound
from laconic.aggregate.krum import Bulyan, Krum, MultiKrum
from laconic.aggregate.medians import GeometricMedian, Median, TrimmedMean
from laconic.aggregate.mixing import NearestNeighbourMixing

F = 2
PRECISE = GeometricMedian(max_iterations=500, tolerance=0, smoothing=1e-12)
RULES: dict[str, tuple[Aggregator, Callable[[np.ndarray], np.ndarray]]] = {
    "median": (Median(byzantine=F), naive.median),
    "trimmed-mean": (TrimmedMean(byzantine=F), lambda c: naive.trimmed_mean(c, F)),
    "krum": (Krum(byzantine=F), lambda c: naive.krum(c, F)),
    "multi-krum": (MultiKrum(byzantine=F), lambda c: naive.multi_krum(c, F, len(c) - F)),
    "multi-krum of 3": (MultiKrum(byzantine=F, selected=3), lambda c: naive.multi_krum(c, F, 3)),
    "bulyan": (Bulyan(byzantine=F), lambda c: naive.bulyan(c, F)),
    "centred-clipping": (
        CentredClipping(radius=1.5, iterations=3),
        lambda c: naive.centred_clipping(c, 1.5, np.zeros(c.shape[1]), 3),
    ),
    "norm-bound": (NormBound(), lambda c: naive.norm_bound(c, None)),
    "norm-bound of 1": (NormBound(radius=1.0), lambda c: naive.norm_bound(c, 1.0)),
    "mixing and median": (
        NearestNeighbourMixing(rule=Median(), byzantine=F),
        lambda c: naive.median(naive.mixed(c, F)),
    ),
    "mixing and krum": (
        NearestNeighbourMixing(rule=Krum(byzantine=F), byzantine=F),
        lambda c: naive.krum(naive.mixed(c, F), F),
    ),
}
SHIFTABLE = [name for name in RULES if "norm-bound" not in name and "clipping" not in name]
"""Norms are measured from 0, and so is the start of centred clipping: those rules do not move with the codes."""


def drawn(seed: int, count: int, size: int, *, dtype: torch.dtype = torch.float64) -> Tensor:
    """Codes around a common one, two of them far away."""
    rng = np.random.default_rng(seed)
    codes = rng.normal(size=(count, size)) + 3 * rng.normal(size=size)
    codes[: min(F, count)] += 10.0 ** rng.integers(0, 4) * rng.normal(size=size)
    return torch.from_numpy(rng.permutation(codes)).to(dtype)


def combined(rule: Aggregator, codes: Tensor) -> Tensor:
    return rule.combine(codes, torch.ones(len(codes), dtype=codes.dtype))


shapes = st.tuples(st.integers(0, 10**6), st.integers(4 * F + 3, 17), st.integers(1, 9))


@pytest.mark.parametrize("name", RULES)
@settings(max_examples=12)
@given(shape=shapes)
def test_a_rule_is_what_loops_give(name: str, shape: tuple[int, int, int]) -> None:
    rule, loops = RULES[name]
    codes = drawn(*shape)
    assert torch.allclose(combined(rule, codes), torch.from_numpy(loops(codes.numpy())), rtol=1e-9, atol=1e-9)


def test_the_geometric_median_is_what_a_very_long_iteration_gives() -> None:
    for seed in range(4):
        codes = drawn(seed, 11, 4)
        expected = torch.from_numpy(naive.geometric_median(codes.numpy(), 500))
        assert torch.allclose(combined(PRECISE, codes), expected, atol=1e-6)
        assert torch.allclose(combined(GeometricMedian(), codes), expected, atol=1e-3)


@pytest.mark.parametrize("name", [*(name for name in RULES if name != "bulyan"), "geometric-median"])
@settings(max_examples=12)
@given(shape=shapes, order=st.randoms(use_true_random=False))
def test_the_order_of_the_clients_does_not_matter(name: str, shape: tuple[int, int, int], order: object) -> None:
    rule = RULES[name][0] if name in RULES else GeometricMedian()
    codes = drawn(*shape)
    shuffled = list(range(len(codes)))
    order.shuffle(shuffled)  # type: ignore[attr-defined]
    assert torch.allclose(combined(rule, codes), combined(rule, codes[shuffled]), atol=1e-8)


@settings(max_examples=12)
@given(seed=st.integers(0, 10**6), size=st.integers(1, 9))
def test_the_order_does_not_matter_to_bulyan_where_no_two_codes_are_each_others_only_neighbour(
    seed: int, size: int
) -> None:
    """Krum sums over f − 1 neighbours or more: with f = 2 the last choices are ties, which the order decides."""
    codes, order = drawn(seed, 15, size), np.random.default_rng(seed).permutation(15)
    assert torch.allclose(combined(Bulyan(byzantine=3), codes), combined(Bulyan(byzantine=3), codes[order]), atol=1e-8)


@pytest.mark.parametrize("name", [*SHIFTABLE, "geometric-median"])
@settings(max_examples=12)
@given(shape=shapes)
def test_codes_that_are_all_moved_move_the_result(name: str, shape: tuple[int, int, int]) -> None:
    rule = RULES[name][0] if name in RULES else GeometricMedian()
    codes = drawn(*shape)
    shift = torch.linspace(-5, 5, codes.shape[1], dtype=torch.float64)
    assert torch.allclose(combined(rule, codes + shift), combined(rule, codes) + shift, atol=1e-5)


@pytest.mark.parametrize("name", [*SHIFTABLE, "norm-bound", "geometric-median"])
def test_equal_codes_give_that_code(name: str) -> None:
    rule = RULES[name][0] if name in RULES else GeometricMedian()
    code = torch.randn(50, generator=torch.Generator().manual_seed(0))
    assert torch.allclose(combined(rule, code.expand(13, -1).contiguous()), code, rtol=1e-6)


@pytest.mark.parametrize("name", ["median", "trimmed-mean", "bulyan", "krum", "multi-krum"])
@settings(max_examples=12)
@given(seed=st.integers(0, 10**6), size=st.integers(1, 6), lie=st.floats(-1e30, 1e30))
def test_two_attackers_of_eleven_stay_within_what_honest_clients_sent(
    name: str, seed: int, size: int, lie: float
) -> None:
    codes = torch.from_numpy(np.random.default_rng(seed).normal(size=(11, size)))
    honest = codes[F:].clone()
    codes[:F] = lie if abs(lie) > 1e4 else 1e4
    result = combined(RULES[name][0], codes)
    assert (result >= honest.min(0).values - 1e-9).all() and (result <= honest.max(0).values + 1e-9).all()


@settings(max_examples=12)
@given(seed=st.integers(0, 10**6), size=st.integers(1, 6), power=st.integers(3, 30))
def test_attackers_move_the_geometric_median_by_a_bounded_length(seed: int, size: int, power: int) -> None:
    """Of n codes f attackers move it by at most 2(n − f)/(n − 2f) times the largest honest distance from its centre."""
    codes = torch.from_numpy(np.random.default_rng(seed).normal(size=(11, size)))
    centre = codes[F:].mean(0)
    radius = (codes[F:] - centre).norm(dim=1).max()
    codes[:F] = 10.0**power
    assert (combined(GeometricMedian(), codes) - centre).norm() <= 2 * 9 / 7 * radius


@settings(max_examples=12)
@given(shape=shapes, power=st.integers(0, 30))
def test_one_attacker_moves_centred_clipping_by_its_radius_over_n_twice(
    shape: tuple[int, int, int], power: int
) -> None:
    rule, codes = CentredClipping(radius=0.7), drawn(*shape)
    before = combined(rule, codes)
    codes[0] = 10.0**power
    assert (combined(rule, codes) - before).norm() <= 2 * 0.7 / len(codes) * (1 + 1e-6)


def test_centred_clipping_starts_from_the_last_aggregate() -> None:
    rule, codes = CentredClipping(radius=0.5, iterations=2), drawn(1, 12, 5, dtype=torch.float32)
    state = rule.init(5, torch.device("cpu"))
    point = np.zeros(5)
    for _ in range(3):
        result, state = rule.step(codes, torch.ones(12), state)
        point = naive.centred_clipping(codes.double().numpy(), 0.5, point, 2)
        assert torch.allclose(result.double(), torch.from_numpy(point), atol=1e-5)
        assert torch.equal(state["last"], result)


@pytest.mark.parametrize("name", [*RULES, "geometric-median"])
def test_claimed_data_sizes_do_not_count(name: str) -> None:
    rule = RULES[name][0] if name in RULES else GeometricMedian()
    codes = drawn(3, 13, 4)
    claimed = torch.linspace(1, 1e9, 13, dtype=torch.float64)
    assert torch.equal(rule.combine(codes, claimed), combined(rule, codes))


def test_many_blocks_give_what_one_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    codes = drawn(5, 13, 1000, dtype=torch.float32)
    every = {name: rule for name, (rule, _) in RULES.items()} | {"geometric-median": GeometricMedian()}
    whole = {name: combined(rule, codes) for name, rule in every.items()}
    monkeypatch.setattr("laconic.aggregate.base._VALUES", 13 * 64)
    for name, rule in every.items():
        assert torch.allclose(combined(rule, codes), whole[name], atol=1e-5), name


def test_distances_of_close_codes_survive_their_length() -> None:
    """‖x‖² + ‖y‖² − 2xy loses all digits in float32 here: the codes differ by 1e-4 of their length."""
    x = torch.full((100_000,), 30.0) + torch.randn(100_000, generator=torch.Generator().manual_seed(0))
    y = x + 0.003 * torch.randn(100_000, generator=torch.Generator().manual_seed(1))
    from laconic.aggregate.base import squared_distances

    exact = float((x.double() - y.double()).square().sum())
    assert float(squared_distances(torch.stack([x, y]))[0, 1]) == pytest.approx(exact, rel=1e-4)
    single = float(x @ x + y @ y - 2 * (x @ y))
    assert abs(single / exact - 1) > 0.1


def test_what_a_rule_tolerates_is_known() -> None:
    tolerated = {name: rule.tolerates(11) for name, (rule, _) in RULES.items()}
    assert tolerated["median"] == GeometricMedian().tolerates(11) == 5
    assert tolerated["trimmed-mean"] == tolerated["krum"] == tolerated["bulyan"] == F
    assert tolerated["mixing and median"] == F and tolerated["norm-bound"] == 0


def test_the_median_of_signs_is_the_majority() -> None:
    signs = torch.randn(8, 40, generator=torch.Generator().manual_seed(0)).sign()
    assert torch.equal(combined(Median(), signs).sign(), signs.sum(0).sign())
