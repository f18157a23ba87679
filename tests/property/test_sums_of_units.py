"""Sums of units on the grid: their bound, their value, and that it does not matter who holds which unit."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from laconic.codecs.base import Codec, Identity
from laconic.codecs.dct import LowPassDCT
from laconic.codecs.scaling import BIAS, SCALING, Scaled
from laconic.codecs.subset import FixedRandomSubset, NewRandomSubset
from laconic.data.inputs import SparseRows
from laconic.data.population import Records
from laconic.errors import ConfigError
from laconic.models.networks import logistic, mlp
from laconic.plan import RoundPlan
from laconic.train.flat import FlatModel
from laconic.train.units import UnitSums, unit_terms
from tests.helpers.naive_units import clipped_sum, unit_codes

PLAN = RoundPlan(round=1, attempt=0, cohort=np.arange(3), planned_cohort=3.0, run_seed=1, round_seed=2, fingerprint="")
CODECS: tuple[Codec, ...] = (
    Identity(),
    FixedRandomSubset(ratio=0.3, train_only_kept=False),
    NewRandomSubset(ratio=0.5, train_only_kept=True),
    LowPassDCT(ratio=0.4, num_chunks=2),
    LowPassDCT(ratio=0.5, num_chunks=1, order="natural"),
)
STEPS = 2.0**22
"""S·F: how many steps of the grid one unit has."""


@dataclass(frozen=True, repr=False)
class Case:
    """A model, weights and records with their units."""

    model: FlatModel
    weights: Tensor
    records: Records
    units: Tensor | None
    drawn: Tensor
    class_weights: Tensor | None
    codec: Codec
    clip_norm: float
    plan: RoundPlan = PLAN

    @property
    def numbers(self) -> Tensor:
        return torch.arange(len(self.records.targets)) if self.units is None else self.units

    def terms(self, rows: Tensor | None = None, drawn: Tensor | None = None) -> Tensor:
        """C of all records, or of some: in their order, with their units numbered anew."""
        records, units = self.records, self.units
        drawn = self.drawn if drawn is None else drawn
        if rows is not None:
            some, numbers = torch.unique(self.numbers[rows], return_inverse=True)
            drawn = drawn[self.numbers[rows]] if units is None else drawn[some]
            records, units = records.some(rows), None if units is None else numbers
        return unit_terms(
            self.model,
            self.weights,
            records,
            units,
            drawn=drawn,
            codec=self.codec,
            plan=self.plan,
            clip_norm=self.clip_norm,
            grid_units=STEPS / self.clip_norm / 256,
            class_weights=self.class_weights,
        )


@st.composite
def cases(draw: st.DrawFn, networks: bool = False) -> Case:
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    model: nn.Module
    shape: tuple[int, ...]
    count, columns, classes = draw(st.integers(1, 24)), draw(st.integers(1, 12)), draw(st.integers(2, 4))
    targets = torch.from_numpy(rng.integers(0, classes, count))
    if networks and draw(st.booleans()):
        layers = nn.Conv2d(1, 3, 3, padding=1, stride=2), nn.ReLU(), nn.Flatten(), nn.Linear(12, classes)
        model, shape = nn.Sequential(*layers), (1, 4, 4)
    elif networks:
        model, shape = mlp(input_shape=(columns,), num_classes=classes, hidden=4), (columns,)
    else:
        model, shape = logistic(input_shape=(columns,), num_classes=classes), (columns,)
    x = torch.from_numpy(rng.standard_normal((count, *shape)) * (rng.random((count, *shape)) < 0.6)).float()
    x *= 10 ** float(rng.uniform(-1.5, 1.5))
    if draw(st.booleans()):
        x[int(rng.integers(count))] = float(rng.choice([np.nan, np.inf, 0.0]))
    loss, values = "auto", not networks and draw(st.integers(0, 3)) == 0
    if values:
        loss = draw(st.sampled_from(["mean-squared-error", "huber"]))
        model = logistic(input_shape=(columns,), num_classes=1)
        targets = torch.from_numpy(rng.standard_normal(count)).float()
    sparse = len(shape) == 1 and draw(st.booleans())
    example = torch.zeros(2, *shape), torch.zeros(2) if values else torch.tensor([0, classes - 1])
    flat = FlatModel(model, example=example, loss=loss)
    units = None
    if draw(st.booleans()):
        numbers = rng.integers(0, max(1, count // draw(st.sampled_from([1, 3, 40]))), count)
        units = torch.from_numpy(np.unique(numbers, return_inverse=True)[1])
    num_units = count if units is None else int(units.max()) + 1
    codec: Codec = draw(st.sampled_from(CODECS))
    plan = PLAN
    if not networks and draw(st.booleans()):
        quantities = draw(st.integers(0, columns))
        codec = Scaled(columns=columns, quantities=quantities, ones=1)
        shift = np.where(np.arange(columns) < quantities, rng.standard_normal(columns), 0)
        told = np.concatenate([shift, 10 ** rng.uniform(-1.5, 1.5, columns), [BIAS, 0.5]])
        plan = replace(PLAN, shared={SCALING: torch.from_numpy(told).float()}) if draw(st.booleans()) else PLAN
    return Case(
        flat,
        flat.initial + 0.5 * torch.from_numpy(rng.standard_normal(flat.size)).float(),
        Records(SparseRows.from_dense(x) if sparse else x, targets),
        units,
        torch.from_numpy(rng.random(num_units) < draw(st.sampled_from([0.0, 0.7, 1.0]))),
        None if values else torch.from_numpy(rng.uniform(0.1, 20, classes)).float(),
        codec,
        draw(st.sampled_from([1e-3, 0.7, 30.0])),
        plan,
    )


@settings(max_examples=20)
@given(case=cases(), seed=st.integers(0, 2**32 - 1), owners=st.sampled_from([2, 5, 20, 100]))
def test_owners_in_any_number_give_the_bits_of_one(case: Case, seed: int, owners: int) -> None:
    rng = np.random.default_rng(seed)
    whose = torch.from_numpy(rng.integers(0, owners, len(case.drawn)))[case.numbers]
    total = torch.zeros_like(case.terms())
    for owner in range(owners):
        rows = torch.nonzero(whose == owner)[:, 0]
        if len(rows):
            total += case.terms(rows[torch.from_numpy(rng.permutation(len(rows)))])
    assert torch.equal(total, case.terms())


@settings(max_examples=20)
@given(case=st.one_of(cases(), cases(networks=True)))
def test_no_unit_contributes_more_than_its_bound_to_the_last_bit(case: Case) -> None:
    for unit in range(len(case.drawn)):
        alone = torch.zeros_like(case.drawn)
        alone[unit] = True
        assert int(case.terms(drawn=alone).square().sum()) <= int(STEPS) ** 2  # whole numbers, so nothing is rounded


@settings(max_examples=20)
@given(case=st.one_of(cases(), cases(networks=True)))
def test_the_sum_is_that_of_the_definition(case: Case) -> None:
    """Within the grid: records are rounded to a few bits after the point, as `tables` says, and then units are."""
    count, classes = len(case.records.targets), case.class_weights
    codes = unit_codes(
        case.model,
        case.weights,
        case.records,
        case.numbers,
        case.codec,
        case.plan,
        torch.ones(count) if classes is None else classes[case.records.targets],
    )
    expected = clipped_sum(codes, case.drawn, case.clip_norm)
    found = case.terms().double() * (case.clip_norm / STEPS)
    assert float((found - expected).norm()) <= 0.03 * case.clip_norm * max(1, int(case.drawn.sum()))


@settings(max_examples=20)
@given(case=cases())
def test_who_is_not_drawn_might_as_well_not_be_there(case: Case) -> None:
    rows = torch.nonzero(case.drawn[case.numbers])[:, 0]
    if len(rows):
        assert torch.equal(case.terms(), case.terms(rows))
    else:
        assert not case.terms().any()


@settings(max_examples=20)
@given(case=cases(networks=True), seed=st.integers(0, 2**32 - 1))
def test_networks_give_the_same_for_every_split_up_to_steps_of_the_grid(case: Case, seed: int) -> None:
    """Libraries do not promise the same last bit for every place in a batch."""
    whose = torch.from_numpy(np.random.default_rng(seed).integers(0, 3, len(case.drawn)))[case.numbers]
    parts = [case.terms(torch.nonzero(whose == owner)[:, 0]) for owner in range(3) if bool((whose == owner).any())]
    difference = torch.stack(parts).sum(0) - case.terms()
    assert float(difference.double().norm()) <= 1e-3 * STEPS * max(1, int(case.drawn.sum()))


@pytest.mark.parametrize("sabotage", ["each record", "before encoding"])
def test_the_definition_tells_other_clips_apart(sabotage: str) -> None:
    """The twin of the tests above: a patient's records clipped one by one, or a clip before encoding, is far away."""
    generator = torch.Generator().manual_seed(0)
    records = Records(torch.randn(30, 8, generator=generator), torch.randint(0, 3, (30,), generator=generator))
    model = FlatModel(logistic(input_shape=(8,), num_classes=3), example=(records.inputs[:2], torch.tensor([0, 2])))
    weights = 0.1 * torch.randn(model.size, generator=generator)
    units, codec = torch.arange(30) // 3, CODECS[1]
    case = Case(model, weights, records, units, torch.ones(10, dtype=torch.bool), torch.ones(3), codec, 0.5)
    found = case.terms().double() * (0.5 / STEPS)
    if sabotage == "each record":
        codes = unit_codes(model, weights, records, torch.arange(30), codec, PLAN, torch.ones(30))
        other = clipped_sum(codes, torch.ones(30, dtype=torch.bool), 0.5)
    else:
        whole = unit_codes(model, weights, records, units, Identity(), PLAN, torch.ones(30))
        other = codec.encode(clipped_sum(whole, case.drawn, 0.5), PLAN, [])
    honest = clipped_sum(unit_codes(model, weights, records, units, codec, PLAN, torch.ones(30)), case.drawn, 0.5)
    assert float((found - honest).norm()) < 0.01
    assert float((found - other).norm()) > 0.5


def test_patients_whose_records_cancel_are_added_up_exactly_in_every_order() -> None:
    """Each record of a pair has a gradient that is 10^5 times as long as that of both, by which it is clipped."""
    generator = torch.Generator().manual_seed(0)
    count, columns = 1000, 11
    once = torch.randn(count, columns, generator=generator)
    x = torch.cat([once, once + 1e-6 * torch.randn(count, columns, generator=generator)])
    y = torch.randint(0, 2, (count,), generator=generator)
    records, patients = Records(x, torch.cat([y, 1 - y])), torch.arange(count).repeat(2)
    flat = FlatModel(nn.Linear(columns, 2), example=(torch.zeros(2, columns), torch.tensor([0, 1])))
    weights = 1e-3 * torch.randn(flat.size, generator=generator)
    pairs = torch.argsort(patients, stable=True)

    def terms(rows: Tensor, steps: float) -> Tensor:
        some = records.some(rows), patients[rows]
        about: dict[str, Any] = {"codec": Identity(), "plan": PLAN, "clip_norm": 1.0, "grid_units": steps / 256}
        return unit_terms(flat, weights, *some, class_weights=torch.full((2,), 1e8), **about)

    for steps in (2.0**22, 2.0**31):
        assert torch.equal(terms(torch.arange(2 * count), steps), terms(pairs, steps))
    for unit in range(20):
        assert 0 < float(terms(pairs[2 * unit : 2 * unit + 2], 2.0**22).double().norm()) <= 2.0**22
    with pytest.raises(ConfigError, match="not exact in float64: use fewer --bits"):  # they differed by up to 4 steps
        terms(pairs, 2.0**38)


def test_prepared_once_for_rounds_with_other_weights_and_draws() -> None:
    generator = torch.Generator().manual_seed(0)
    records = Records(torch.randn(30, 8, generator=generator), torch.randint(0, 2, (30,), generator=generator))
    model = FlatModel(logistic(input_shape=(8,), num_classes=2), example=(records.inputs[:2], torch.tensor([0, 1])))
    sums = UnitSums(model, records, torch.arange(30) // 2)
    assert sums.num_units == 15
    assert sums.exact
    for number in range(3):
        weights = torch.randn(model.size, generator=generator)
        drawn = torch.rand(15, generator=generator) < 0.5
        about = {"codec": CODECS[number + 1], "plan": PLAN, "clip_norm": 1.0, "grid_units": 2.0**10}
        again = unit_terms(model, weights, records, torch.arange(30) // 2, drawn=drawn, **about)
        assert torch.equal(sums.terms(weights, drawn=drawn, **about), again)
