"""The engine for sparse records gives the updates that dense training one by one gives."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import laconic
from laconic.data.inputs import SparseRows
from laconic.data.population import PooledPopulation, Records
from laconic.errors import ConfigError, DataError
from laconic.models.networks import logistic, mlp
from laconic.schemes import fl_std, fl_top
from laconic.streams import Streams
from laconic.train.engines import sparse_first
from laconic.train.engines.choose import choose_engine
from laconic.train.engines.engine import Task
from laconic.train.engines.one_by_one import OneByOne
from laconic.train.engines.sparse_first import SparseFirst
from laconic.train.flat import FlatModel
from laconic.train.layers.first_linear import FirstLinear
from laconic.train.local import LocalSGD

CPU = torch.device("cpu")
COLUMNS, SIZES = 60, [4, 9, 1, 12, 7]


def records(classes: int = 2, *, density: float = 0.06, seed: int = 0) -> Records:
    rng = np.random.default_rng(seed)
    count = sum(SIZES)
    dense = rng.normal(size=(count, COLUMNS)) * (rng.random((count, COLUMNS)) < density)
    dense[3] = 0  # a record without any entry
    return Records(torch.from_numpy(dense.astype(np.float32)), torch.from_numpy(rng.integers(0, classes, count)))


def populations(pooled: Records) -> tuple[PooledPopulation, PooledPopulation]:
    """The same records, dense and sparse."""
    ends = np.cumsum(SIZES)
    rows = [np.arange(e - s, e) for s, e in zip(SIZES, ends, strict=True)]
    assert isinstance(pooled.inputs, Tensor)
    sparse = Records(SparseRows.from_dense(pooled.inputs), pooled.targets)
    return PooledPopulation(pooled, rows), PooledPopulation(sparse, rows)


class Named(nn.Module):
    """Not a Sequential: the first layer is inside, has no bias, and the input is scaled before it."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.ModuleDict({"a": nn.Linear(COLUMNS, 8, bias=False), "b": nn.Linear(8, 3)})
        self.drop = nn.Sequential(nn.Sequential(nn.Dropout(0.3)), nn.Tanh(), nn.Dropout(0.2))

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = self.body["b"](self.drop(self.body["a"](inputs / 2)))
        return outputs


def seeded(name: str) -> nn.Module:
    torch.manual_seed(0)
    shape = (COLUMNS,)
    return {
        "mlp": lambda: mlp(input_shape=shape, num_classes=2, hidden=16),
        "mlp with dropout": lambda: mlp(input_shape=shape, num_classes=3, dropout=0.5, hidden=16),
        "logistic": lambda: logistic(input_shape=shape, num_classes=2),
        "one layer": lambda: nn.Linear(COLUMNS, 3),
        "own": Named,
    }[name]()


TRAININGS = {
    "whole sets": LocalSGD(local_lr=0.1, local_steps=6),
    "steps": LocalSGD(local_lr=0.1, local_steps=4, batch_size=3),
    "epochs": LocalSGD(local_lr=0.1, epochs=2, batch_size=5),
    "adam": LocalSGD(local_lr=0.001, epochs=2, batch_size=4, optimizer="adam"),
}


def flat(module: nn.Module, pooled: Records) -> FlatModel:
    return FlatModel(module, example=(pooled.inputs[:2], pooled.targets[:2]))


def task(model: FlatModel, train: LocalSGD, population: PooledPopulation, trained: Tensor | None = None) -> Task:
    return Task(
        train=train,
        weights=model.initial,
        population=population,
        clients=np.arange(len(SIZES)),
        streams=Streams(3),
        path=("batches", 1, 0),
        trained=trained,
    )


def engine(model: FlatModel, chunk: int | None = None) -> SparseFirst:
    assert isinstance(model.first_linear, FirstLinear), model.first_linear
    return SparseFirst(model, model.first_linear, CPU, chunk=chunk)


def largest_difference(model: FlatModel, train: LocalSGD, pooled: Records, trained: Tensor | None, chunk: int) -> float:
    dense, sparse = populations(pooled)
    single = torch.cat([u.values for u in OneByOne(model, CPU).updates(task(model, train, dense, trained))])
    chunks = list(engine(model, chunk).updates(task(model, train, sparse, trained)))
    assert np.concatenate([u.num_records for u in chunks]).tolist() == SIZES
    assert np.concatenate([u.clients for u in chunks]).tolist() == list(range(len(SIZES)))
    assert float(single.abs().max()) > 1e-3
    return float((torch.cat([u.values for u in chunks]) - single).abs().max())


@pytest.mark.parametrize("way", ["by rows", "by columns"])
@pytest.mark.parametrize("training", TRAININGS)
@pytest.mark.parametrize("name", ["mlp", "mlp with dropout", "logistic", "one layer", "own"])
def test_the_updates_are_those_of_dense_training(
    name: str, training: str, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sparse_first._Narrow, "prefers_rows", property(lambda self: way == "by rows"))
    pooled, train = records(2 if name in ("mlp", "logistic") else 3), TRAININGS[training]
    model = flat(seeded(name), pooled)
    # Adam divides by the root of a tiny second moment, which magnifies rounding.
    tolerance = 2e-4 if train.optimizer == "adam" else 2e-6
    for chunk in (2, 5):
        assert largest_difference(model, train, pooled, None, chunk) <= tolerance


def test_a_dense_table_given_as_sparse_rows() -> None:
    pooled = records(density=1.0)
    model = flat(seeded("mlp"), pooled)
    for train in TRAININGS.values():
        assert largest_difference(model, train, pooled, None, 3) <= (2e-4 if train.optimizer == "adam" else 4e-6)


@pytest.mark.parametrize("training", TRAININGS)
def test_only_the_trained_weights_move(training: str) -> None:
    pooled = records()
    model = flat(seeded("mlp"), pooled)
    trained = torch.arange(0, model.size, 7)
    mask = torch.zeros(model.size)
    mask[trained] = 1
    tolerance = 2e-4 if training == "adam" else 2e-6
    assert largest_difference(model, TRAININGS[training], pooled, trained, 2) <= tolerance
    for some in engine(model).updates(task(model, TRAININGS[training], populations(pooled)[1], trained)):
        assert torch.all(some.values[:, mask == 0] == 0)


@pytest.mark.parametrize("training", TRAININGS)
def test_columns_that_do_not_occur_stay_exactly_as_they_are(training: str) -> None:
    pooled = records()
    assert isinstance(pooled.inputs, Tensor)
    model = flat(seeded("mlp"), pooled)
    for some in engine(model).updates(task(model, TRAININGS[training], populations(pooled)[1])):
        starts = np.cumsum(SIZES) - SIZES
        for client, update in zip(some.clients, some.values, strict=True):
            held = pooled.inputs[starts[client] : starts[client] + SIZES[client]]
            moved = model.split(update)[0]
            assert torch.all(moved[:, (held == 0).all(0)] == 0)


def test_a_chosen_engine_is_taken_or_refused_with_the_reason() -> None:
    pooled = records()
    example = (pooled.inputs[:2], pooled.targets[:2])
    model = flat(seeded("mlp"), pooled)
    assert choose_engine("auto", model, CPU, example, sparse=True).name == "sparse-first"
    assert choose_engine("auto", model, CPU, example).name == "cohort"
    assert choose_engine("one-by-one", model, CPU, example, sparse=True).name == "one-by-one"
    assert choose_engine("sparse-first", model, CPU, example, chunk=3, sparse=True).chunk == 3
    with pytest.raises(ConfigError, match="sparse-first cannot train this.*records are dense"):
        choose_engine("sparse-first", model, CPU, example)


class LooksTwice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.again = nn.Linear(COLUMNS, 4), nn.Linear(COLUMNS, 4)

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = self.first(inputs) + self.again(inputs)
        return outputs


class Draws(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(COLUMNS, 4)

    def forward(self, inputs: Tensor) -> Tensor:
        return functional.dropout(self.layer(inputs), 0.5, training=self.training)


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(COLUMNS, 4)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.first(inputs) + self.first.weight.sum(1)


NOT_TAKEN_APART = {
    "the input is normalised": nn.Sequential(nn.LayerNorm(COLUMNS), nn.Linear(COLUMNS, 4)),
    "the input is dropped out": nn.Sequential(nn.Dropout(0.5), nn.Linear(COLUMNS, 4)),
    "the input is rectified": nn.Sequential(nn.ReLU(), nn.Linear(COLUMNS, 4)),
    "the input goes two ways": LooksTwice(),
    "it draws random numbers": Draws(),
    "the weights are used twice": Tied(),
    "another kind of layer": nn.Sequential(nn.Unflatten(1, (1, COLUMNS)), nn.Conv1d(1, 2, 3), nn.Flatten()),
}


@pytest.mark.parametrize("name", NOT_TAKEN_APART)
def test_other_modules_are_trained_dense(name: str) -> None:
    torch.manual_seed(0)
    pooled = records(4)
    model = flat(NOT_TAKEN_APART[name], pooled)
    assert isinstance(model.first_linear, str)
    example = (pooled.inputs[:2], pooled.targets[:2])
    with pytest.raises(ConfigError, match="sparse-first cannot train this"):
        choose_engine("sparse-first", model, CPU, example, sparse=True)
    fallback = choose_engine("auto", model, CPU, example, sparse=True)
    assert fallback.name in ("cohort", "one-by-one")
    dense, sparse = populations(pooled)
    train = LocalSGD(local_lr=0.1, local_steps=2)
    a, b = (torch.cat([u.values for u in fallback.updates(task(model, train, p))]) for p in (dense, sparse))
    assert torch.allclose(a, b, atol=1e-6)


def test_frozen_first_layer_is_trained_dense() -> None:
    module = nn.Sequential(nn.Linear(COLUMNS, 4), nn.Linear(4, 4))
    module[0].weight.requires_grad_(False)
    assert "no nn.Linear takes the 60 input columns" in flat(module, records(4)).first_linear


@pytest.mark.parametrize("module", ["mlp", "the input is normalised"])
def test_evaluation_is_that_of_the_dense_records(module: str) -> None:
    pooled = records(2 if module == "mlp" else 4)
    model = flat(seeded("mlp") if module == "mlp" else NOT_TAKEN_APART[module], pooled)
    sparse = SparseRows.from_dense(pooled.inputs)
    for batch in (5, 2048):
        found = model.evaluate(model.initial, sparse, pooled.targets, batch=batch)
        assert found == pytest.approx(model.evaluate(model.initial, pooled.inputs, pooled.targets), abs=1e-6)


def test_a_batch_that_does_not_fit_into_memory_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sparse_first, "_MOST_BLOCK", 100)
    pooled = records()
    model = flat(seeded("mlp"), pooled)
    with pytest.raises(DataError, match="lower --batch-size"):
        list(engine(model).updates(task(model, TRAININGS["adam"], populations(pooled)[1])))


@pytest.mark.parametrize(
    "scheme", [fl_std(local_lr=0.1, local_steps=3), fl_top(ratio=0.1, local_lr=0.1, local_steps=3)]
)
def test_a_whole_run_is_that_of_the_dense_records(scheme: laconic.Scheme) -> None:
    pooled = records()
    public = Records(pooled.inputs[:6], pooled.targets[:6])
    runs = [
        laconic.run(
            scheme, model=seeded("mlp"), clients=p, test=test, public=public, sampling_rate=0.8, rounds=3, engine=name
        )
        for p, test, name in zip(
            populations(pooled),
            (pooled, populations(pooled)[1].records(3)),
            ("one-by-one", "sparse-first"),
            strict=True,
        )
    ]
    for a, b in zip(runs[0].model.parameters(), runs[1].model.parameters(), strict=True):
        assert torch.allclose(a, b, atol=1e-5)
