"""Votes in a configuration: what goes together, what is calibrated, what a plan says."""

from __future__ import annotations

from typing import Any

import pytest

from laconic.errors import ConfigError
from laconic.settings.build import settle
from laconic.settings.check import check_config
from laconic.settings.config import RunConfig
from laconic.settings.forecast import forecast

BASE: dict[str, Any] = {
    "scheme.name": "fl-top-dp",
    "scheme.ratio": 0.1,
    "scheme.top_selection": "votes",
    "scheme.vote_rounds": 1,
    "scheme.clip_norm": 1.0,
    "privacy.epsilon": 4.0,
    "privacy.delta": 1e-3,
    "sampler.sampling_rate": 0.5,
    "run.rounds": 6,
}
PUBLIC: dict[str, Any] = {"scheme__top_selection": "public", "scheme__vote_rounds": None, "data__public_records": 10}


def config(**changes: Any) -> RunConfig:
    values = BASE | {name.replace("__", "."): value for name, value in changes.items()}
    return RunConfig().with_values({name: value for name, value in values.items() if value is not None})


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"scheme__vote_rounds": 6}, "--vote-rounds 6 of --rounds 6 leaves none to train in"),
        ({"data__public_records": 10}, "needs no public data: leave out --public-records"),
        ({"data__public_dataset": "mnist"}, "needs no public data: leave out --public-dataset"),
        ({"scheme__init_steps": 3}, "--init-steps means nothing with --top-selection votes"),
        ({"scheme__clip_norm": "median"}, "known after the votes: give a number"),
        ({"privacy__vote_share": 1.2}, "vote_share must be strictly between 0 and 1"),
        ({"privacy__vote_share": 0.2, "privacy__epsilon": None, "scheme__noise_multiplier": 1.0}, "a share of --eps"),
        ({"privacy__vote_share": 0.2, **PUBLIC}, "--vote-share 0.2 means nothing"),
        ({**PUBLIC, "scheme__vote_rounds": 2}, "--vote-rounds means nothing without votes"),
        ({**PUBLIC, "scheme__top_selection": "vote"}, "did you mean 'votes'"),
    ],
)
def test_what_does_not_go_together_is_refused_in_one_line(changes: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told) as error:
        check_config(config(**changes))
    assert "\n" not in str(error.value)


def test_schemes_without_a_chosen_set_have_no_votes() -> None:
    with pytest.raises(ConfigError, match="unknown option of fl-std-dp 'vote_rounds'"):
        check_config(RunConfig().with_values({"scheme.name": "fl-std-dp", "scheme.vote_rounds": 1}))
    with pytest.raises(ConfigError, match="fl-top adds no noise, so --vote-share means nothing"):
        check_config(
            RunConfig().with_values(
                {
                    "scheme.name": "fl-top",
                    "scheme.ratio": 0.1,
                    "scheme.top_selection": "votes",
                    "privacy.vote_share": 0.3,
                }
            )
        )


def test_both_noises_are_calibrated_to_the_total_and_written_down() -> None:
    common = {"privacy__accountant": "rdp", "sampler__sampling_rate": 1.0}
    settled = settle(config(privacy__vote_share=0.5, **common))
    options, accountant = settled.config.scheme.options, settled.experiment.accountant
    assert accountant is not None
    assert accountant.released_epsilon(6, "rdp") == pytest.approx(4.0, abs=0.01)
    assert accountant.released_epsilon(1) == pytest.approx(2.0, abs=0.01)  # the vote alone, by the tightest method
    assert settle(settled.config).config == settled.config
    less = settle(config(privacy__vote_share=0.1, **common)).config.scheme.options
    assert less["vote_noise_multiplier"] > options["vote_noise_multiplier"]
    assert less["noise_multiplier"] < options["noise_multiplier"]


def test_without_a_promised_figure_votes_have_the_noise_of_training() -> None:
    settled = settle(config(privacy__epsilon=None, scheme__noise_multiplier=1.3))
    assert settled.experiment.scheme.at(1).noise_multiplier == 1.3


def test_a_plan_shows_the_votes_and_counts_their_bytes() -> None:
    noise = {"scheme__noise_multiplier": 1.3, "scheme__vote_noise_multiplier": 2.0}
    plan = forecast(config(**noise, scheme__vote_rounds=2, sampler__sampling_rate=1.0))
    votes, cohort = plan["votes"], plan["planned_cohort"]
    assert (votes["blocks"], votes["marks"], votes["kept"]) == (41, 5, 65)
    each, vote = plan["bytes_up_per_client_and_round"], votes["bytes_up_per_client_and_round"]
    assert plan["bytes_up_in_all"] == round(cohort * (4 * each + 2 * vote))
