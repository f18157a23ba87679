"""The `[aggregator]` section: from the configuration to the scheme, and what is refused, in one line each."""

from __future__ import annotations

from typing import Any

import pytest

from laconic.aggregate.krum import Krum
from laconic.aggregate.mixing import NearestNeighbourMixing
from laconic.errors import ConfigError
from laconic.settings.build import settle
from laconic.settings.check import check_config
from laconic.settings.config import RunConfig


def config(**values: Any) -> RunConfig:
    return RunConfig().with_values({"data.num_clients": 60} | {k.replace("__", "."): v for k, v in values.items()})


def test_a_named_rule_is_in_the_scheme_and_its_configuration_comes_back() -> None:
    asked = config(aggregator__name="krum", aggregator__byzantine=1, aggregator__mixing=True)
    settled = settle(asked)
    assert settled.experiment.scheme.aggregator == NearestNeighbourMixing(rule=Krum(byzantine=1), byzantine=1)
    again = RunConfig.from_dict(settled.config.to_dict())
    assert settle(again).experiment.scheme == settled.experiment.scheme


def test_options_of_the_rule_are_keys_of_the_section() -> None:
    some = settle(config(aggregator__name="geometric-median", aggregator__max_iterations=7)).experiment
    assert some.scheme.aggregator.max_iterations == 7  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            {"scheme__name": "fl-std-dp", "scheme__clip_norm": 1.0, "scheme__noise_multiplier": 1.0}
            | {"aggregator__name": "median"},
            "fl-std-dp: Median looks at single codes, which a secure sum hides: use it without noise shares",
        ),
        ({"aggregator__byzantine": 3}, "--byzantine means nothing without --aggregator: name a rule"),
        ({"aggregator__mixing": True}, "--mixing means nothing without --aggregator: name a rule"),
        ({"aggregator__name": "krums"}, "unknown aggregator 'krums': did you mean 'krum'?"),
        ({"aggregator__name": "krum", "aggregator__byzantine": -1}, "byzantine must be a whole number that is 0 or"),
        ({"aggregator__name": "median", "aggregator__raduis": 2}, "unknown option of aggregator 'median' 'raduis'"),
    ],
    ids=str,
)
def test_what_cannot_work_is_refused_before_data_are_loaded(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check_config(config(**values))
    assert message in str(caught.value)
    assert len({line.removeprefix("  - ") for line in str(caught.value).splitlines()}) <= 3


PRIVATE = {"scheme__name": "fl-std-dp", "scheme__clip_norm": 1.0, "sampler__sampling_rate": 0.5}


def test_groups_are_in_the_scheme_and_in_the_calibrated_noise() -> None:
    values = {"aggregator__name": "median", "aggregator__groups": 5, "privacy__epsilon": 4.0, "privacy__delta": 1e-3}
    some = config(**PRIVATE, **values, run__rounds=3, privacy__accountant="rdp")
    settled = settle(some).experiment
    assert settled.scheme.groups == 5 and settled.accountant is not None
    assert 3.99 < settled.accountant.released_epsilon(3, "rdp") <= 4.0


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"aggregator__groups": 3}, "fl-std: groups have secure sums with noise: use --groups with a scheme in -dp"),
        (PRIVATE | {"aggregator__groups": 0}, "groups must be a whole number that is 1 or more, not 0"),
        (
            PRIVATE | {"aggregator__name": "krum", "aggregator__byzantine": 2, "aggregator__groups": 6},
            "fl-std-dp: Krum takes 7 sums or more, but there are 6: raise --groups",
        ),
    ],
    ids=str,
)
def test_groups_that_cannot_work_are_refused_before_data_are_loaded(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check_config(config(**({"scheme__noise_multiplier": 1.0} if "scheme__name" in values else {}), **values))
    assert str(caught.value).startswith(message) and "\n" not in str(caught.value)


def test_groups_larger_than_the_cohort_allows_are_refused() -> None:
    asked = config(**PRIVATE, scheme__noise_multiplier=1.0, aggregator__groups=16, privacy__delta=1e-3)
    with pytest.raises(ConfigError, match="--groups 16 of a cohort of 30 leaves fewer than two clients in a group"):
        settle(asked)


def test_a_rule_that_no_cohort_can_serve_is_refused() -> None:
    with pytest.raises(ConfigError, match="Krum takes 9 codes or more, but a cohort has 6"):
        settle(config(aggregator__name="krum", aggregator__byzantine=3))
