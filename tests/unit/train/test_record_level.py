"""Record-level privacy: gradients of single records, DP-SGD in the clients, and what a run says about it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import laconic
from conftest import assert_close
from laconic.catalogue import build_scheme
from laconic.cli.main import cli
from laconic.data.inputs import Inputs, SparseRows, dense
from laconic.data.population import PooledPopulation, Records
from laconic.errors import ConfigError
from laconic.privacy.accounting.accountant import RunAccountant
from laconic.privacy.accounting.record_sampling import PerClassPoisson, PublishedBatches, RecordSampler, record_sampler
from laconic.schemes import fl_sign_record_dp, fl_std_record_dp
from laconic.settings.build import settle
from laconic.settings.config import RunConfig
from laconic.settings.forecast import forecast
from laconic.streams import Streams
from laconic.train.engines.engine import Task
from laconic.train.engines.per_record import FirstApart, PerRecord, WholeGradients, clipped_gradients
from laconic.train.flat import FlatModel
from laconic.train.layers.first_linear import FirstLinear
from laconic.train.local import LocalDPSGD

CPU = torch.device("cpu")


def rare(seed: int = 0, count: int = 240, features: int = 12) -> Records:
    rng = np.random.default_rng(seed)
    labels = (rng.random(count) < 0.2).astype(np.int64)
    inputs = (rng.random((count, features)) < 0.3).astype(np.float32) * rng.random((count, features)).astype(np.float32)
    inputs[:, 0] += labels
    return Records(torch.from_numpy(inputs), torch.from_numpy(labels))


def clients(records: Records, count: int = 12) -> PooledPopulation:
    return PooledPopulation(records, np.arange(len(records.targets)).reshape(count, -1))


def mlp(dropout: float = 0.0) -> nn.Module:
    torch.manual_seed(0)
    layers = [nn.Linear(12, 7), nn.ReLU(), *([nn.Dropout(dropout)] if dropout else []), nn.Linear(7, 1), nn.Flatten(0)]
    return nn.Sequential(*layers)


def flat(module: nn.Module, records: Records) -> FlatModel:
    return FlatModel(module, example=(dense(records.inputs[:2]), records.targets[:2]))


def one_by_one(model: FlatModel, weights: Tensor, records: Records, keys: Tensor, clip_norm: float) -> Tensor:
    """The same sum, record by record and without any trick."""
    total, norms = torch.zeros_like(weights), []
    model.module.train()
    for x, y, key in zip(dense(records.inputs), records.targets, keys, strict=True):
        params = {n: v.requires_grad_() for n, v in zip(model.names, model.split(weights.clone()), strict=True)}
        loss = model.mean_loss(params, x[None], y[None], torch.ones(1), key)
        gradient = torch.cat([g.reshape(-1) for g in torch.autograd.grad(loss, list(params.values()))])
        norms.append(float(gradient.norm()))
        total += gradient / max(1.0, norms[-1] / clip_norm)
    assert min(norms) < clip_norm < max(norms)  # both cases are there
    return total


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("dropout", [0.0, 0.5])
@pytest.mark.parametrize("apart", [False, True])
def test_clipped_gradients_are_those_of_single_records(
    sparse: bool, dropout: float, apart: bool, monkeypatch: Any
) -> None:
    records = rare(count=40)
    if sparse:
        records = Records(SparseRows.from_dense(records.inputs), records.targets)
    model = flat(mlp(dropout), records)
    keys = torch.arange(40) * 1_000_003
    monkeypatch.setattr("laconic.train.engines.per_record._MOST_NUMBERS", 16 * model.size)  # several pieces
    gradients = FirstApart(model, model.first_linear) if apart else WholeGradients(model)  # type: ignore[arg-type]
    assert isinstance(model.first_linear, FirstLinear)
    found = gradients.total(model.initial, records.inputs, records.targets, keys, 0.6)
    assert_close(found, one_by_one(model, model.initial, records, keys, 0.6))


def test_images_have_gradients_of_their_own_too() -> None:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Conv2d(1, 3, 3), nn.ReLU(), nn.Flatten(), nn.Linear(48, 3))
    records = Records(torch.rand(9, 1, 6, 6), torch.arange(9) % 3)
    model = flat(module, records)
    gradients, keys = clipped_gradients(model), torch.zeros(9, dtype=torch.int64)
    assert isinstance(gradients, WholeGradients)
    found = gradients.total(model.initial, records.inputs, records.targets, keys, 1.2)
    assert_close(found, one_by_one(model, model.initial, records, keys, 1.2))


def test_rows_without_entries_and_repeated_entries() -> None:
    rows = SparseRows(torch.tensor([0, 0, 3, 3]), torch.tensor([4, 4, 1], dtype=torch.int32), 12, None)
    records = Records(rows, torch.tensor([0, 1, 1]))
    model = flat(mlp(), rare())
    keys = torch.zeros(3, dtype=torch.int64)
    found = clipped_gradients(model).total(model.initial, rows, records.targets, keys, 0.6)
    as_dense = WholeGradients(model).total(model.initial, rows.dense(), records.targets, keys, 0.6)
    assert_close(found, as_dense)
    empty = SparseRows(torch.tensor([0, 0]), torch.zeros(0, dtype=torch.int32), 12, None)
    assert torch.isfinite(
        clipped_gradients(model).total(model.initial, empty, records.targets[:1], keys[:1], 0.6)
    ).all()


@pytest.mark.parametrize("kind", [FirstApart, WholeGradients])
def test_one_record_moves_the_sum_by_the_clip_norm_at_most(kind: type) -> None:
    model = flat(mlp(), rare())
    gradients = kind(model, model.first_linear) if kind is FirstApart else kind(model)
    for size in (1e-30, 1.0, 1e6, 1e18, 1e38):
        x = torch.full((1, 12), 1.0) * size
        one = gradients.total(model.initial, x, torch.tensor([1]), torch.zeros(1, dtype=torch.int64), 0.7)
        assert float(one.double().norm()) <= 0.7


def test_a_gradient_that_is_no_number_counts_nothing() -> None:
    model = flat(mlp(), rare())
    good = rare(count=4)
    inputs = torch.cat([good.inputs, torch.full((1, 12), 3e38)])
    targets, keys = torch.cat([good.targets, torch.tensor([1])]), torch.zeros(5, dtype=torch.int64)
    for gradients in (FirstApart(model, model.first_linear), WholeGradients(model)):  # type: ignore[arg-type]
        alone = gradients.total(model.initial, good.inputs, good.targets, keys[:4], 0.7)
        assert_close(gradients.total(model.initial, inputs, targets, keys, 0.7), alone)


def update(
    sampler: RecordSampler,
    records: Records,
    *,
    steps: int = 1,
    optimizer: str = "sgd",
    seed: int = 5,
    sigma: float = 1e-9,
) -> Tensor:
    """The update of a single client."""
    model = flat(mlp(0.5), records)
    train = LocalDPSGD(
        local_lr=0.1, local_steps=steps, clip_norm=0.6, noise_multiplier=sigma, records=sampler, optimizer=optimizer
    )
    population = PooledPopulation(records, np.arange(len(records.targets))[None])
    task = Task(train, model.initial, population, np.array([0]), Streams(seed), ("batches", 1, 0))
    return next(PerRecord(model, CPU).updates(task)).values[0]


def test_a_step_is_the_formula() -> None:
    records, model = rare(count=30), flat(mlp(0.5), rare())
    sampler = record_sampler("none", batch_size=10, record_rate=1.0, prevalence=None)
    engine = PerRecord(model, CPU)
    task = Task(None, model.initial, None, np.array([0]), Streams(5), ("batches", 1, 0))  # type: ignore[arg-type]
    keys = engine._dropout_keys(task, 0, 0, np.arange(30))
    expected = -0.1 / 10 * one_by_one(model, model.initial, records, keys, 0.6)
    assert_close(update(sampler, records), expected)


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_sparse_and_dense_records_train_alike(optimizer: str) -> None:
    records = rare(count=60)
    sparse = Records(SparseRows.from_dense(records.inputs), records.targets)
    sampler = PerClassPoisson(batch_size=8, record_rate=0.8, prevalence=0.2)
    one, other = (update(sampler, r, steps=3, optimizer=optimizer, sigma=0.5) for r in (records, sparse))
    assert_close(one, other, 1e-4)


def test_an_empty_sample_is_noise_alone() -> None:
    records = rare(count=20)
    sampler = record_sampler("none", batch_size=10, record_rate=1e-9, prevalence=None)
    moved = update(sampler, records, sigma=2.0)
    assert float(moved.std()) == pytest.approx(0.1 / 10 * 0.6 * 2.0, rel=0.3)
    assert not torch.equal(moved, update(sampler, records, sigma=2.0, seed=6))


def test_published_batches_are_balanced_and_divided_by_their_size() -> None:
    sampler = PublishedBatches(batch_size=20, record_rate=0.5)
    labels = (np.arange(60) < 12).astype(np.int64)
    for seed in range(20):
        chosen = sampler.draw(labels, np.random.default_rng(seed))
        assert len(set(chosen)) == len(chosen) and labels[chosen].sum() * 2 == len(chosen)
    assert sampler.divisor is None
    one_class = Records(rare(count=40).inputs, torch.zeros(40, dtype=torch.int64))
    assert not update(sampler, one_class, sigma=1.0).any()  # nothing to balance: the step is left out
    with pytest.raises(ConfigError, match="with 30 records draws batches of 20, more than --record-rate 0.5"):
        sampler.draw(labels[:30], np.random.default_rng(0))


def test_rates_of_the_classes() -> None:
    assert PerClassPoisson(batch_size=1, record_rate=0.4, prevalence=0.2).rates == (pytest.approx(0.1), 0.4)
    assert PerClassPoisson(batch_size=1, record_rate=0.4, prevalence=0.8).rates == (0.4, pytest.approx(0.1))
    with pytest.raises(ConfigError, match="two classes, 0 and 1: use --balance none"):
        PerClassPoisson(batch_size=1, record_rate=0.4, prevalence=0.2).draw(np.array([0, 2]), np.random.default_rng(0))
    with pytest.raises(ConfigError, match="needs --prevalence"):
        record_sampler("per-class", batch_size=1, record_rate=0.5, prevalence=None)
    with pytest.raises(ConfigError, match="takes none"):
        record_sampler("none", batch_size=1, record_rate=0.5, prevalence=0.5)
    with pytest.raises(ConfigError, match="unknown balance 'published': did you mean 'as-published'"):
        record_sampler("published", batch_size=1, record_rate=0.5, prevalence=None)


OPTIONS: dict[str, Any] = {
    "clip_norm": 1.0,
    "noise_multiplier": 1.0,
    "record_rate": 0.5,
    "batch_size": 6,
    "prevalence": 0.2,
    "local_lr": 0.3,
}


def run(scheme: laconic.Scheme, **options: Any) -> laconic.RunResult:
    defaults: dict[str, Any] = {"sampling_rate": 0.5, "rounds": 4, "delta": 1e-5, "eval_every": 4}
    return laconic.run(scheme, model=mlp(), clients=clients(rare()), test=rare(1), **(defaults | options))


@pytest.mark.parametrize("make", [fl_std_record_dp, fl_sign_record_dp])
def test_the_statement_is_about_records(make: Any) -> None:
    result = run(make(**OPTIONS))
    statement = result.statement
    assert "-DP per record against an outsider" in statement["summary"]
    assert statement["unit"].startswith("one record of one client, not a client and not a person")
    assert statement["adjacency"]["relation"] == "add-or-remove"
    assert "may see in them who took part" in statement["released"]["adversary"]
    assert "every client's message in the clear" in statement["participant"]["adversary"]
    assert statement["released"]["published"] < statement["released"]["epsilon"]["moments"]
    assert statement["mechanism"]["train"]["records"]["kind"] == "PerClassPoisson"
    assert statement["secure_aggregation"].startswith("none: the server sees every client's code")
    train = LocalDPSGD.from_dict(statement["mechanism"]["train"])
    release = train.release(sampler=laconic.Poisson(sampling_rate=0.5), num_clients=12)
    accountant = RunAccountant(releases=(release,), delta=1e-5)
    assert result.last["epsilon"] == accountant.released_epsilon(4)
    most = statement["participant"]["participations"]
    assert result.last["participant_epsilon"] == accountant.participant_epsilon(most)


def test_as_published_says_what_is_not_proven() -> None:
    options = {key: value for key, value in OPTIONS.items() if key != "prevalence"}
    scheme = fl_sign_record_dp(**(options | {"balance": "as-published", "batch_size": 10}))
    result = run(scheme, sampling_rate=None, sampler=laconic.AsPublished(cohort_size=4), rounds=2)
    caveats = " ".join(result.statement["not_covered"])
    assert "Theorem 3.1" in caveats and "balanced as published" in caveats
    assert "published" not in result.statement["released"]
    plain = run(fl_std_record_dp(**OPTIONS), rounds=1)
    assert not any("published" in text for text in plain.statement["not_covered"])


def test_budgets_stop_the_run_before_they_are_exceeded() -> None:
    scheme = fl_std_record_dp(**OPTIONS)
    free = run(scheme, rounds=8, eval_every=1)
    limit = free.history[2]["epsilon"] + 1e-6
    limited = run(scheme, rounds=8, eval_every=1, epsilon=limit)
    assert limited.stop_reason == "budget" and limited.last["round"] == 3
    capped = run(scheme, rounds=8, max_participations=2)
    assert capped.statement["participant"]["participations"] == 2


def test_a_resumed_run_in_another_place_is_charged_again(tmp_path: Path, monkeypatch: Any) -> None:
    scheme = fl_std_record_dp(**OPTIONS)
    run(scheme, rounds=2, out=tmp_path / "run")
    rows = [json.loads(line) for line in (tmp_path / "run" / "charges.jsonl").read_text().splitlines()]
    assert [row["round"] for row in rows] == [1, 2]
    resumed = run(scheme, rounds=4, out=tmp_path / "run", resume=True)
    assert resumed.statement["released"]["rounds_charged"] == 4


def test_learning_with_little_noise() -> None:
    scheme = fl_std_record_dp(**(OPTIONS | {"noise_multiplier": 0.3, "local_lr": 1.0, "local_steps": 2}))
    assert run(scheme, rounds=15, eval_every=15).last["auroc"] > 0.9


def test_what_would_make_the_epsilon_untrue_is_refused() -> None:
    from dataclasses import replace

    from laconic.aggregate.protocol import SecureSum
    from laconic.codecs.subset import NewRandomSubset
    from laconic.privacy.mechanism.clip import L2Clip
    from laconic.privacy.mechanism.gaussian import Gaussian

    scheme = fl_std_record_dp(**OPTIONS)
    assert laconic.Scheme.from_dict(scheme.to_dict()) == scheme
    with pytest.raises(ConfigError, match="weighting='uniform'"):
        replace(scheme, weighting="data-size")
    with pytest.raises(ConfigError, match="records and clients at once"):
        replace(scheme, clip=L2Clip(clip_norm=1.0), noise=Gaussian(noise_multiplier=1.0), secure_sum=SecureSum())
    with pytest.raises(ConfigError, match="moves all weights"):
        replace(scheme, codec=NewRandomSubset(ratio=0.5, train_only_kept=True))


class Drawing(nn.Module):
    """Draws numbers of its own, which no key repeats."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(12, 1)

    def forward(self, inputs: Inputs) -> Tensor:
        return self.layer(inputs + torch.rand(12))[:, 0]


def test_engines_and_models_that_cannot_do_it_are_refused() -> None:
    scheme = fl_std_record_dp(**OPTIONS)
    with pytest.raises(ConfigError, match="--engine cohort cannot protect single records: use --engine per-record"):
        run(scheme, engine="cohort")
    with pytest.raises(ConfigError, match="--engine per-record is for schemes that protect single records"):
        laconic.run(
            laconic.schemes.fl_std(local_lr=0.1, local_steps=1),
            model=mlp(),
            clients=clients(rare()),
            sampling_rate=0.5,
            rounds=1,
            engine="per-record",
        )
    with pytest.raises(ConfigError, match="gradients of single records.*cannot be computed for this model"):
        laconic.run(scheme, model=Drawing(), clients=clients(rare()), sampling_rate=0.5, rounds=1, delta=1e-5)


CONFIG: dict[str, dict[str, Any]] = {
    "data": {"dataset": "ehr-synthetic", "num_records": 4500, "num_clients": 20, "min_count": 30},
    "scheme": {
        "name": "fl-sign-record-dp",
        "record_rate": 0.3,
        "batch_size": 8,
        "prevalence": 0.03,
        "clip_norm": 2.0,
        "local_lr": 0.05,
    },
    "run": {"rounds": 3},
    "sampler": {"sampling_rate": 0.3},
}


def config(**changes: Any) -> RunConfig:
    return RunConfig.from_dict(CONFIG).with_values(changes)


def test_noise_is_calibrated_to_the_promise() -> None:
    settled = settle(config(**{"privacy.epsilon": 2.0, "privacy.accountant": "rdp"}))
    accountant = settled.experiment.accountant
    assert accountant is not None and 1.99 < accountant.released_epsilon(3, "rdp") <= 2.0
    train = settled.experiment.scheme.train
    assert isinstance(train, LocalDPSGD) and settled.config.scheme.options["noise_multiplier"] == train.noise_multiplier
    assert train.local_steps == 1 and train.records.divisor == 8.0


def test_the_plan_of_a_record_level_run() -> None:
    plan = forecast(config(**{"scheme.noise_multiplier": 1.08}))
    privacy = plan["privacy"]
    assert (privacy["unit"], privacy["adjacency"], privacy["clip_norm"]) == ("record", "add-or-remove", 2.0)
    assert plan["bits_up_per_value"] == 1 and plan["engine"] == "per-record"
    assert privacy["published"] < privacy["released"]["3"]["moments"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"scheme.noise_multiplier": 1.0, "scheme.clip_norm": "median"}, "needs --clip-norm as a number"),
        ({"scheme.noise_multiplier": 1.0, "sampler.max_dropouts": 1}, "leave out --max-dropouts"),
        ({}, "needs --noise-multiplier, or --epsilon"),
        ({"scheme.noise_multiplier": 1.0, "scheme.record_rate": 1.5}, "record_rate must be above 0 and at most 1"),
        ({"scheme.noise_multiplier": 1.0, "scheme.epochs": 2}, "unknown option of fl-sign-record-dp 'epochs'"),
    ],
)
def test_bad_configurations(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        settle(config(**changes))


def test_missing_options_are_named() -> None:
    with pytest.raises(ConfigError, match="fl-std-record-dp needs --local-lr, --clip-norm, --noise-multiplier"):
        build_scheme("fl-std-record-dp")


def test_epsilon_and_calibrate_of_records() -> None:
    from click.testing import CliRunner

    common = ["--sampling-rate", "0.1", "--record-rate", "1/4", "--rounds", "4"]
    found = CliRunner().invoke(cli, ["epsilon", *common, "--noise-multiplier", "1.5", "--json"])
    result = json.loads(found.output)
    assert result["unit"] == "record" and result["published"] > 0
    found = CliRunner().invoke(cli, ["epsilon", *common, "--noise-multiplier", "1.5", "--papers"])
    assert "Protected is one record of one client" in found.output and "not proven" in found.output
    found = CliRunner().invoke(cli, ["calibrate", *common, "--epsilon", str(result["released"]["pld"]), "--json"])
    assert json.loads(found.output)["noise_multiplier"]["pld"] == pytest.approx(1.5, abs=2e-4)


def test_a_clip_norm_with_which_one_record_more_makes_a_sum_infinite_is_refused() -> None:
    """Whoever chooses the weights can make gradients that long. An infinite sum shows under any noise."""
    records = Records(torch.ones(3, 12), torch.zeros(3, dtype=torch.int64))
    model = flat(nn.Sequential(nn.Linear(12, 7), nn.Linear(7, 1), nn.Flatten(0)), records)
    keys, gradients = torch.zeros(3, dtype=torch.int64), clipped_gradients(model)
    weights = torch.zeros(model.size)
    model.split(weights)[2].fill_(3e38)

    def total(count: int, clip_norm: float) -> Tensor:
        return gradients.total(weights, records.inputs[:count], records.targets[:count], keys[:count], clip_norm)

    assert total(2, 3e39).isfinite().all() and not total(3, 3e39).isfinite().all()
    assert total(3, 1e30).isfinite().all()
    drawn = {"record_rate": 0.1, "batch_size": 1, "balance": "none"}
    assert fl_std_record_dp(clip_norm=1e30, noise_multiplier=1.0, local_lr=1.0, **drawn).record_level
    for clip_norm in (3e39, 1.1e30, 7e-43):
        with pytest.raises(ConfigError, match=r"clip_norm must be 1e-30 to 1e\+30"):
            fl_std_record_dp(clip_norm=clip_norm, noise_multiplier=1.0, local_lr=1.0, **drawn)


def test_small_gradients_are_not_rounded_away_because_of_one_record_more() -> None:
    """One record lifts the sum over a power of two, where float32 has half as many digits behind the point. Four
    thousand small gradients then move it in the one sum and not in the other: neighbours that differ by more than S."""
    many, step = 4096, 2.0**-12
    targets = torch.cat([torch.full((many,), -1.0), torch.tensor([-1.0]), torch.full((many,), 0.3 * step / 32)])
    inputs, keys = torch.ones(len(targets), 1), torch.zeros(len(targets), dtype=torch.int64)
    model = FlatModel(nn.Linear(1, 1, bias=False), example=(inputs[:2], targets[:2, None]), loss="mean-squared-error")
    gradients = WholeGradients(model)
    gradients._at_once = 32  # as with half a million weights
    without = torch.arange(len(targets)) != many

    def difference(dtype: torch.dtype) -> float:
        sums = [
            gradients.total(torch.zeros(1), inputs[some], targets[some, None], keys[some], 1.0, dtype)
            for some in (slice(None), without)
        ]
        return float(abs(sums[0].double() - sums[1].double()))

    assert difference(torch.float32) > 1.02
    assert difference(torch.float64) <= 1.0
