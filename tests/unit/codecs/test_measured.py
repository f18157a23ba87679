"""Cells of an evaluation: bounded whatever the weights are, and the metrics can be read off them."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from sklearn.metrics import balanced_accuracy_score, roc_auc_score

from laconic.codecs.queries import Evaluations
from laconic.errors import ConfigError
from laconic.train.losses import binary_cross_entropy, cross_entropy

KINDS = [Evaluations(every=2, metric=metric) for metric in ("accuracy", "auroc", "loss")]


def scores(count: int = 500) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    targets = torch.randint(0, 2, (count,), generator=generator)
    return torch.randn(count, generator=generator) * 1.5 + 2 * targets - 1.5, targets


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.metric)
@pytest.mark.parametrize("value", [0.0, 1e30, -1e30, math.inf, -math.inf, math.nan])
def test_no_weights_make_the_cells_of_a_client_longer_than_one(kind: Evaluations, value: float) -> None:
    outputs, targets = scores(7)
    for hostile in (torch.full((7,), value), torch.where(targets == 1, value, 0.5), outputs * value):
        cells = kind.measure(hostile, targets, binary_cross_entropy)
        assert cells.shape == (kind.cells,) and bool((cells >= 0).all())
        assert float(cells.sum()) == pytest.approx(1, abs=1e-5) and float(cells.double().norm()) <= 1 + 1e-6


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.metric)
def test_a_client_without_records_sends_zeros(kind: Evaluations) -> None:
    empty = kind.measure(torch.zeros(0), torch.zeros(0, dtype=torch.int64), binary_cross_entropy)
    assert not empty.any() and empty.shape == (kind.cells,)
    assert kind.metrics(empty.numpy()) == {}


def test_the_auroc_of_the_cells_is_that_of_the_records_up_to_the_width_of_a_range() -> None:
    outputs, targets = scores()
    exact = roc_auc_score(targets, outputs)
    found = KINDS[1].metrics(KINDS[1].measure(outputs, targets, binary_cross_entropy).numpy())
    assert found["auroc"] == pytest.approx(exact, abs=0.005)
    finer = Evaluations(every=2, metric="auroc", bins=512)
    fine = finer.metrics(finer.measure(outputs, targets, binary_cross_entropy).numpy())
    assert fine["auroc"] == pytest.approx(exact, abs=2e-4)
    assert found["accuracy"] == pytest.approx(float(((outputs > 0) == targets).double().mean()), abs=1e-6)
    assert found["balanced_accuracy"] == pytest.approx(balanced_accuracy_score(targets, outputs > 0), abs=1e-6)
    # Two outputs are the same as one log-odds.
    pairs = torch.stack([torch.zeros_like(outputs), outputs], 1)
    again = KINDS[1].metrics(KINDS[1].measure(pairs, targets, cross_entropy).numpy())
    assert again["auroc"] == pytest.approx(found["auroc"])


def test_the_mean_loss_is_read_back_and_single_losses_are_cut_off() -> None:
    outputs, targets = scores()
    losses = binary_cross_entropy(outputs, targets)
    found = KINDS[2].metrics(KINDS[2].measure(outputs, targets, binary_cross_entropy).numpy())
    assert found["loss"] == pytest.approx(float(losses.clamp(max=5).mean()), rel=1e-5)
    one = Evaluations(every=2, metric="loss", largest_loss=0.1)
    assert one.metrics(one.measure(outputs - 1e6, torch.ones_like(targets), binary_cross_entropy).numpy()) == {
        "loss": pytest.approx(0.1)
    }


def test_the_noise_of_a_metric_is_that_of_many_draws() -> None:
    outputs, targets = scores()
    rng, noise = np.random.default_rng(2), 0.004
    for kind in KINDS:
        cells = kind.measure(outputs, targets, binary_cross_entropy).double().numpy()
        told = kind.metrics(cells, noise)["noise"]
        drawn = [kind.metrics(cells + noise * rng.normal(size=len(cells)))[kind.metric] for _ in range(400)]
        assert np.std(drawn) == pytest.approx(told, rel=0.2)


def test_noise_alone_is_not_told_as_a_metric() -> None:
    rng = np.random.default_rng(3)
    for kind in KINDS:
        told = [bool(kind.metrics(0.1 * rng.normal(size=kind.cells), 0.1)) for _ in range(300)]
        assert sum(told) <= 3  # three standard deviations
        clear = np.full(kind.cells, 1 / kind.cells)
        assert kind.metrics(clear, 0.001)


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"every": 1}, "leaves no round to train in"),
        ({"every": -1}, "evaluate_every"),
        ({"metric": "auc"}, "auroc"),
        ({"bins": 7}, "even"),
        ({"bins": 1}, "from 2 to 1024"),
        ({"largest_loss": 0.0}, "positive"),
        ({"noise_multiplier": -1.0}, "positive"),
    ],
)
def test_what_makes_no_sense_is_refused(wrong: dict[str, object], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        Evaluations(**({"every": 5} | wrong))  # type: ignore[arg-type]


def test_an_auroc_of_many_classes_is_refused() -> None:
    with pytest.raises(ConfigError, match="two classes, and there are 10"):
        KINDS[1].check(10)
    KINDS[1].check(2)
