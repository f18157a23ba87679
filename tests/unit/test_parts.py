"""Parts are frozen, validated and can be written down and read back."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest

from laconic import schemes
from laconic.aggregate.protocol import PlainSum
from laconic.catalogue import SCHEMES, build_scheme
from laconic.errors import ConfigError
from laconic.parts import Part
from laconic.privacy.accounting.sampling import Poisson, Sampler
from laconic.privacy.mechanism.clip import Clip, L2Clip, NoClip
from laconic.privacy.mechanism.gaussian import Gaussian, NoNoise
from laconic.scheme import Scheme

PRIVATE = schemes.fl_std_dp(clip_norm=0.5, noise_multiplier=1.2, local_lr=0.1, local_steps=3, batch_size=4)
PLAIN = schemes.fl_std(local_lr=0.1, epochs=2)


@pytest.mark.parametrize("scheme", [PRIVATE, PLAIN, schemes.centralized(local_lr=0.1, epochs=1)])
def test_schemes_round_trip_through_json(scheme: Scheme) -> None:
    data = json.loads(json.dumps(scheme.to_dict()))
    assert Scheme.from_dict(data) == scheme
    assert Scheme.from_dict(data).fingerprint == scheme.fingerprint


def test_fingerprint_names_every_setting() -> None:
    prints = {
        PRIVATE.fingerprint,
        dataclasses.replace(PRIVATE, clip=L2Clip(clip_norm=0.6)).fingerprint,
        dataclasses.replace(PRIVATE, noise=Gaussian(noise_multiplier=1.3)).fingerprint,
        dataclasses.replace(PRIVATE, train=dataclasses.replace(PRIVATE.train, local_lr=0.2)).fingerprint,
        dataclasses.replace(PRIVATE, name="other").fingerprint,
    }
    assert len(prints) == 5
    assert all(len(p) == 32 for p in prints)


def test_unknown_key_names_the_nearest() -> None:
    with pytest.raises(ConfigError, match="did you mean 'clip_norm'"):
        Clip.from_dict({"kind": "L2Clip", "clipnorm": 1.0})
    with pytest.raises(ConfigError, match="did you mean 'L2Clip'"):
        Clip.from_dict({"kind": "L2Clp", "clip_norm": 1.0})
    with pytest.raises(ConfigError, match="'kind' is missing"):
        Sampler.from_dict({"sampling_rate": 0.1})
    with pytest.raises(ConfigError, match="did you mean 'clip_norm'"):
        build_scheme("fl-std-dp", clip_nrm=1.0, noise_multiplier=1.0, local_lr=0.1, local_steps=1)


def test_a_part_of_another_kind_is_refused() -> None:
    with pytest.raises(ConfigError, match="unknown Clip kind 'Poisson'"):
        Clip.from_dict(Poisson(sampling_rate=0.1).to_dict())


def test_bases_are_no_kinds() -> None:
    assert "Clip" not in Clip.known_kinds()
    assert {"NoClip", "L2Clip"} <= set(Clip.known_kinds())


def test_parts_are_frozen_and_keyword_only() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        PRIVATE.name = "other"  # type: ignore[misc]
    with pytest.raises(TypeError):
        L2Clip(1.0)  # type: ignore[misc]
    for kind in Part.known_kinds():
        assert dataclasses.is_dataclass(Part._kinds[kind])


@pytest.mark.parametrize("value", [0, -1.0, float("nan"), float("inf"), "a", True, None])
def test_bad_numbers_name_their_keyword(value: object) -> None:
    with pytest.raises(ConfigError, match="clip_norm must be a positive number"):
        L2Clip(clip_norm=value)  # type: ignore[arg-type]
    if value is None:
        return  # a noise multiplier may be open
    with pytest.raises(ConfigError, match="noise_multiplier must be a positive number"):
        Gaussian(noise_multiplier=value)  # type: ignore[arg-type]


def test_what_would_make_the_epsilon_untrue_is_refused_all_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        dataclasses.replace(PRIVATE, clip=NoClip(), secure_sum=PlainSum(), weighting="data-size")
    message = str(caught.value)
    assert "clip" in message
    assert "PlainSum" in message
    assert "sensitivity" in message


def test_an_ablation_is_a_replacement() -> None:
    quiet = dataclasses.replace(PRIVATE, noise=NoNoise())
    assert not quiet.private
    assert quiet.clip == PRIVATE.clip


def test_the_catalogue_lists_what_can_be_built() -> None:
    for name, entry in SCHEMES.items():
        values = {"clip_norm": 1.0, "noise_multiplier": 1.0, "local_lr": 0.1, "ratio": 0.1}
        values |= {"record_rate": 0.1, "batch_size": 10}
        options: dict[str, Any] = {key: values[key] for key in entry.required}
        if entry.record_level:
            options["prevalence"] = 0.1
        if "local_steps" in entry.options:
            options["local_steps"] = 1
        scheme = build_scheme(name, **options)
        assert scheme.name == name
        assert scheme.private == entry.private
        assert scheme.codec.linear == entry.linear
        assert entry.summary.endswith(".") or ":" in entry.summary
    with pytest.raises(ConfigError, match="did you mean 'fl-std'"):
        build_scheme("fl_std")
    with pytest.raises(ConfigError, match="needs --clip-norm, --noise-multiplier"):
        build_scheme("fl-std-dp", local_lr=0.1, local_steps=1)
