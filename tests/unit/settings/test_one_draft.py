"""A scheme is built once: what is calibrated or measured later takes the place of what stood for it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from laconic import catalogue
from laconic.catalogue import SCHEMES, build_scheme, scheme_entry
from laconic.privacy.mechanism.clip import L2Clip
from laconic.scheme import Scheme
from laconic.settings.build import settle
from laconic.settings.check import check_config
from laconic.settings.config import RunConfig
from laconic.settings.resolve import draft_options, with_bound, with_train_defaults

GIVEN: dict[str, Any] = {"ratio": 0.4}
RECORDS: dict[str, Any] = {"batch_size": 10, "record_rate": 0.5, "balance": "none"}
PRIVATE = [name for name, entry in SCHEMES.items() if entry.private]


def config_of(name: str, **options: Any) -> RunConfig:
    entry = scheme_entry(name)
    values = GIVEN | (RECORDS if entry.record_level else {}) | options
    given = {key: value for key, value in values.items() if key in entry.options}
    return RunConfig.from_dict({"scheme": {"name": name, **given}})


@pytest.mark.parametrize("name", PRIVATE)
def test_what_stood_for_noise_and_bound_is_replaced_by_them(name: str) -> None:
    """The scheme is the one that its function makes of the final numbers, whatever it makes of them."""
    entry = scheme_entry(name)
    bound = 2.0 if entry.record_level else "median"  # the bound on records is never measured
    draft = check_config(
        config_of(name, clip_norm=bound, noise_multiplier=1.0).with_values({"data.public_records": 20})
    )
    options = draft_options(with_train_defaults(dict(config_of(name).scheme.options), entry), entry)
    final = options | {
        key: 2.0 if key == "clip_norm" else 1.7 for key in ("clip_norm", "noise_multiplier") if key in options
    }
    found = draft.scheme.with_noise_multiplier(1.7)
    if not entry.record_level:
        found = with_bound(found, 2.0)
    assert found == build_scheme(name, **final)
    assert found != draft.scheme


@pytest.mark.parametrize("name", ["fl-std", "fl-std-dp"])
def test_one_run_builds_its_scheme_once(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[str] = []

    def counted(name: str, **options: Any) -> Scheme:
        built.append(name)
        return build_scheme(name, **options)

    for module in ("check", "build"):
        monkeypatch.setattr(f"laconic.settings.{module}.build_scheme", counted)
    values: dict[str, Any] = {"run.rounds": 2, "data.num_clients": 30}
    if name == "fl-std-dp":
        values |= {"scheme.clip_norm": 0.5, "privacy.epsilon": 8.0, "privacy.accountant": "rdp"}
    settled = settle(RunConfig.from_dict({"scheme": {"name": name}}).with_values(values))
    assert built == [name]
    if name == "fl-std-dp":
        assert settled.experiment.scheme.clip == L2Clip(clip_norm=0.5) and not settled.experiment.scheme.open


def own_scheme(*, clip_norm: float, noise_multiplier: float | None = None, **options: Any) -> Scheme:
    """One that uses S for its steps as well."""
    scheme = build_scheme(
        "fl-std-dp", clip_norm=clip_norm, noise_multiplier=noise_multiplier, local_lr=0.1, local_steps=1
    )
    return replace(scheme, rule=replace(scheme.rule, server_lr=1 / clip_norm))


def test_a_function_of_the_users_own_may_use_the_measured_bound_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalogue, "imported", lambda what, name: own_scheme)
    values = {"scheme.clip_norm": "median", "scheme.noise_multiplier": 1.0, "data.num_clients": 30, "run.rounds": 1}
    scheme = settle(RunConfig.from_dict({"scheme": {"name": "my:own_scheme"}}).with_values(values)).experiment.scheme
    assert isinstance(scheme.clip, L2Clip) and scheme.clip.clip_norm != 1.0
    assert scheme.rule.server_lr == 1 / scheme.clip.clip_norm
