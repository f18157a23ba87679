"""Options of evaluations: what they settle to, and what is refused, all at once and before anything is loaded."""

from __future__ import annotations

from typing import Any

import pytest

from laconic.errors import ConfigError
from laconic.settings.build import settle
from laconic.settings.check import check_config
from laconic.settings.config import RunConfig

BASE = {
    "scheme.name": "fl-std-dp",
    "scheme.clip_norm": 0.5,
    "data.num_clients": 100,
    "sampler.sampling_rate": 1.0,
    "run.rounds": 12,
    "privacy.epsilon": 6.0,
    "evaluation.every": 4,
}


def config(**changes: Any) -> RunConfig:
    return RunConfig().with_values(BASE | {name.replace("__", "."): value for name, value in changes.items()})


def test_noise_is_calibrated_so_that_evaluations_cost_their_share_and_all_rounds_the_budget() -> None:
    settled = settle(config(evaluation__share=0.2))
    mechanism = settled.experiment.mechanism
    assert mechanism.client_evaluation is not None and mechanism.client_evaluation.accountant is not None
    alone = mechanism.client_evaluation.accountant.released_epsilon(3)
    assert 0.99 * 1.2 < alone <= 1.2
    assert mechanism.accountant is not None
    assert 0.99 * 6.0 < mechanism.accountant.released_epsilon(12) <= 6.0
    # A settled configuration repeats the run.
    again = settle(settled.config).experiment.scheme
    assert again == settled.experiment.scheme and again.evaluations.noise_multiplier is not None


def test_without_a_promise_evaluations_have_the_noise_of_training() -> None:
    given = config(scheme__noise_multiplier=1.3)
    data = given.to_dict()
    del data["privacy"]["epsilon"]
    scheme = settle(RunConfig.from_dict(data)).experiment.scheme
    assert scheme.evaluations.noise_multiplier is None
    assert scheme.client_evaluation.noise.noise_multiplier == 1.3  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"evaluation__every": 1}, "leaves no round to train in"),
        ({"evaluation__every": 13}, "--evaluate-every 13 of --rounds 12 is never"),
        ({"evaluation__every": 0, "evaluation__metric": "loss"}, "only evaluations use --evaluate-metric"),
        ({"evaluation__metric": "f1"}, "evaluate_metric"),
        ({"evaluation__bins": 3}, "evaluate_bins must be even"),
        ({"evaluation__held_out": 0.0}, "--evaluate-held-out 0 leaves nothing"),
        ({"evaluation__held_out": 1.0}, "below 1"),
        ({"evaluation__share": 1.5}, "strictly between 0 and 1"),
        ({"scheme__name": "sign-sgd-dp"}, "signs tell the change of one round"),
        ({"attack__kind": "random-update"}, "is not defined"),
    ],
)
def test_what_does_not_go_together_is_refused(changes: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        check_config(config(**changes))
