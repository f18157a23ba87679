"""Probabilities for the shares of classes that were declared: weights in training are taken out, by Bayes' rule."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import torch

from laconic import schemes
from laconic.errors import ConfigError
from laconic.experiment.prior import Prior
from laconic.settings.data.new_records import NewRecords
from laconic.settings.data.record_kind import RecordKind
from laconic.settings.predict import said_of


def probabilities(logits: list[list[float]], prior: Prior, wanted: Sequence[float] = ()) -> np.ndarray:
    outputs = torch.tensor(logits)
    kind = RecordKind(shape=(1,), num_classes=max(2, outputs.shape[-1]))
    new = NewRecords("row", [str(n) for n in range(len(logits))], outputs)
    found = said_of(new, kind, outputs, prior, wanted)
    if kind.num_classes == 2:
        return np.asarray(found.columns["probability"])
    return np.stack([found.columns[f"p({c})"] for c in range(kind.num_classes)], 1)


def logit(share: float) -> float:
    return float(np.log(share / (1 - share)))


def test_a_model_that_counted_positives_fivefold_says_the_true_share() -> None:
    """Of a record that is positive in 10 of 100 cases, such a model says 5·0.1/(5·0.1 + 0.9) = 0.357."""
    weighted = 5 * 0.1 / (5 * 0.1 + 0.9)
    assert probabilities([[0.0, logit(weighted)]], Prior(weights=(1, 5))) == pytest.approx([0.1], abs=1e-7)
    assert probabilities([[0.0, logit(weighted)]], Prior()) == pytest.approx([weighted], abs=1e-7)  # the twin


def test_another_prevalence_moves_probabilities_as_bayes_does() -> None:
    """With a likelihood ratio of 4, the posterior odds are 4·p/(1 − p) whatever the share p."""
    prior = Prior(weights=(1, 3), shares=(0.9, 0.1))
    trained = 4 * 3 * 0.1 / 0.9
    for share in (0.1, 0.02, 0.5):
        odds = 4 * share / (1 - share)
        found = probabilities([[0.0, float(np.log(trained))]], prior, (1 - share, share))
        assert found == pytest.approx([odds / (1 + odds)], abs=1e-7)


def test_three_classes() -> None:
    likelihood, shares, weights, wanted = np.array([(0.2, 0.5, 0.3), (0.5, 0.3, 0.2), (1, 2, 4), (0.8, 0.1, 0.1)])
    seen = likelihood * shares * weights
    prior = Prior(tuple(weights), tuple(shares))
    asked = likelihood * wanted / (likelihood * wanted).sum()
    found = probabilities([np.log(seen).tolist()], prior, tuple(wanted))
    assert found[0] == pytest.approx(asked, abs=1e-6)
    as_trained = likelihood * shares / (likelihood * shares).sum()
    assert probabilities([np.log(seen).tolist()], prior)[0] == pytest.approx(as_trained, abs=1e-6)


@pytest.mark.parametrize(
    ("prior", "wanted", "words"),
    [
        (Prior(), (0.9, 0.1), "this run declares none"),
        (Prior(shares=(0.9, 0.1)), (0.2, 0.2, 0.6), "is for 3 classes, but the model has 2"),
        (Prior(shares=(0.9, 0.1)), (0.2, 0.2), "sum to 0.4, not 1"),
    ],
)
def test_shares_that_cannot_be_used_are_refused(prior: Prior, wanted: tuple[float, ...], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        probabilities([[0.0, 1.0]], prior, wanted)


def test_what_a_scheme_weighs_is_found() -> None:
    options = {"clip_norm": 1.0, "noise_multiplier": 1.0, "local_lr": 1.0}
    record = schemes.fl_std_record_dp(
        local_steps=1, batch_size=8, record_rate=0.1, balance="per-class", prevalence=0.2, **options
    )
    found = Prior.of(record)
    assert found.weights[1] / found.weights[0] == pytest.approx(4)  # positives count 4 times where they are 1 in 5
    assert found.shares == (0.8, 0.2)
    units = schemes.fl_std_dp(
        unit="record", num_units=100, class_weights="1,5", prevalence=0.1, clip_norm=1.0, noise_multiplier=1.0
    )
    assert Prior.of(units) == Prior((1.0, 5.0), (0.9, 0.1))
    assert Prior.of(schemes.fl_std(local_lr=0.1, local_steps=1)) == Prior()
    alike = Prior.of(schemes.fl_std(local_lr=0.1, local_steps=1, balance="downsample"))
    assert alike.shares == (0.5, 0.5) and "where half of the records have it" in alike.meaning("died = yes")
    assert Prior().declared(0.2) == Prior(shares=(0.8, 0.2)) and Prior.of(units).declared(0.3) == Prior.of(units)
    assert Prior().declared(None) == Prior()
    assert "weights of the classes in training are taken out" in Prior.of(units).meaning("died = yes")
    assert "where 0.5 of the records have it" in Prior.of(units).meaning("died = yes", (0.5, 0.5))


def test_records_are_ranked_where_probabilities_round_to_0_or_1() -> None:
    """A rounded probability is the same for unlike records: six decimals turned an AUROC of 0.691 into 0.526."""
    outputs = torch.tensor([-60.0, -59.0, 59.0, 60.0])
    new = NewRecords("row", list("abcd"), outputs)
    found = said_of(new, RecordKind(shape=(1,), num_classes=2), outputs, Prior())
    assert (np.diff(np.asarray(found.columns["log_odds"])) == [1, 118, 1]).all()
    assert found.probabilities[0] < found.probabilities[1] < 1e-25
