"""Linear models at once: the updates of other engines, the same bits in every cohort, sums within the bound."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from laconic.data.inputs import SparseRows
from laconic.data.population import PooledPopulation, Population, Records
from laconic.errors import ConfigError
from laconic.guard.noise import MEAN_BITS
from laconic.models.networks import Squeeze, logistic
from laconic.privacy.mechanism.clip import L2Clip
from laconic.streams import Streams
from laconic.train.engines import linear_cohort
from laconic.train.engines.choose import choose_engine
from laconic.train.engines.engine import Task, Trained, Updates
from laconic.train.engines.linear_cohort import LinearCohort, TrainedLinear
from laconic.train.engines.one_by_one import OneByOne
from laconic.train.flat import FlatModel
from laconic.train.local import LocalSGD

CPU = torch.device("cpu")
SIZES = (1, 7, 3, 10, 9, 7, 30, 70, 2, 4)
TRAIN = LocalSGD(local_lr=0.1, local_steps=4)


def records(count: int, columns: int, classes: int, seed: int = 0) -> Records:
    draw = np.random.default_rng(seed)
    inputs = torch.from_numpy(draw.standard_normal((count, columns)).astype(np.float32))
    inputs[:, 0] *= 3
    if classes == 0:
        return Records(inputs, torch.from_numpy(draw.standard_normal(count).astype(np.float32)))
    return Records(inputs, torch.from_numpy(draw.integers(0, classes, count)))


def population(classes: int, columns: int = 20, sparse: bool = False) -> PooledPopulation:
    held = np.split(np.arange(sum(SIZES)), np.cumsum(SIZES)[:-1])
    table = records(sum(SIZES), columns, classes)
    if sparse:
        table = Records(SparseRows.from_dense(table.inputs), table.targets)
    return PooledPopulation(table, held)


def flat_model(classes: int, columns: int = 20) -> FlatModel:
    torch.manual_seed(0)
    module = logistic(input_shape=(columns,), num_classes=classes) if classes else nn.Sequential(nn.Linear(columns, 1))
    if not classes:
        module.append(Squeeze())
    return FlatModel(module, example=records(2, columns, classes))


def task(model: FlatModel, held: Population, train: LocalSGD = TRAIN, clients: np.ndarray | None = None) -> Task:
    torch.manual_seed(1)
    some = np.arange(held.num_clients) if clients is None else clients
    weights = 0.01 * torch.randn(model.size)
    return Task(train, weights, held, some, Streams(4), ("batches", 1, 0))


def engine(model: FlatModel, **options: int) -> LinearCohort:
    made = choose_engine("linear", model, CPU, model.example, plain_sgd=True, **options)
    assert isinstance(made, LinearCohort)
    return made


def updates(made: LinearCohort | OneByOne, work: Task) -> Tensor:
    """In the order of the clients."""
    found = list(made.updates(work))
    order = np.argsort(np.concatenate([one.clients for one in found]))
    assert np.array_equal(np.sort(np.concatenate([one.clients for one in found])), np.sort(work.clients))
    return torch.cat([one.values for one in found])[torch.from_numpy(order)]


def check_equal(found: Tensor, expected: Tensor) -> None:
    """Within 1e-6 of each client's length, which float32 alone may take up."""
    lengths = expected.norm(dim=1, keepdim=True)
    assert lengths.min() > 1e-3
    torch.testing.assert_close(found / lengths, expected / lengths, rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    "train",
    [
        TRAIN,
        replace(TRAIN, batch_size=5),
        LocalSGD(local_lr=0.1, epochs=2, batch_size=4),
        LocalSGD(local_lr=0.1, local_steps=1),
    ],
    ids=["all records", "batches", "epochs", "one step"],
)
@pytest.mark.parametrize("classes", [0, 2, 5])
def test_updates_are_those_of_the_engine_for_any_model(classes: int, train: LocalSGD) -> None:
    model, held = flat_model(classes), population(classes)
    expected = updates(OneByOne(model, CPU), task(model, held, train))
    check_equal(updates(engine(model), task(model, held, train)), expected)


@pytest.mark.parametrize("balance", ["downsample", "oversample", "weights"])
def test_balanced_batches_are_those_of_other_engines(balance: str) -> None:
    model, held, train = flat_model(2), population(2), replace(TRAIN, batch_size=5, balance=balance)
    both = np.array([3, 4, 6])  # of single records of one class nothing is left to train on
    expected = updates(OneByOne(model, CPU), task(model, held, train, both))
    check_equal(updates(engine(model), task(model, held, train, both)), expected)


def test_sparse_records_are_trained_as_dense_ones() -> None:
    model = flat_model(2)
    found = updates(engine(model), task(model, population(2, sparse=True)))
    assert torch.equal(found, updates(engine(model), task(model, population(2))))


@pytest.mark.parametrize("classes", [0, 2, 5])
def test_an_update_has_the_same_bits_in_every_cohort(classes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Alone as on a node, among others, in blocks and products of any size, and in the next round."""
    model, held = flat_model(classes), population(classes)
    work = task(model, held, replace(TRAIN, batch_size=5))
    together = engine(model)
    expected = updates(together, work)
    assert torch.equal(updates(together, work), expected)
    alone = torch.cat([updates(engine(model), replace(work, clients=work.clients[[c]])) for c in work.clients])
    assert torch.equal(alone, expected)
    assert torch.equal(updates(engine(model, chunk=2), work), expected)
    monkeypatch.setattr(linear_cohort, "_PIECE", 300)
    monkeypatch.setattr(linear_cohort, "_KEPT_BYTES", 1000)
    many = engine(model, chunk=3)
    assert torch.equal(updates(many, work), expected) and torch.equal(updates(many, work), expected)


def test_other_records_of_the_same_clients_are_trained_as_they_are() -> None:
    """What is kept from round to round is that of one population: audits and attacks exchange records."""
    model, one, other = flat_model(2), population(2), population(2)
    other = PooledPopulation(
        Records(other.pool.inputs + 0.5, other.pool.targets), [other.rows(client) for client in range(len(SIZES))]
    )
    made, clients = engine(model), np.arange(len(SIZES))
    before = updates(made, task(model, one, clients=clients))
    found = updates(made, task(model, other, clients=clients))
    assert torch.equal(found, updates(engine(model), task(model, other, clients=clients)))
    assert not torch.equal(found, before)
    assert torch.equal(updates(made, task(model, one, clients=clients)), before)


def test_a_record_that_is_not_finite_stays_with_its_client() -> None:
    model, held = flat_model(2), population(2)
    expected = updates(engine(model), task(model, held))
    held.pool.inputs[0] = torch.nan  # client 0's only one, and the first of the table
    found = updates(engine(model), task(model, held))
    assert not found[0].isfinite().any() and torch.equal(found[1:], expected[1:])


def sums(made: LinearCohort, work: Task, clip_norm: float, units: float | None) -> Tensor:
    """Clients with few records, whose sums are made without their updates."""

    def then(trained: Trained) -> Updates:
        assert isinstance(trained, TrainedLinear)
        return Updates(trained.clients, trained.clipped_sum(clip_norm, units)[None], trained.num_records)

    return sum((one.values[0] for one in made.updates(replace(work, then=then))), torch.zeros((), dtype=torch.int64))


@pytest.mark.parametrize("units", [None, 40.0, 1e6])
@pytest.mark.parametrize("classes", [2, 5])
def test_clipped_sums_are_those_of_clipped_updates(classes: int, units: float | None) -> None:
    model, held = flat_model(classes), population(classes)
    few = np.flatnonzero(np.array(SIZES) <= linear_cohort.MOST_RECORDS)
    work = task(model, held, clients=few)
    every = updates(engine(model), work)
    norm = float(every.norm(dim=1).median())
    codes = L2Clip(clip_norm=norm)(every)
    found = sums(engine(model), work, norm, units)
    if units is None:
        torch.testing.assert_close(found, codes.sum(0), rtol=0, atol=1e-6 * norm * len(few) ** 0.5)
        return
    steps = units * 2**MEAN_BITS
    expected = (codes.double() * steps).long().sum(0)
    # An entry close to a whole number may be cut to either side of it.
    assert found.dtype == torch.int64 and (found - expected).abs().max() <= 1 + 1e-6 * len(few) * norm * steps


@pytest.mark.parametrize("units", [30.0, 3e5])
def test_no_client_adds_more_than_the_bound(units: float) -> None:
    model, held = flat_model(5), population(5)
    work = task(model, held, replace(TRAIN, local_lr=5.0))
    for client in np.flatnonzero(np.array(SIZES) <= linear_cohort.MOST_RECORDS):
        alone = sums(engine(model), replace(work, clients=np.array([client])), 0.5, units)
        length = float(alone.double().norm()) / (units * 2**MEAN_BITS)
        assert 0.5 * 0.98 < length <= 0.5


def test_a_client_without_a_norm_adds_nothing() -> None:
    model, held = flat_model(2), population(2)
    work = task(model, held, clients=np.array([0, 2, 3]))
    others = sums(engine(model), replace(work, clients=np.array([2, 3])), 0.1, 40.0)
    held.pool.inputs[0] = torch.inf
    assert torch.equal(sums(engine(model), work, 0.1, 40.0), others) and others.any()


def test_who_is_trained_by_it() -> None:
    model = flat_model(2)

    def chosen(**options: object) -> str:
        said = {"plain_sgd": True, "adds_up": True, "held": 7} | options
        return choose_engine("auto", model, CPU, model.example, **said).name  # type: ignore[arg-type]

    assert chosen() == chosen(sparse=True) == "linear"
    assert chosen(held=65) == chosen(plain_sgd=False) == chosen(adds_up=False) == "cohort"
    network = FlatModel(nn.Sequential(nn.Linear(20, 4), nn.ReLU(), nn.Linear(4, 2)), example=model.example)
    assert choose_engine("auto", network, CPU, model.example, plain_sgd=True, adds_up=True, held=7).name == "cohort"
    with pytest.raises(ConfigError, match="linear cannot train this .the model is not one linear layer"):
        choose_engine("linear", network, CPU, model.example, plain_sgd=True)
    with pytest.raises(ConfigError, match="steps of SGD that move all weights"):
        choose_engine("linear", model, CPU, model.example)
