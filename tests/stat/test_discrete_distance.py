"""The sampler's distance from the exact discrete Gaussian, computed and not estimated.

`Tables.draw` maps a word of 128 bits to a value: 64 bits, and 64 more where those equal a boundary. It only
compares words with boundaries, so it is constant between them. Asked once on either side of every boundary, the
program's own code gives the exact number of words of each value. The true distribution is computed with 100 digits.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, fields
from decimal import Decimal, localcontext

import pytest
import torch
from torch import Tensor

from laconic.guard.noise import TABLE_TOTAL_VARIATION, Tables, draw_gap, draw_total_variation
from laconic.privacy.mechanism import discrete_gaussian
from laconic.privacy.mechanism.discrete_gaussian import StreamSource, discrete_tables, draw_discrete_gaussian
from laconic.streams import Stream

pytestmark = pytest.mark.stat
WORD, DIGITS = 2**64, 100
LARGEST_TABLE = 1024.0
LARGEST = 2.0**31
"""The scale of a share on the finest grid: the sum's noise fits into 32 bits."""
CPU = torch.device("cpu")


class OldRule(Tables):
    """The sabotaged twin: of all entries that share a word's first 64 bits, at most one is stepped over."""

    def _decided(self, index: Tensor, words: Tensor, more: Tensor) -> Tensor:
        return index + (self.low.reshape(-1)[index] < more)


@dataclass(frozen=True)
class Scripted(Stream):
    """A stream whose words are given: the first 64 bits, and the 64 that follow where they are asked for."""

    first: Tensor
    then: Tensor

    def words(self, count: int, device: torch.device) -> Tensor:
        return self.first.clone()

    def words_at(self, places: Tensor, count: int) -> Tensor:
        return self.then[places]

    def fork(self, name: str) -> Stream:
        return self


def mapped(table: Tables, row: int, words: list[int]) -> list[int]:
    """What the program makes of 128-bit words."""
    first = torch.tensor([(word >> 64) - 2**63 for word in words])
    then = torch.tensor([word % WORD - 2**63 for word in words])
    rows = torch.full((len(words),), row) if len(table.high) > 1 else None
    drawn: list[int] = table.draw(rows, len(words), StreamSource(Scripted(0, first, then), CPU)).tolist()
    return drawn


def word_counts(table: Tables, row: int) -> dict[int, int]:
    """How many of the 2¹²⁸ words mean each value, by the program's own code."""
    high, low = ((part[row] + 0).tolist() for part in (table.high, table.low))
    # Where the answer may change: at a boundary's 64 bits, at its 128, and at the next 64 bits.
    edges = {0, WORD**2}
    for top, rest in zip(high, low, strict=True):
        start = (top + 2**63) * WORD
        edges |= {start, start + rest + 2**63 + 1, start + WORD}
    starts = sorted(edges)
    ends = starts[1:]
    starts = starts[:-1]
    values = mapped(table, row, starts)
    assert values == mapped(table, row, [end - 1 for end in ends])  # constant in between
    counts: dict[int, int] = defaultdict(int)
    for value, start, end in zip(values, starts, ends, strict=True):
        counts[value] += end - start
    return counts


def exact(mean: Decimal, variance: Decimal) -> dict[int, Decimal]:
    """DG(mean, √variance); less than 1e-80 lies beyond."""
    reach = int(20 * variance.sqrt()) + 10
    mass = {x: (-((x - mean) ** 2) / (2 * variance)).exp() for x in range(-reach, reach + 1)}
    total = sum(mass.values(), Decimal(0))
    return {x: part / total for x, part in mass.items()}


def distance(drawn: dict[int, Decimal], truth: dict[int, Decimal]) -> Decimal:
    """The total variation distance, ½·Σ|p − q|."""
    values = drawn.keys() | truth.keys()
    return sum((abs(drawn.get(x, Decimal(0)) - truth.get(x, Decimal(0))) for x in values), Decimal(0)) / 2


def table_distance(table: Tables, scale: float, row: int = 0) -> float:
    with localcontext() as context:
        context.prec = DIGITS
        counts = {x: Decimal(count) / WORD**2 for x, count in word_counts(table, row).items()}
        return float(distance(counts, exact(Decimal(row) / len(table.high), Decimal(scale) ** 2)))


def old(table: Tables) -> OldRule:
    return OldRule(**{field.name: getattr(table, field.name) for field in fields(table)})


@pytest.mark.parametrize("scale", [2.0, 6.0, 50.0, 400.0, LARGEST_TABLE])
def test_a_table_is_as_near_to_the_exact_distribution_as_is_stated(scale: float) -> None:
    far = table_distance(discrete_tables(scale, 1, "cpu"), scale)
    assert far <= TABLE_TOTAL_VARIATION
    assert far < 2.0**-111  # as its text says


@pytest.mark.parametrize(("scale", "bits"), [(2.0, -64), (6.0, -63), (50.0, -61), (400.0, -59)])
def test_stepping_over_one_entry_is_found_to_be_too_far(scale: float, bits: int) -> None:
    twin = table_distance(old(discrete_tables(scale, 1, "cpu")), scale)
    assert twin > 2.0**30 * TABLE_TOTAL_VARIATION
    assert 2.0 ** (bits - 2) < twin < 2.0 ** (bits + 1)


@pytest.mark.parametrize("scale", [2.0, 3.9])
def test_a_table_around_a_real_mean_is_as_near(scale: float) -> None:
    tables = discrete_tables(scale, 256, "cpu")
    twin = old(tables)
    for row in (0, 1, 95, 128, 255):
        assert table_distance(tables, scale, row) <= TABLE_TOTAL_VARIATION
        assert table_distance(twin, scale, row) > 2.0**30 * TABLE_TOTAL_VARIATION


@pytest.mark.parametrize("integer_mean", [True, False])
@pytest.mark.parametrize("scale", [2.0, 6.0, 50.0, 400.0, LARGEST])
def test_the_tables_of_a_draw_are_together_as_near_as_is_stated(
    scale: float, integer_mean: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Distances of independent draws add up at most when the draws are summed."""
    used: list[tuple[float, int]] = []

    def noted(scale: float, num_means: int, device: str) -> Tables:
        used.append((scale, num_means))
        return discrete_tables(scale, num_means, device)

    monkeypatch.setattr(discrete_gaussian, "discrete_tables", noted)
    draw_discrete_gaussian(torch.zeros(1), scale, Stream(0), integer_mean=integer_mean)
    tables = [(discrete_tables(s, n, "cpu"), s, 95 % n) for s, n in used]
    stated = draw_total_variation(scale, integer_mean=integer_mean)
    assert sum(table_distance(*table) for table in tables) <= stated
    assert sum(table_distance(old(table), s, row) for table, s, row in tables) > stated


@pytest.mark.parametrize(("scale", "row"), [(6.0, 95), (50.0, 200)])
def test_a_draw_put_together_from_two_is_as_near_as_is_stated(scale: float, row: int) -> None:
    """DG(μ, 2) + DG(0, √(ξ² − 4)) as the program draws them, convolved exactly, against DG(μ, ξ) itself."""
    rest = (scale**2 - 4) ** 0.5
    fraction = word_counts(discrete_tables(2.0, 256, "cpu"), row)
    whole = word_counts(discrete_tables(rest, 1, "cpu"), 0)
    summed: dict[int, int] = defaultdict(int)
    for x, some in fraction.items():
        for y, others in whole.items():
            summed[x + y] += some * others
    with localcontext() as context:
        context.prec = DIGITS
        drawn = {x: Decimal(count) / WORD**4 for x, count in summed.items()}
        variance = 4 + Decimal(rest) ** 2
        assert abs(variance.sqrt() / Decimal(scale) - 1) < Decimal(2) ** -52  # √ is a float's, and so is the scale
        far = float(distance(drawn, exact(Decimal(row) / 256, variance)))
    assert far <= draw_total_variation(scale) + draw_gap(scale)


def test_words_on_no_boundary_are_drawn_as_before() -> None:
    """Recorded results stay what they were: only a word on a boundary is decided otherwise."""
    for scale in (2.0, 50.0, 400.0):
        table = discrete_tables(scale, 1, "cpu")
        words = Stream(7).words(100_000, CPU)
        script = StreamSource(Scripted(0, words, torch.zeros_like(words)), CPU)
        assert torch.equal(table.draw(None, 100_000, script), old(table).draw(None, 100_000, script))
