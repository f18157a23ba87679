"""Reconstruction on pictures of 4 × 4 pixels: exact where the code tells all, a guess where it tells nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from inference_tools import ONE_STEP, picture_experiment, pictures
from torch import nn

from conftest import assert_close, make_population
from laconic import schemes
from laconic.data.population import PooledPopulation, Records
from laconic.errors import ConfigError, DataError
from laconic.scheme import Scheme
from laconic_studies.inference.reconstruction.attack import Reconstruction, reconstruct
from laconic_studies.inference.reconstruction.labels import inferred_labels
from laconic_studies.inference.reconstruction.likeness import assigned, correlation, psnr
from laconic_studies.inference.reconstruction.matching import Client, Search, matched
from laconic_studies.inference.reconstruction.priors import mean_picture, random_pictures, total_variation
from laconic_studies.inference.reconstruction.victims import Victims
from laconic_studies.inference.standing import Standing

QUICK = Search(iterations=100, restarts=1, total_variation=0.0, step=0.1)
RATIO = 0.6
SCHEMES = {
    "fl-std": schemes.fl_std(**ONE_STEP),
    "fl-sign": schemes.fl_sign(**ONE_STEP),
    "fl-cs": schemes.fl_cs(ratio=RATIO, **ONE_STEP),
    "fl-top": schemes.fl_top(ratio=RATIO, **ONE_STEP),
    "two steps": schemes.fl_std(local_lr=0.5, local_steps=2),
}


def attacked(scheme: Scheme, **options: Any) -> dict[str, Any]:
    attack = Reconstruction(**({"batches": (1,), "victims": 4, "search": QUICK} | options))
    (found,) = reconstruct(picture_experiment(scheme), attack=attack)
    return found.row()


@pytest.mark.parametrize("name", SCHEMES)
def test_the_search_repeats_what_a_client_sends(name: str) -> None:
    """Through local training, the chosen weights and the encoder."""
    scheme = SCHEMES[name]
    standing = Standing.after(picture_experiment(scheme), 0)
    every, rows = pictures(100), np.arange(6).reshape(2, 3)
    sent = standing.bounded(PooledPopulation(every, rows), np.arange(2))
    inputs, targets = every.inputs[rows], every.targets[rows]
    repeated = Client(scheme, standing.moment(5).plan, standing.clients.model, standing.weights).codes(inputs, targets)
    if scheme.codec.linear:
        assert_close(repeated, sent)
    else:
        assert torch.equal(torch.sign(repeated), sent)


def test_one_record_in_a_linear_model_is_its_gradient_up_to_scale() -> None:
    """Every row of ΔW is a multiple of the input, and Δb says which: x = ΔW_i/Δb_i. No search is needed."""
    standing = Standing.after(picture_experiment(SCHEMES["fl-std"]), 0)
    victims = Victims.of(standing, 4, 1, ("single",))
    weight, bias = standing.clients.model.split(victims.seen["single"])
    assert_close(weight[:, 0] / bias[:, :1], victims.inputs.flatten(1), 1e-3)


def test_the_search_finds_one_record_of_a_linear_model_almost_exactly() -> None:
    row = attacked(SCHEMES["fl-std"])
    assert row["psnr"] > 35 > row["psnr_mean"] + 15
    assert row["correlation"] > 0.99 and row["better_than_mean"] == 1


def test_a_code_under_noise_gives_no_more_than_a_guess() -> None:
    row = attacked(schemes.fl_std_dp(clip_norm=0.01, noise_multiplier=2.0, **ONE_STEP))
    assert row["psnr"] < row["psnr_mean"] + 1 and abs(row["correlation"]) < 0.5


def test_the_code_of_somebody_else_gives_no_more_than_a_guess() -> None:
    """With codes and labels dealt to other victims, what is found are those others' records."""
    scheme = SCHEMES["fl-std"]
    standing = Standing.after(picture_experiment(scheme), 0)
    victims = Victims.of(standing, 6, 1, ("single",))
    client = Client(scheme, standing.moment(5).plan, standing.clients.model, standing.weights)
    order = torch.arange(6).roll(1)
    start = np.random.default_rng(0)
    found, _ = matched(client, victims.seen["single"][order], victims.targets[order], (1, 4, 4), QUICK, start)
    truth = victims.inputs.flatten(0, 1)
    known = pictures(60, seed=1)
    assert float(psnr(found.flatten(0, 1), truth).mean()) < float(psnr(mean_picture(known, 6), truth).mean()) + 1
    assert float(psnr(found.flatten(0, 1), truth[order]).mean()) > 30


def test_a_sum_hides_what_a_code_shows() -> None:
    alone, summed = (attacked(SCHEMES["fl-std"], views=(view,)) for view in ("single", "others"))
    assert alone["psnr"] > summed["psnr"] + 10


@pytest.mark.parametrize("name", ["fl-std", "fl-sign"])
def test_the_label_of_one_record_is_in_the_last_bias(name: str) -> None:
    standing = Standing.after(picture_experiment(SCHEMES[name]), 0)
    victims = Victims.of(standing, 20, 1, ("single",))
    guessed = inferred_labels(standing.clients.model, standing.moment(5), victims.seen["single"])
    assert torch.equal(guessed, victims.targets[:, 0])
    assert attacked(SCHEMES[name], labels="inferred", search=replace(QUICK, iterations=1))["right_labels"] == 1


def test_pictures_are_compared_with_what_they_fit_best() -> None:
    truth = pictures(5).inputs
    assert isinstance(truth, torch.Tensor)
    assert torch.equal(assigned(truth.flip(0), truth), truth)
    assert float(psnr(truth + 0.1, truth)[0]) == pytest.approx(20, abs=1e-4)
    assert float(psnr(truth, truth)[0]) == pytest.approx(60)
    assert_close(correlation(2 * truth - 3, truth), torch.ones(5, dtype=torch.float64))
    assert float(correlation(torch.ones(1, 4), torch.rand(1, 4))) == 0


def test_the_prior_and_the_guesses_without_a_code() -> None:
    steps = torch.zeros(1, 1, 4, 4)
    steps[..., 2:] = 1.0
    assert float(total_variation(steps)) == pytest.approx(1 / 3)
    assert total_variation(torch.rand(3, 7)).tolist() == [0, 0, 0]
    known = pictures(50)
    labels = torch.tensor([0, 2, 1])
    drawn = random_pictures(known, labels, np.random.default_rng(0))
    inputs = known.inputs
    assert isinstance(inputs, torch.Tensor)
    for picture, label in zip(drawn, labels, strict=True):
        (row,) = torch.nonzero((inputs == picture).flatten(1).all(1))[0]
        assert known.targets[row] == label


def test_what_cannot_be_reconstructed_is_refused_in_a_line() -> None:
    plain = SCHEMES["fl-std"]
    whole = Records(torch.randint(0, 5, (100, 16)), pictures(100).targets)
    looked_up = nn.Sequential(nn.Embedding(5, 2), nn.Flatten(), nn.Linear(32, 3))
    cases: list[tuple[Any, str]] = [
        (lambda: Reconstruction(batches=(0,)), "batches"),
        (lambda: Reconstruction(views=("model",)), "unknown view 'model'"),
        (lambda: Reconstruction(labels="guessed"), "guessed"),
        (lambda: Reconstruction(labels="inferred"), "--batches 1"),
        (lambda: Reconstruction(after=-2), "--after -2"),
        (lambda: attacked(schemes.fl_std(local_lr=0.1, local_steps=1, optimizer="adam")), "--optimizer sgd"),
        (lambda: attacked(schemes.fl_std(local_lr=0.1, local_steps=1, batch_size=2), batches=(4,)), "--batch-size all"),
        (lambda: attacked(plain, victims=200), "lower --victims"),
        (lambda: reconstruct(picture_experiment(plain, test=None)), "needs test records"),
        (
            lambda: reconstruct(picture_experiment(plain, population=make_population([5] * 30), model=nn.Linear(6, 3))),
            "from 0 to 1",
        ),
        (
            lambda: reconstruct(
                picture_experiment(plain, population=PooledPopulation(whole, [np.arange(100)] * 20), model=looked_up)
            ),
            "dense real inputs",
        ),
    ]
    for call, text in cases:
        with pytest.raises((ConfigError, DataError), match=text) as refused:
            call()
        assert "\n" not in str(refused.value)
