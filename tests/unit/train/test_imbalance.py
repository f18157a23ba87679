"""Training and measuring where one outcome is rare."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

import laconic
from laconic.data.population import PooledPopulation, Records
from laconic.data.sparse import SparseRows
from laconic.errors import ConfigError
from laconic.models.networks import mlp
from laconic.schemes import fl_std, fl_std_dp, fl_top
from laconic.settings.build import settle
from laconic.settings.config import RunConfig
from laconic.streams import Streams
from laconic.train.engines.choose import choose_engine
from laconic.train.engines.engine import Engine, Task
from laconic.train.flat import FlatModel
from laconic.train.importance import accumulated_gradient
from laconic.train.local import LocalSGD
from laconic.train.losses import by_client, two_class_metrics

CPU = torch.device("cpu")
SIZES = [14, 9, 3, 22, 5]


def rare(seed: int = 0, *, count: int = sum(SIZES)) -> Records:
    rng = np.random.default_rng(seed)
    labels = (rng.random(count) < 0.2).astype(np.int64)
    labels[:14] = 0  # the first client has one class only
    inputs = rng.normal(size=(count, 12)) * (rng.random((count, 12)) < 0.5) + labels[:, None] * (np.arange(12) < 3)
    return Records(torch.from_numpy(inputs.astype(np.float32)), torch.from_numpy(labels))


def population(records: Records) -> PooledPopulation:
    ends = np.cumsum(SIZES)
    return PooledPopulation(records, [np.arange(e - s, e) for s, e in zip(SIZES, ends, strict=True)])


def model() -> nn.Module:
    torch.manual_seed(0)
    return mlp(input_shape=(12,), num_classes=2, dropout=0.5, hidden=8)


def updates(engine: Engine, flat: FlatModel, train: LocalSGD, clients: PooledPopulation) -> torch.Tensor:
    task = Task(
        train=train,
        weights=flat.initial,
        population=clients,
        clients=np.arange(len(SIZES)),
        streams=Streams(3),
        path=("batches", 1, 0),
    )
    return torch.cat([u.values for u in engine.updates(task)])


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
@pytest.mark.parametrize("batch", [None, 4])
@pytest.mark.parametrize("balance", ["downsample", "oversample", "weights"])
def test_engines_agree_on_balanced_batches(balance: str, batch: int | None, optimizer: str) -> None:
    records = rare()
    train = LocalSGD(local_lr=0.01, local_steps=5, batch_size=batch, balance=balance, optimizer=optimizer)
    example = (records.inputs[:2], records.targets[:2])
    flat = FlatModel(model(), example=example)
    sparse = Records(SparseRows.from_dense(records.inputs), records.targets)
    one = updates(choose_engine("one-by-one", flat, CPU, example, workers=1), flat, train, population(records))
    many = updates(choose_engine("cohort", flat, CPU, example, chunk=2), flat, train, population(records))
    few = updates(
        choose_engine("sparse-first", flat, CPU, example, chunk=3, sparse=True), flat, train, population(sparse)
    )
    tolerance = 3e-4 if optimizer == "adam" else 2e-6
    assert float((many - one).abs().max()) <= tolerance and float((few - one).abs().max()) <= tolerance
    # With one class only there is nothing to down-sample to: that client stays where it is.
    assert bool((one[0] == 0).all()) == (balance == "downsample")
    assert one[1:].abs().max() > 1e-3


def test_a_weighted_loss_is_that_of_plain_torch() -> None:
    """Keras' way: the mean over the batch of weight × loss."""
    records = population(rare()).records(3)
    module = nn.Sequential(nn.Linear(12, 1), nn.Flatten(0))
    flat = FlatModel(module, example=(records.inputs[:2], records.targets[:2]))
    engine = choose_engine("one-by-one", flat, CPU, (records.inputs[:2], records.targets[:2]), workers=1)
    train = LocalSGD(local_lr=0.1, local_steps=1, balance="weights")
    update = updates(engine, flat, train, population(rare()))[3]
    ones = float(records.targets.sum())
    weight = torch.where(records.targets == 1, 22 / (2 * ones), 22 / (2 * (22 - ones)))
    losses = functional.binary_cross_entropy_with_logits(
        module(records.inputs), records.targets.float(), reduction="none"
    )
    gradient = torch.autograd.grad((weight * losses).mean(), list(module.parameters()))
    assert torch.allclose(update, -0.1 * torch.cat([s.reshape(-1) for s in gradient]), atol=1e-6)


def test_without_balance_fingerprints_stay_what_they_were() -> None:
    plain = fl_std(local_lr=0.1, local_steps=1)
    assert "balance" not in plain.train.to_dict()
    balanced = fl_std(local_lr=0.1, local_steps=1, balance="downsample")
    assert balanced.train.to_dict()["balance"] == "downsample" and balanced.fingerprint != plain.fingerprint
    assert laconic.Scheme.from_dict(balanced.to_dict()) == balanced
    with pytest.raises(ConfigError, match="unknown balance 'down': did you mean 'downsample'"):
        LocalSGD(local_lr=0.1, local_steps=1, balance="down")


def test_public_records_are_balanced_too() -> None:
    records = rare(count=300)
    flat = FlatModel(model(), example=(records.inputs[:2], records.targets[:2]))
    gradients = {
        how: accumulated_gradient(flat, LocalSGD(local_lr=0.1, local_steps=1, balance=how), records, 2)
        for how in ("none", "downsample", "weights")
    }
    assert not torch.allclose(gradients["none"], gradients["downsample"])
    assert not torch.allclose(gradients["none"], gradients["weights"])
    one_class = Records(records.inputs[:14], records.targets[:14])
    with pytest.raises(ConfigError, match="14 public records are of one class only.*raise --public-records"):
        accumulated_gradient(flat, LocalSGD(local_lr=0.1, local_steps=1, balance="downsample"), one_class, 2)


def test_metrics_of_two_classes() -> None:
    targets, scores = np.array([0, 0, 0, 1, 1]), np.array([-1.0, -2.0, 0.5, 1.0, -0.5])
    assert two_class_metrics(scores, targets) == pytest.approx(
        {"balanced_accuracy": (2 / 3 + 1 / 2) / 2, "auroc": 5 / 6}
    )
    assert two_class_metrics(scores[:3], targets[:3]) == {}
    assert two_class_metrics(scores * np.nan, targets) == {}
    clients = np.array([4, 4, 7, 7, 4])
    found = by_client(scores, targets, clients)
    assert found["auroc_by_client"] == [1.0] * 5 and found["balanced_accuracy_by_client"] == [0.5] * 5
    assert by_client(scores[:3], targets[:3], clients[:3]) == {}


@pytest.mark.parametrize("outputs", [1, 2])
def test_evaluation_of_one_or_two_outputs(outputs: int) -> None:
    records = rare(1)
    module = nn.Sequential(nn.Linear(12, outputs), *([nn.Flatten(0)] if outputs == 1 else []))
    flat = FlatModel(module, example=(records.inputs[:2], records.targets[:2]))
    metrics = flat.evaluate(flat.initial, records.inputs, records.targets, batch=7)
    raw = module(records.inputs).detach().numpy()
    scores = raw if outputs == 1 else raw[:, 1] - raw[:, 0]
    expected = two_class_metrics(scores.astype(np.float64), records.targets.numpy())
    assert {k: metrics[k] for k in expected} == pytest.approx(expected)


def test_the_best_round_is_chosen_by_the_metric_asked_for() -> None:
    records, test = rare(), rare(5, count=200)
    scheme = fl_std(local_lr=0.5, local_steps=4, balance="downsample")
    results = {
        by: laconic.run(
            scheme, model=model(), clients=population(records), test=test, sampling_rate=0.8, rounds=6, best_by=by
        )
        for by in ("auto", "balanced-accuracy", "auroc", "loss")
    }
    for by, result in results.items():
        name = {"auto": "accuracy"}.get(by, by.replace("-", "_"))
        values = [row[name] for row in result.history]
        assert result.best is not None and result.metric == name
        assert result.best[name] == (min if by == "loss" else max)(values)
        assert result.summary()["best_is_chosen_by"] == name


def test_a_metric_that_the_records_cannot_have_is_refused() -> None:
    records = rare()
    one_class = Records(records.inputs[:14], records.targets[:14])
    options = {"model": model(), "clients": population(records), "sampling_rate": 0.8, "rounds": 1}
    with pytest.raises(ConfigError, match="--best-by auroc needs test records of two classes"):
        laconic.run(fl_std(local_lr=0.1, local_steps=1), test=one_class, best_by="auroc", **options)
    with pytest.raises(ConfigError, match="unknown best_by 'f1'"):
        laconic.run(fl_std(local_lr=0.1, local_steps=1), test=records, best_by="f1", **options)


def test_quantiles_over_clients_but_not_in_a_private_run() -> None:
    records, test = rare(), rare(5, count=200)
    whose = np.arange(200) % 4
    options = {"model": model(), "clients": population(records), "test": test, "test_clients": whose, "rounds": 1}
    plain = laconic.run(fl_std(local_lr=0.1, local_steps=1), sampling_rate=0.8, **options)
    quantiles = plain.last["auroc_by_client"]
    assert len(quantiles) == 5 and quantiles == sorted(quantiles)
    private = fl_std_dp(local_lr=0.1, local_steps=1, clip_norm=1.0, noise_multiplier=1.0)
    hidden = laconic.run(private, sampling_rate=0.8, delta=1e-5, **options)
    assert "auroc" in hidden.last and "auroc_by_client" not in hidden.last


def test_downsampling_helps_where_accuracy_misleads() -> None:
    """Without it the model says "no" to everybody; with it, it finds the rare ones."""
    rng = np.random.default_rng(0)
    labels = (rng.random(2400) < 0.05).astype(np.int64)
    inputs = (rng.normal(size=(2400, 8)) + 0.9 * labels[:, None]).astype(np.float32)
    records = Records(torch.from_numpy(inputs), torch.from_numpy(labels))
    clients = PooledPopulation(records.some(np.arange(2000)), np.arange(2000).reshape(10, 200))
    found = {}
    for balance in ("none", "downsample", "oversample", "weights"):
        scheme = fl_std(local_lr=0.1, local_steps=3, balance=balance)
        torch.manual_seed(0)
        module = nn.Sequential(nn.Linear(8, 1), nn.Flatten(0))
        run = laconic.run(
            scheme,
            model=module,
            clients=clients,
            test=records.some(np.arange(2000, 2400)),
            sampling_rate=0.6,
            rounds=12,
        )
        found[balance] = run.last["balanced_accuracy"]
    assert found["none"] < 0.6
    assert min(found[b] for b in ("downsample", "oversample", "weights")) > 0.8


def test_fl_top_chooses_with_balanced_public_records() -> None:
    records = rare()
    scheme = fl_top(ratio=0.2, local_lr=0.1, local_steps=2, balance="downsample")
    result = laconic.run(
        scheme, model=model(), clients=population(records), public=rare(9, count=60), sampling_rate=0.8, rounds=2
    )
    assert result.last["round"] == 2


def test_health_records_choose_by_balanced_accuracy() -> None:
    config = RunConfig.from_dict({"data": {"dataset": "ehr-synthetic", "num_records": 4500, "num_clients": 20}})
    settled = settle(config.with_values({"data.min_count": 30, "scheme.balance": "downsample"}))
    assert settled.experiment.best_by == settled.config.run.best_by == "balanced-accuracy"
    assert settled.experiment.scheme.train.balance == "downsample"
    assert settled.experiment.test_clients is None  # virtual hospitals have no test records of their own
    natural = RunConfig.from_dict({"data": {"dataset": "ehr-synthetic", "num_records": 4500, "min_count": 30}})
    assert settle(natural).experiment.test_clients is not None
