"""All engines, any client sizes, any model: the same updates to float tolerance."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from laconic.data.population import PooledPopulation, Records
from laconic.errors import ConfigError, DataError
from laconic.models.networks import cnn, logistic, mlp
from laconic.streams import Streams
from laconic.train.engines.choose import choose_engine
from laconic.train.engines.cohort import CohortAtOnce, rounded_up
from laconic.train.engines.engine import Task, Trained, Updates
from laconic.train.engines.one_by_one import OneByOne
from laconic.train.flat import FlatModel
from laconic.train.layers.dense import factor_large_layers, worth_factoring
from laconic.train.local import LocalSGD

CPU = torch.device("cpu")
SIZES = [4, 9, 1, 12, 7]


def image_population(classes: int = 4) -> PooledPopulation:
    rng = np.random.default_rng(0)
    count = sum(SIZES)
    records = Records(
        torch.from_numpy(rng.normal(size=(count, 1, 8, 8)).astype(np.float32)),
        torch.from_numpy(rng.integers(0, classes, count)),
    )
    ends = np.cumsum(SIZES)
    return PooledPopulation(records, [np.arange(e - s, e) for s, e in zip(SIZES, ends, strict=True)])


def seeded(make: object, **options: object) -> nn.Module:
    torch.manual_seed(0)
    return make(input_shape=(1, 8, 8), **options)  # type: ignore[operator, no-any-return]


MODELS = {
    "cnn": lambda: seeded(cnn, num_classes=4),
    "mlp with dropout": lambda: seeded(mlp, num_classes=4, dropout=0.5, hidden=16),
    "logistic": lambda: seeded(logistic, num_classes=4),
    "group norm": lambda: nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.GroupNorm(2, 4), nn.Dropout2d(0.3), nn.Flatten(), nn.Linear(144, 4)
    ),
    "wide layers": lambda: wide(),
    "rows as a sequence": lambda: nn.Sequential(nn.Flatten(1, 2), wide_layers(8), nn.Flatten(), nn.Linear(2400, 4)),
}


def wide_layers(inputs: int) -> nn.Module:
    """Layers so large that the factors of few records are smaller."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(inputs, 300), nn.Tanh(), nn.Linear(300, 300), nn.Tanh())


def wide() -> nn.Module:
    return nn.Sequential(nn.Flatten(), wide_layers(64), nn.Dropout(0.2), nn.Linear(300, 4))


TRAININGS = {
    "steps": LocalSGD(local_lr=0.1, local_steps=4, batch_size=3),
    "epochs": LocalSGD(local_lr=0.1, epochs=2, batch_size=5),
    "whole sets": LocalSGD(local_lr=0.1, local_steps=3),
    "adam": LocalSGD(local_lr=0.001, epochs=2, batch_size=4, optimizer="adam"),
}


def task(model: FlatModel, train: LocalSGD, trained: Tensor | None = None) -> Task:
    return Task(
        train=train,
        weights=model.initial,
        population=image_population(),
        clients=np.arange(len(SIZES)),
        streams=Streams(3),
        path=("batches", 1, 0),
        trained=trained,
    )


def flat(module: nn.Module) -> FlatModel:
    return FlatModel(module, example=tuple(image_population().records(1)))


@pytest.mark.parametrize("training", TRAININGS)
@pytest.mark.parametrize("name", MODELS)
def test_engines_agree_whatever_the_chunking(name: str, training: str) -> None:
    model, train = flat(MODELS[name]()), TRAININGS[training]
    single = torch.cat([u.values for u in OneByOne(model, CPU).updates(task(model, train))])
    assert float(single.abs().max()) > 1e-3
    example = image_population().records(1).inputs
    others = [CohortAtOnce(model, CPU, example, chunk=chunk) for chunk in (1, 2, 5)]
    others.append(CohortAtOnce(model, CPU, example, chunk=2, workers=2))
    for engine in (OneByOne(model, CPU, example), OneByOne(model, CPU, example, workers=3), *others):
        chunks = list(engine.updates(task(model, train)))
        many = torch.cat([u.values for u in chunks])
        # Adam divides by the root of a tiny second moment, which magnifies rounding.
        tolerance = 2e-4 if train.optimizer == "adam" else 2e-6
        assert float((many - single).abs().max()) <= tolerance
        assert np.concatenate([u.num_records for u in chunks]).tolist() == SIZES
        assert np.concatenate([u.clients for u in chunks]).tolist() == list(range(len(SIZES)))


def test_engines_agree_with_plain_torch() -> None:
    """One client against `torch.optim`, on whole-set batches."""
    module = MODELS["cnn"]()
    model = flat(module)
    update = next(iter(OneByOne(model, CPU).updates(task(model, TRAININGS["whole sets"])))).values[0]
    records = image_population().records(0)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        functional.cross_entropy(module(records.inputs), records.targets).backward()
        optimizer.step()
    after = torch.cat([p.detach().reshape(-1) for p in module.parameters()])
    assert torch.allclose(model.initial + update, after, atol=1e-6)


def test_adam_agrees_with_plain_torch() -> None:
    module = MODELS["logistic"]()
    model = flat(module)
    train = LocalSGD(local_lr=0.01, local_steps=5, optimizer="adam")
    update = next(iter(OneByOne(model, CPU).updates(task(model, train)))).values[0]
    records = image_population().records(0)
    optimizer = torch.optim.Adam(module.parameters(), lr=0.01, eps=1e-7)
    for _ in range(5):
        optimizer.zero_grad()
        functional.cross_entropy(module(records.inputs), records.targets).backward()
        optimizer.step()
    after = torch.cat([p.detach().reshape(-1) for p in module.parameters()])
    assert torch.allclose(model.initial + update, after, atol=1e-6)


@pytest.mark.parametrize("training", TRAININGS)
@pytest.mark.parametrize("name", ["wide layers", "rows as a sequence", "cnn"])
def test_a_few_weights_of_a_large_layer(name: str, training: str) -> None:
    """A layer of which few weights are trained is shared; sets that change, and grow, are followed."""
    model, train = flat(MODELS[name]()), TRAININGS[training]
    example = image_population().records(1).inputs
    engines = [CohortAtOnce(model, CPU, example, chunk=chunk) for chunk in (2, 5)]
    single = OneByOne(model, CPU)
    shared = set()
    for step in (401, 211, 3, 307):
        trained = torch.arange(5, model.size, step)
        one = torch.cat([u.values for u in single.updates(task(model, train, trained))])
        assert float(one.abs().max()) > 1e-3
        for engine in engines:
            many = torch.cat([u.values for u in engine.updates(task(model, train, trained))])
            tolerance = 2e-4 if train.optimizer == "adam" else 2e-6
            assert float((many - one).abs().max()) <= tolerance
            counts = torch.arange(1.0, 6.0)

            def summed(done: Trained, counts: Tensor = counts) -> Updates:
                return Updates(done.clients, done.weighted_sum(counts[done.clients])[None], done.num_records)

            parts = engine.updates(replace(task(model, train, trained), then=summed))
            total = torch.cat([u.values for u in parts]).sum(0)
            assert float((total - counts @ one).abs().max()) <= 20 * tolerance
            shared |= {bool(block._kept) for block in engine._members[0]._blocks.values()}
    assert shared == {True, False}


@pytest.mark.parametrize("engine", [OneByOne, CohortAtOnce])
def test_only_the_trained_weights_move(engine: type) -> None:
    model = flat(MODELS["cnn"]())
    trained = torch.arange(0, model.size, 7)
    mask = torch.zeros(model.size)
    mask[trained] = 1
    for training in ("steps", "epochs", "adam"):
        one = torch.cat([u.values for u in OneByOne(model, CPU).updates(task(model, TRAININGS[training], trained))])
        some = torch.cat([u.values for u in engine(model, CPU).updates(task(model, TRAININGS[training], trained))])
        assert torch.all(some[:, mask == 0] == 0)
        assert torch.all((some[:, mask == 1] != 0).any(1))
        assert float((some - one).abs().max()) <= (2e-4 if training == "adam" else 2e-6)


def test_workers_change_nothing_not_even_the_last_bit() -> None:
    model, example = flat(MODELS["cnn"]()), image_population().records(1).inputs
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        results = [
            torch.cat([u.values for u in OneByOne(model, CPU, example, workers=w).updates(task(model, train))])
            for w in (1, 2, 5)
            for train in (TRAININGS["epochs"],)
        ]
        assert torch.get_num_threads() == 1
    finally:
        torch.set_num_threads(threads)
    assert all(torch.equal(results[0], other) for other in results[1:])


@pytest.mark.parametrize("name", ["cnn", "wide layers"])
def test_sums_are_those_of_the_updates(name: str) -> None:
    model, example = flat(MODELS[name]()), image_population().records(1).inputs
    counts = torch.tensor([4.0, 9.0, 1.0, 12.0, 7.0])
    plain = counts @ torch.cat([u.values for u in OneByOne(model, CPU).updates(task(model, TRAININGS["steps"]))])
    for engine in (OneByOne(model, CPU, example), CohortAtOnce(model, CPU, example, chunk=2, workers=2)):

        def summed(trained: Trained) -> Updates:
            return Updates(trained.clients, trained.weighted_sum(counts[trained.clients])[None], trained.num_records)

        job = replace(task(model, TRAININGS["steps"]), then=summed)
        total = torch.stack([u.values[0] for u in engine.updates(job)]).sum(0)
        assert float((total - plain).abs().max()) <= 3e-5


def test_an_error_in_a_worker_reaches_the_caller_and_the_threads_come_back() -> None:
    model = flat(MODELS["logistic"]())
    broken = OneByOne(model, CPU, workers=2)
    threads = torch.get_num_threads()
    wrong = task(model, TRAININGS["steps"])
    with pytest.raises(RuntimeError):
        list(broken.updates(Task(**{**vars(wrong), "weights": torch.zeros(3)})))
    assert torch.get_num_threads() == threads
    stopped = broken.updates(wrong)
    next(stopped)
    stopped.close()
    assert torch.get_num_threads() == threads


def test_layers_are_factored_where_that_is_cheaper_and_correct() -> None:
    inputs = image_population().records(1).inputs
    module = wide()
    layers = factor_large_layers(module, inputs)
    assert {n: layer.rows_per_record for n, layer in layers.items()} == {
        "1.0.weight": 1,
        "1.2.weight": 1,
        "3.weight": 1,
    }
    train = TRAININGS["steps"]
    assert set(worth_factoring(layers, train, None, 12)) == {"1.0.weight", "1.2.weight"}
    assert set(worth_factoring(layers, train, None, 50)) == {"1.2.weight"}
    assert worth_factoring(layers, train, torch.arange(3), 12) == {}
    assert worth_factoring(layers, TRAININGS["adam"], None, 12) == {}


class Tied(nn.Module):
    """One weight in two layers, and one that is used behind its layer's back."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.third = nn.Linear(64, 64), nn.Linear(64, 64), nn.Linear(64, 64)
        self.second.weight = self.first.weight
        self.last = nn.Linear(64, 4)

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = self.second(torch.tanh(self.first(inputs.flatten(1))))
        outputs: Tensor = self.last(self.third(hidden) + hidden @ self.third.weight)
        return outputs


def test_shared_and_borrowed_weights_are_not_factored() -> None:
    torch.manual_seed(0)
    module = Tied()
    layers = factor_large_layers(module, image_population().records(1).inputs)
    assert {n: layer.rows_per_record for n, layer in layers.items()} == {"third.weight": 0, "last.weight": 1}
    model, example = flat(Tied()), image_population().records(1).inputs
    train = LocalSGD(local_lr=0.1, local_steps=1, batch_size=2)
    plain, factored = (
        torch.cat([u.values for u in OneByOne(model, CPU, e).updates(task(model, train))]) for e in (None, example)
    )
    assert float((plain - factored).abs().max()) < 1e-6


def test_cohorts_are_rounded_up_to_few_sizes() -> None:
    assert [rounded_up(k) for k in (1, 9, 31, 32, 100, 101, 127, 130, 1000)] == [1, 9, 31, 32, 100, 104, 128, 136, 1024]
    assert len({rounded_up(k) for k in range(70, 131)}) <= 18


def test_optimiser_state_does_not_cross_rounds_and_the_module_is_left_alone() -> None:
    module = MODELS["logistic"]()
    before = [p.detach().clone() for p in module.parameters()]
    model = flat(module)
    engine = OneByOne(model, CPU)
    train = TRAININGS["adam"]
    first, second = (torch.cat([u.values for u in engine.updates(task(model, train))]) for _ in range(2))
    assert torch.equal(first, second)
    assert all(torch.equal(a, b) for a, b in zip(before, module.parameters(), strict=True))


def test_batch_norm_is_refused_with_the_remedy() -> None:
    with pytest.raises(ConfigError, match="BatchNorm2d \\('1'\\).*GroupNorm"):
        flat(nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(144, 4)))


def test_other_models_that_cannot_work() -> None:
    with pytest.raises(ConfigError, match="no trainable parameters"):
        flat(nn.Flatten())
    with pytest.raises(DataError, match="does not take inputs of shape"):
        flat(nn.Linear(5, 4))
    with pytest.raises(ConfigError, match="not float32"):
        flat(nn.Sequential(nn.Flatten(), nn.Linear(64, 4)).double())


def test_frozen_parameters_are_constants() -> None:
    module = nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.Tanh(), nn.Linear(8, 4))
    for parameter in module[1].parameters():
        parameter.requires_grad_(False)
    assert flat(module).size == 8 * 4 + 4


class Draws(nn.Module):
    """A model that draws random numbers on its own."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(64, 4)

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = self.layer(functional.dropout(inputs.flatten(1), 0.5, training=self.training))
        return outputs


def test_a_model_that_cannot_be_vectorised_falls_back_or_is_refused() -> None:
    model = flat(Draws())
    example = tuple(image_population().records(1))
    assert choose_engine("auto", model, CPU, example).name == "one-by-one"
    with pytest.raises(ConfigError, match="--engine one-by-one"):
        choose_engine("cohort", model, CPU, example)


def test_dropout_is_off_in_evaluation_and_half_in_training() -> None:
    model = flat(MODELS["mlp with dropout"]())
    records = image_population().records(3)
    first = model.evaluate(model.initial, records.inputs, records.targets)
    assert first == model.evaluate(model.initial, records.inputs, records.targets)
    layer = model._dropouts[0].train()
    layer.key = torch.tensor(12345)
    kept = layer(torch.ones(400, 500))
    assert set(kept.unique().tolist()) == {0.0, 2.0}
    assert float((kept > 0).float().mean()) == pytest.approx(0.5, abs=0.01)
