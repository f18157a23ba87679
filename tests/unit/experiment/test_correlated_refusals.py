"""What noise that is correlated over rounds does not go with is refused, with the option to leave out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from scheme_tools import model, scheme

import laconic
from conftest import make_population
from laconic.adversary.attacks.gradient_ascent import RandomUpdate
from laconic.audit.setups import check_auditable
from laconic.codecs.queries import Evaluations
from laconic.errors import ConfigError
from laconic.experiment.experiment import Experiment
from laconic.privacy.accounting.budget import Budget
from laconic.privacy.mechanism.correlated import UNIT, CorrelatedGaussian
from laconic.scheme import Scheme

NOISE = CorrelatedGaussian(noise_multiplier=1.0, coefficients=(UNIT, 400, 300))


def correlated(name: str = "fl-std-dp", **changes: Any) -> Scheme:
    return replace(scheme(name), noise=NOISE, **changes)


def experiment(chosen: Scheme | None = None, **options: Any) -> Experiment:
    defaults: dict[str, Any] = {
        "scheme": chosen or correlated(),
        "model": model(),
        "population": make_population([4] * 12),
        "sampler": laconic.Cyclic(separation=4),
        "budget": Budget(delta=1e-5),
        "rounds": 6,
        "device": "cpu",
    }
    return Experiment(**(defaults | options))


def test_what_is_left_can_be_run() -> None:
    assert experiment().accountant is not None
    for name in ("fl-bas-3-dp", "fl-bas-4-dp", "fl-top-dp"):
        assert experiment(correlated(name)).accountant is not None


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"secagg": "masked"}, "leave out --noise-bands or --secagg masked"),
        ({"noise_draws": "per-client"}, "--noise-draws per-client"),
        ({"max_dropouts": 1}, "--max-dropouts and --max-colluders"),
        ({"max_colluders": 1}, "--max-dropouts and --max-colluders"),
        ({"dropout_rate": 0.1}, "--dropout-rate"),
        ({"group_testing": True}, "--group-testing"),
        ({"attack": RandomUpdate(fraction=0.1)}, "--attack"),
        ({"budget": Budget(delta=1e-5, participant_epsilon=3.0)}, "leave out --participant-epsilon or --noise-bands"),
        ({"sampler": laconic.Poisson(sampling_rate=0.2)}, "use --sampler cyclic with --separation"),
        ({"sampler": laconic.FixedSize(cohort_size=3)}, "use --sampler cyclic with --separation"),
        ({"sampler": laconic.Cyclic(separation=2)}, "lower --noise-bands, or raise --separation"),
        ({"sampler": laconic.Cyclic(separation=13)}, "lower --separation"),
        ({"budget": Budget(delta=1e-5, max_participations=1)}, "--max-participations means nothing"),
    ],
)
def test_options_that_would_break_the_promise(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        experiment(**options)


@pytest.mark.parametrize(
    ("name", "changes", "words"),
    [
        ("fl-sign-dp", {}, "a vote on signs is none"),
        ("sign-sgd-dp", {}, "a vote on signs is none"),
        ("fl-rnd-dp", {}, "another meaning in every round"),
        ("fl-basic-dp", {}, "another meaning in every round"),
        ("fl-std-dp", {"groups": 2}, "leave out --noise-bands or --groups"),
        ("fl-std-dp", {"evaluations": Evaluations(every=2)}, "--evaluate-every"),
        ("fl-std-record-dp", {}, "drop one of the two noises"),
        ("centralized", {}, "no clients to protect"),
    ],
)
def test_schemes_that_it_does_not_go_with(name: str, changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        correlated(name, **changes)


def test_attackers_that_come_out_of_turn_are_refused() -> None:
    with pytest.raises(ConfigError, match="name them with --attack-malicious"):
        experiment(scheme("fl-std-dp"), attack=RandomUpdate(fraction=0.2))
    named = experiment(scheme("fl-std-dp"), attack=RandomUpdate(fraction=None, malicious=(1, 5)))
    assert named.arrange is None


def test_votes_are_refused() -> None:
    with pytest.raises(ConfigError, match="--top-selection votes"):
        replace(scheme("fl-top-dp", top_selection="votes"), noise=NOISE)


def test_records_and_turns_are_refused() -> None:
    with pytest.raises(ConfigError, match="use --sampling-rate or --cohort-size"):
        experiment(scheme("fl-std-record-dp"))


@pytest.mark.parametrize("chosen", [correlated(), scheme("fl-std-dp")])
def test_audits_are_refused(chosen: Scheme) -> None:
    with pytest.raises(ConfigError, match="leave out --noise-bands and --sampler cyclic"):
        check_auditable(experiment(chosen))
