"""The thesis' other networks in every engine: words stay whole numbers, and many clients at once are each of them."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch
from torch import Tensor

import laconic
from laconic.data.population import FunctionPopulation, PooledPopulation, Population, Records, gather
from laconic.errors import ConfigError, DataError
from laconic.models.registry import build_model
from laconic.streams import Streams
from laconic.train.engines.choose import choose_engine
from laconic.train.engines.cohort import CohortAtOnce
from laconic.train.engines.engine import Task
from laconic.train.engines.one_by_one import OneByOne
from laconic.train.engines.per_record import WholeGradients, clipped_gradients
from laconic.train.flat import FlatModel
from laconic.train.local import LocalSGD

CPU = torch.device("cpu")
SIZES = [4, 9, 1, 7]
SMALL_WORDS = {"vocabulary": 30, "embedding": 4, "filters": 6}
NETWORKS = {
    "cnn-lstm": ((20,), 2, {**SMALL_WORDS, "units": 5}),
    "cnn-lstm with sigmoids, 3 classes": ((21,), 3, {**SMALL_WORDS, "units": 5, "recurrent_activation": "sigmoid"}),
    "text-cnn": ((20,), 3, {**SMALL_WORDS, "dropout": 0.5}),
    "sensor-cnn": ((18, 3), 4, {"filters": 6, "hidden": 5, "dropout": 0.3}),
    "all-cnn-c": ((3, 8, 8), 4, {"dropout": 0.0}),
    "all-cnn-c of odd pictures, with dropout": ((3, 7, 7), 4, {}),
    "lfw-cnn": ((3, 24, 22), 2, {}),
}
TRAININGS = {
    "sgd": LocalSGD(local_lr=0.1, local_steps=3, batch_size=3),
    "adam": LocalSGD(local_lr=0.001, epochs=1, batch_size=4, optimizer="adam"),
}


def records(shape: tuple[int, ...], classes: int, count: int = sum(SIZES)) -> Records:
    rng = np.random.default_rng(0)
    words = len(shape) == 1
    inputs = rng.integers(0, 30, (count, *shape)) if words else rng.normal(size=(count, *shape)).astype(np.float32)
    return Records(torch.from_numpy(inputs), torch.from_numpy(rng.integers(0, classes, count)))


def pooled(every: Records) -> PooledPopulation:
    ends = np.cumsum(SIZES)
    return PooledPopulation(every, [np.arange(e - s, e) for s, e in zip(SIZES, ends, strict=True)])


def made(name: str) -> tuple[FlatModel, PooledPopulation]:
    shape, classes, options = NETWORKS[name]
    population = pooled(records(shape, classes))
    module = build_model(name.split(" ")[0], input_shape=shape, num_classes=classes, seed=0, options=options)
    return FlatModel(module, example=tuple(population.records(1))), population


def task(model: FlatModel, population: Population, train: LocalSGD, trained: Tensor | None = None) -> Task:
    return Task(
        train=train,
        weights=model.initial,
        population=population,
        clients=np.arange(len(SIZES)),
        streams=Streams(3),
        path=("batches", 1, 0),
        trained=trained,
    )


@pytest.mark.parametrize("training", TRAININGS)
@pytest.mark.parametrize("name", NETWORKS)
def test_engines_agree(name: str, training: str) -> None:
    (model, population), train = made(name), TRAININGS[training]
    single = torch.cat([u.values for u in OneByOne(model, CPU).updates(task(model, population, train))])
    assert float(single.abs().max()) > 1e-3
    example = population.records(1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # vmap says so when it goes client by client
        engine = choose_engine("cohort", model, CPU, tuple(example), chunk=3, workers=1)
        many = torch.cat([u.values for u in engine.updates(task(model, population, train))])
    # Adam divides by the root of a tiny second moment, which magnifies rounding.
    assert float((many - single).abs().max()) <= (2e-4 if train.optimizer == "adam" else 2e-6)


@pytest.mark.parametrize("name", ["cnn-lstm", "all-cnn-c"])
def test_only_some_weights_move(name: str) -> None:
    model, population = made(name)
    some = torch.arange(3, model.size, 7)
    updates = [
        torch.cat([u.values for u in engine.updates(task(model, population, TRAININGS["sgd"], some))])
        for engine in (OneByOne(model, CPU), CohortAtOnce(model, CPU, chunk=4))
    ]
    still = torch.ones(model.size, dtype=torch.bool)
    still[some] = False
    assert not updates[0][:, still].any() and not updates[1][:, still].any()
    assert float((updates[0] - updates[1]).abs().max()) <= 2e-6


def test_words_stay_whole_numbers_on_their_way_to_a_client() -> None:
    every = records((20,), 2)
    lazy = FunctionPopulation(len(SIZES), pooled(every).records)
    for population in (pooled(every), lazy):
        block = gather(population, [0, 1], CPU)
        assert block.inputs.dtype == torch.int64
        assert torch.equal(block.inputs[0, :4], every.inputs[:4])  # type: ignore[index]


@pytest.mark.parametrize("engine", [OneByOne, CohortAtOnce])
def test_a_word_that_the_model_does_not_know_is_refused_before_training(engine: type) -> None:
    """Among many clients at once it would be looked up in another client's weights."""
    model, _ = made("cnn-lstm")
    inputs, targets = records((20,), 2)
    inputs[5, 3] = 30  # type: ignore[index]
    with pytest.raises(DataError, match="the word 30, but the model knows 0 to 29"):
        list(engine(model, CPU).updates(task(model, pooled(Records(inputs, targets)), TRAININGS["sgd"])))


@pytest.mark.parametrize("name", ["cnn-lstm", "text-cnn", "all-cnn-c"])
def test_gradients_of_single_records_are_clipped_one_by_one(name: str) -> None:
    model, population = made(name)
    inputs, targets = population.records(0)
    gradients = clipped_gradients(model)
    assert isinstance(gradients, WholeGradients)
    keys, clip = torch.zeros(4, dtype=torch.int64), 0.05
    total = torch.zeros_like(model.initial)
    for record in range(4):
        params = {n: v.clone().requires_grad_() for n, v in zip(model.names, model.split(model.initial), strict=True)}
        one = slice(record, record + 1)
        loss = model.mean_loss(params, inputs[one], targets[one], torch.ones(1), keys[record])
        gradient = model.join(list(torch.autograd.grad(loss, list(params.values()))))
        total += gradient / max(1.0, float(gradient.norm()) / clip)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = gradients.total(model.initial, inputs, targets, keys, clip)
    assert torch.allclose(found, total, atol=1e-6)


def test_evaluation_does_not_depend_on_how_many_reviews_are_done_at_once() -> None:
    model, _ = made("cnn-lstm")
    inputs, targets = records((20,), 2, count=300)  # more than a CPU takes at once
    found = [model.evaluate(model.initial, inputs, targets, batch) for batch in (None, 64, 2048)]
    assert all(f == pytest.approx(found[0], abs=1e-6) for f in found)


@pytest.mark.parametrize("scheme", ["fl-std-dp", "fl-sign-record-dp"])
def test_a_private_run_on_words(scheme: str) -> None:
    shape, classes, options = NETWORKS["cnn-lstm"]
    model = build_model("cnn-lstm", input_shape=shape, num_classes=classes, seed=0, options=options)
    population = pooled(records(shape, classes))
    private = {"clip_norm": 1.0, "noise_multiplier": 1.0}
    declared = (
        laconic.schemes.fl_std_dp(local_lr=0.001, local_steps=2, batch_size=4, optimizer="adam", **private)
        if scheme == "fl-std-dp"
        else laconic.schemes.fl_sign_record_dp(local_lr=0.1, record_rate=0.5, batch_size=4, balance="none", **private)
    )
    result = laconic.run(declared, model=model, clients=population, sampling_rate=1.0, rounds=2, delta=1e-2)
    assert len(result.history) == 2


def test_a_front_end_for_pictures_refuses_words() -> None:
    from laconic.features.kinds import public_front_end

    with pytest.raises(ConfigError, match="images"):
        public_front_end("scattering", (400,), projection="none")
