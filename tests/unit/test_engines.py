"""Both engines, any client sizes, any model: the same updates to float tolerance."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from laconic.data.population import PooledPopulation, Records
from laconic.errors import ConfigError, DataError
from laconic.models.networks import cnn, logistic, mlp
from laconic.streams import Streams
from laconic.train.engine import CohortAtOnce, OneByOne, Task, choose_engine
from laconic.train.flat import FlatModel
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
}
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
    single = torch.cat([u.updates for u in OneByOne(model, CPU).updates(task(model, train))])
    assert float(single.abs().max()) > 1e-3
    for chunk in (1, 2, 5):
        chunks = list(CohortAtOnce(model, CPU, chunk=chunk).updates(task(model, train)))
        many = torch.cat([u.updates for u in chunks])
        # Adam divides by the root of a tiny second moment, which magnifies rounding.
        tolerance = 2e-4 if train.optimizer == "adam" else 2e-6
        assert float((many - single).abs().max()) <= tolerance
        assert np.concatenate([u.num_records for u in chunks]).tolist() == SIZES
        assert np.concatenate([u.clients for u in chunks]).tolist() == list(range(len(SIZES)))


def test_engines_agree_with_plain_torch() -> None:
    """One client against `torch.optim`, on whole-set batches."""
    module = MODELS["cnn"]()
    model = flat(module)
    update = next(iter(OneByOne(model, CPU).updates(task(model, TRAININGS["whole sets"])))).updates[0]
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
    update = next(iter(OneByOne(model, CPU).updates(task(model, train)))).updates[0]
    records = image_population().records(0)
    optimizer = torch.optim.Adam(module.parameters(), lr=0.01, eps=1e-7)
    for _ in range(5):
        optimizer.zero_grad()
        functional.cross_entropy(module(records.inputs), records.targets).backward()
        optimizer.step()
    after = torch.cat([p.detach().reshape(-1) for p in module.parameters()])
    assert torch.allclose(model.initial + update, after, atol=1e-6)


@pytest.mark.parametrize("engine", [OneByOne, CohortAtOnce])
def test_only_the_trained_weights_move(engine: type) -> None:
    model = flat(MODELS["cnn"]())
    mask = torch.zeros(model.size)
    mask[::7] = 1
    for some in engine(model, CPU).updates(task(model, TRAININGS["steps"], mask)):
        assert torch.all(some.updates[:, mask == 0] == 0)
        assert torch.any(some.updates[:, mask == 1] != 0)


def test_optimiser_state_does_not_cross_rounds_and_the_module_is_left_alone() -> None:
    module = MODELS["logistic"]()
    before = [p.detach().clone() for p in module.parameters()]
    model = flat(module)
    engine = OneByOne(model, CPU)
    train = TRAININGS["adam"]
    first, second = (torch.cat([u.updates for u in engine.updates(task(model, train))]) for _ in range(2))
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
