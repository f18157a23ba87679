"""What costs little is checked first, and a calibration asks for no more than it needs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import laconic
from laconic.errors import ConfigError
from laconic.privacy.accounting.budget import calibrate_noise
from laconic.privacy.accounting.tight import sampled_gaussian
from laconic.settings.build import settle
from laconic.settings.config import RunConfig

CONFIG = RunConfig.from_dict(
    {
        "scheme": {"name": "fl-std-dp", "clip_norm": 0.5},
        "privacy": {"epsilon": 4.0},
        "data": {"num_clients": 50},
        "run": {"rounds": 1},
    }
)


def never(*args: Any, **options: Any) -> Any:
    raise AssertionError("this takes time, and the run cannot work")


@pytest.mark.parametrize(
    ("key", "value", "match"),
    [
        ("run.device", "cdua", "device"),
        ("run.engine", "fast", "engine"),
        ("run.precision", "half", "precision"),
        ("run.best_by", "luck", "best_by"),
        ("run.rounds", 0, "rounds"),
        ("run.checkpoint_seconds", -1.0, "checkpoint_seconds"),
        ("secagg.mode", "hidden", "secagg"),
        ("secagg.dropout_rate", 1.5, "dropout_rate"),
    ],
)
def test_a_name_or_number_that_cannot_be_is_refused_before_any_data_are_loaded(
    monkeypatch: pytest.MonkeyPatch, key: str, value: Any, match: str
) -> None:
    monkeypatch.setattr("laconic.settings.build.load_federation", never)
    with pytest.raises(ConfigError, match=match):
        settle(CONFIG.with_values({key: value}))


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"scheme.clip_norm": "average"}, "--clip-norm must be"),
        ({"scheme.batch_size": -1}, "batch_size"),
        ({"run.patience": 3}, "--holdout"),
        ({"sampler.max_dropouts": 49}, "leaves none of a cohort"),
        ({"secagg.mode": "masked", "scheme.noise": "continuous"}, "cannot be masked"),
    ],
)
def test_what_cannot_work_is_refused_before_the_noise_is_calibrated(
    monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], match: str
) -> None:
    monkeypatch.setattr("laconic.experiment.calibrated.smallest_noise", never)
    monkeypatch.setattr("laconic.settings.resolve.clip_norm_from", never)
    with pytest.raises(ConfigError, match=match):
        settle(CONFIG.with_values(changes))


def test_a_calibration_asks_for_no_point_of_a_loss_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundred thousand questions for each σ took seconds."""
    from dp_accounting.pld.privacy_loss_mechanism import GaussianPrivacyLoss

    single = 0
    inverse = GaussianPrivacyLoss.inverse_privacy_loss

    def counted(self: Any, loss: float) -> float:
        nonlocal single
        single += 1
        return float(inverse(self, loss))

    monkeypatch.setattr(GaussianPrivacyLoss, "inverse_privacy_loss", counted)
    sigma = calibrate_noise(
        epsilon=2.0, delta=1e-5, rounds=1, sampler=laconic.Poisson(sampling_rate=0.37), num_clients=100
    )
    assert 0.5 < sigma < 2.0
    assert single < 100


@pytest.mark.parametrize(("sigma", "rate"), [(0.9, 0.1), (3.7, 0.9), (8.0, 0.003), (1.2, 1 / 60), (1.1, 0.5)])
def test_the_loss_of_a_sampled_gaussian_is_the_librarys_bit_for_bit(sigma: float, rate: float) -> None:
    from dp_accounting.pld.privacy_loss_distribution import from_gaussian_mechanism

    theirs, ours = from_gaussian_mechanism(sigma, sampling_prob=rate), sampled_gaussian(sigma, rate)
    for direction in ("_pmf_remove", "_pmf_add"):
        a, b = (getattr(pld, direction).to_dense_pmf() for pld in (theirs, ours))
        assert (a._lower_loss, a._infinity_mass, a._discretization) == (
            b._lower_loss,
            b._infinity_mass,
            b._discretization,
        )
        assert np.array_equal(a._probs, b._probs)
