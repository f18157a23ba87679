"""--sampler cyclic, --separation and --noise-bands: from a configuration to an experiment, or a reason why not."""

from __future__ import annotations

from typing import Any

import pytest

from laconic.errors import ConfigError
from laconic.federation.server.members import resolve_federated
from laconic.privacy.accounting.sampling import Cyclic
from laconic.privacy.mechanism.correlated import CorrelatedGaussian, choose_bands
from laconic.settings.build import settle
from laconic.settings.config import RunConfig
from laconic.settings.forecast import forecast
from laconic_studies.inference.standing import asked_schemes


def config(name: str = "fl-std-dp", **values: Any) -> RunConfig:
    defaults = {
        "scheme.name": name,
        "scheme.clip_norm": 0.5,
        "data.dataset": "synthetic",
        "data.num_clients": 40,
        "sampler.kind": "cyclic",
        "sampler.separation": 8,
        "privacy.noise_bands": 6,
        "privacy.epsilon": 8.0,
        "run.rounds": 20,
    }
    chosen = defaults | {key.replace("__", "."): value for key, value in values.items()}
    return RunConfig().with_values({key: value for key, value in chosen.items() if value is not None})


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_bands_are_made_for_the_run_and_noise_is_calibrated(momentum: float) -> None:
    settled = settle(config(scheme__momentum=momentum))
    noise, accountant = settled.experiment.scheme.noise, settled.experiment.accountant
    assert isinstance(noise, CorrelatedGaussian) and accountant is not None
    assert noise.coefficients == choose_bands(bands=6, separation=8, rounds=20, momentum=momentum)
    assert 7.99 < accountant.released_epsilon(20) <= 8.0
    again = settle(settled.config).experiment  # what is written into the folder repeats the run
    assert again.scheme == settled.experiment.scheme and again.sampler == Cyclic(separation=8)


def test_the_plan_says_what_the_run_will() -> None:
    found = forecast(config())["privacy"]
    assert found is not None and found["server_covered"] is False
    assert 7.99 < found["released"]["20"]["pld"] <= 8.0
    assert {value for figures in found["participant"].values() for value in figures.values()} == {None}
    assert found["correlation"]["by"] == "central" and found["correlation"]["noise_ratio"] < 0.7


def test_one_band_is_noise_that_clients_add() -> None:
    scheme = settle(config(privacy__noise_bands=1)).experiment.scheme
    assert not scheme.noise.central
    assert settle(config(privacy__noise_bands=1, sampler__separation=None)).experiment.sampler == Cyclic(separation=10)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"privacy__noise_bands": 9}, "--noise-bands 9 must be at most --separation 8"),
        ({"sampler__kind": "poisson", "sampler__separation": None}, "use --sampler cyclic with --separation"),
        ({"sampler__kind": "poisson"}, "add --sampler cyclic"),
        ({"sampler__sampling_rate": 0.1}, "takes --separation, not --sampling-rate"),
        ({"sampler__cohort_size": 3}, "takes --separation, not --cohort-size"),
        ({"sampler__separation": 41}, "lower --separation"),
        ({"sampler__max_participations": 3}, "--max-participations means nothing"),
        ({"scheme__noise": "continuous"}, "use --noise integer"),
        ({"scheme__bits": 20}, "--bits 20 means nothing"),
        ({"scheme__ring_bits": 20}, "--ring-bits 20 means nothing"),
        ({"evaluation__every": 5}, "--evaluate-every"),
        ({"aggregator__groups": 2}, "leave out --noise-bands or --groups"),
        ({"secagg__mode": "masked"}, "--secagg masked"),
    ],
)
def test_what_does_not_go_together(values: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        settle(config(**values))


@pytest.mark.parametrize("name", ["fl-std", "fl-sign-dp", "fl-rnd-dp", "fl-std-record-dp"])
def test_schemes_that_it_does_not_go_with(name: str) -> None:
    extra: dict[str, Any] = {"scheme__ratio": 0.5} if name == "fl-rnd-dp" else {}
    if name == "fl-std":
        extra = {"scheme__clip_norm": None, "privacy__epsilon": None}
    if name == "fl-sign-dp":
        extra = {"scheme__clip_norm": None}
    if name == "fl-std-record-dp":
        extra = {"scheme__record_rate": 0.5, "scheme__batch_size": 4, "scheme__balance": "none"}
    with pytest.raises(ConfigError, match=r"noise-bands"):
        settle(config(name, **extra))


def test_federations_and_attacks_on_privacy_are_refused() -> None:
    with pytest.raises(ConfigError, match="--noise-bands is for simulations"):
        resolve_federated(config())
    with pytest.raises(ConfigError, match="--sampler cyclic is for simulations"):
        resolve_federated(config(privacy__noise_bands=1))
    with pytest.raises(ConfigError, match="leave out --noise-bands and --sampler cyclic"):
        next(asked_schemes(("fl-std-dp",), {"privacy.noise_bands": 4}))
