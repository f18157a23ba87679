"""Clipped sums of records of a network from one backward pass, against the gradients of single records."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.func import grad, vmap
from torch.nn import functional

from laconic.codecs.base import Identity
from laconic.codecs.subset import FixedRandomSubset
from laconic.data.population import Records
from laconic.models.networks import cnn
from laconic.plan import RoundPlan
from laconic.train.flat import FlatModel
from laconic.train.layers.first_linear import loss_of
from laconic.train.units import ghost
from laconic.train.units.groups import Groups
from laconic.train.units.networks import NetworkUnits
from laconic.train.units.rounding import UnitGrid, factors

PLAN = RoundPlan(round=1, attempt=0, cohort=np.arange(2), planned_cohort=2.0, run_seed=1, round_seed=2, fingerprint="")
GRID = UnitGrid(clip_norm=2.0, grid_units=2.0**14)
NETWORKS = {
    "the papers' CNN": lambda: cnn(input_shape=(2, 8, 8), num_classes=3),
    "steps and gaps": lambda: nn.Sequential(
        nn.Conv2d(2, 4, (3, 2), stride=(2, 1), padding=(0, 1), dilation=(1, 2), bias=False),
        nn.Tanh(),
        nn.Flatten(),
        nn.Linear(96, 3, bias=False),
    ),
}


def prepared(name: str) -> tuple[FlatModel, ghost.Ghosts, Tensor, Tensor]:
    torch.manual_seed(0)
    x, y = 3 * torch.randn(7, 2, 8, 8), torch.tensor([0, 1, 2, 0, 1, 2, 0])
    x[2] *= 1e-3
    model = FlatModel(NETWORKS[name](), example=(x, y))
    ghosts = ghost.find_ghosts(model)
    assert ghosts is not None
    return model, ghosts, x, y


def single_gradients(model: FlatModel, x: Tensor, y: Tensor, share: Tensor) -> Tensor:
    """(records, n) in float64."""
    one = vmap(grad(loss_of(model)), in_dims=(None, 0, 0, 0, None))
    parts = one(model.split(model.initial), x[:, None], y[:, None], share[:, None], torch.tensor(0))
    return model.join(list(parts), 1).double()


@pytest.mark.parametrize("part", [None, 0.3])
@pytest.mark.parametrize("name", NETWORKS)
def test_every_record_is_clipped_by_the_norm_of_its_own_gradient(name: str, part: float | None) -> None:
    """Of a subset by the norm over the kept weights. Every record is also given alone, so that its norm is seen."""
    model, ghosts, x, y = prepared(name)
    share = torch.linspace(0.2, 2.0, len(x))
    mask = None if part is None else (torch.rand(model.size) < part).float()
    gradients = single_gradients(model, x, y, share) * (1 if mask is None else mask)
    norms = gradients.norm(dim=1, keepdim=True)
    assert float(norms.min()) < GRID.clip_norm < float(norms.max())
    expected = -gradients * factors(norms, GRID.steps, GRID.largest)
    for row in range(len(x)):
        some = slice(row, row + 1)
        found = ghosts.total(model.initial, x[some], y[some], share[some], mask, GRID)[None]
        assert torch.equal(found, found.round())
        assert float(found.norm()) <= GRID.largest
        assert float((found - expected[some]).norm()) <= 0.02 * float(expected[some].norm())
    together = ghosts.total(model.initial, x, y, share, mask, GRID)
    assert float((together - expected.sum(0)).norm()) <= 0.02 * float(expected.norm(dim=1).sum())


def test_a_record_whose_gradient_is_not_finite_counts_as_zeros() -> None:
    model, ghosts, x, y = prepared("the papers' CNN")
    share = torch.ones(len(x))
    good = ghosts.total(model.initial, x[2:], y[2:], share[2:], None, GRID)
    x[0, 0, 0, 0], x[1, 1, 3, 3] = torch.nan, torch.inf
    found = ghosts.total(model.initial, x, y, share, None, GRID)
    assert float((found - good).norm()) <= 1e-4 * GRID.largest
    assert not ghosts.total(model.initial, x[:2], y[:2], share[:2], None, GRID).any()


@pytest.mark.parametrize("asked", [True, False])
def test_layers_are_found_where_products_are_of_tf32(monkeypatch: pytest.MonkeyPatch, asked: bool) -> None:
    """A GPU rounds to 10 bits what convolutions multiply. Unless float32 is asked for, gradients of single records then
    differ from those of the layers, and a network would be clipped by the slow way, tens of times as long."""
    precision = ["tf32"]

    @contextlib.contextmanager
    def products_in(wanted: str, device: torch.device) -> Iterator[None]:
        before, precision[0] = precision[0], wanted if asked else precision[0]
        yield
        precision[0] = before

    def rounded(values: Tensor) -> Tensor:
        whole = values.detach().view(torch.int32)
        short = ((whole + (1 << 12)) & ~((1 << 13) - 1)).view(torch.float32)
        return values + (short - values).detach()

    def product(x: Tensor, weight: Tensor, *others: object) -> Tensor:
        if precision[0] == "tf32":
            x, weight = rounded(x), rounded(weight)
        return convolution(x, weight, *others)  # type: ignore[arg-type]

    convolution = functional.conv2d
    model, _, _, _ = prepared("the papers' CNN")
    monkeypatch.setattr(ghost, "products_in", products_in)
    monkeypatch.setattr(functional, "conv2d", product)
    assert (ghost.find_ghosts(model) is not None) == asked


@pytest.mark.parametrize("part", [None, 0.3])
@pytest.mark.parametrize("records", [1, 127, 128, 300])
def test_passes_that_can_be_recorded_give_the_sums_of_those_that_cannot(records: int, part: float | None) -> None:
    """They are filled up with records that count nothing, and their memory is used again for other batches."""
    torch.manual_seed(0)
    x, y = torch.randn(records, 2, 8, 8), torch.arange(records) % 3
    model = FlatModel(NETWORKS["the papers' CNN"](), example=(x[:1], y[:1]))
    codec = Identity() if part is None else FixedRandomSubset(ratio=part, train_only_kept=False)
    groups = Groups(None, records)
    found = []
    for replays in (False, True):
        units = NetworkUnits(model, Records(x, y), groups, None)
        units.replays = replays
        rounds = []
        for round in range(3):
            plan = replace(PLAN, round=round + 1, round_seed=round)
            drawn = torch.rand(records, generator=torch.Generator().manual_seed(round)) < 0.7
            drawn[0] = True
            weights = model.initial + 0.01 * round
            rounds.append(units.terms(weights, drawn, codec, plan, GRID))
        found.append(torch.stack(rounds))
    assert found[0].abs().max() > 100
    assert int((found[0] - found[1]).abs().max()) <= records, "a step of the grid for each record, by its last bit"
    assert torch.equal(found[0] == 0, found[1] == 0)
