"""Ballots, their bound, and the election."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from laconic import schemes
from laconic.codecs.votes import Ballot, VotedSubset
from laconic.errors import ConfigError
from laconic.plan import RoundPlan
from laconic.privacy.mechanism.clip import Marks
from laconic.scheme import Scheme

PLAN = RoundPlan(
    round=1, attempt=0, cohort=np.arange(3), planned_cohort=3.0, run_seed=0, round_seed=7, fingerprint="", shared={}
)


def ballots(updates: Tensor, *, ratio: float, block: int = 1) -> Tensor:
    return Ballot(ratio=ratio, block=block).encode(updates, PLAN, [])


def voted(**changes: float) -> VotedSubset:
    options = {"ratio": 0.2, "vote_block": 1} | changes
    codec = schemes.fl_top(top_selection="votes", local_lr=0.1, local_steps=1, **options).codec
    assert isinstance(codec, VotedSubset)
    return codec


def test_a_ballot_marks_the_largest_changes_whatever_their_sign() -> None:
    updates = torch.tensor([[0.1, -3.0, 0.2, 2.0, 0.0], [5.0, 0.0, 0.0, -0.1, 0.2]])
    assert ballots(updates, ratio=0.4).tolist() == [[0, 1, 0, 1, 0], [1, 0, 0, 0, 1]]


def test_blocks_are_marked_by_their_norm_and_the_last_may_be_short() -> None:
    updates = torch.tensor([[3.0, 0.0, 2.5, 2.5, 0.0, 0.0, 3.4]])
    assert ballots(updates, ratio=0.25, block=2).tolist() == [[0, 1, 0, 0]]
    assert ballots(updates, ratio=0.5, block=2).tolist() == [[0, 1, 0, 1]]


def test_a_client_that_has_learnt_nothing_marks_nothing() -> None:
    assert ballots(torch.zeros(2, 10), ratio=0.3).sum() == 0
    assert ballots(torch.full((1, 10), math.nan), ratio=0.3).sum() == 0


@given(
    code=st.lists(st.floats(allow_nan=True, allow_infinity=True, width=32), min_size=1, max_size=60),
    ratio=st.floats(0.01, 1),
)
def test_no_code_has_more_marks_than_the_sensitivity_says(code: list[float], ratio: float) -> None:
    bounded = Marks(ratio=ratio)(torch.tensor([code]))
    assert set(bounded.unique().tolist()) <= {0.0, 1.0}
    assert float(bounded.square().sum()) <= Marks(ratio=ratio).sensitivity(len(code)) ** 2 + 1e-9


@given(size=st.integers(1, 200), block=st.integers(1, 20), ratio=st.floats(0.01, 1))
def test_a_ballot_is_within_its_bound_as_it_is(size: int, block: int, ratio: float) -> None:
    updates = torch.from_numpy(np.random.default_rng(size).normal(size=(2, size)).astype(np.float32))
    codes = ballots(updates, ratio=ratio, block=block)
    assert codes.shape == (2, math.ceil(size / block))
    assert torch.equal(Marks(ratio=ratio)(codes), codes)


def test_the_weights_with_most_votes_are_kept() -> None:
    votes = torch.tensor([0.0, 9.0, 3.0, 0.0, 8.0, 1.0, 0.0, 0.0, 0.0, 0.0])
    assert voted(ratio=0.3).elected(votes, 10, PLAN)["kept"].tolist() == [1, 2, 4]


def test_so_many_weights_are_kept_as_the_ratio_says_also_with_blocks() -> None:
    votes = torch.tensor([1.0, 0.0, 5.0, 2.0])  # of 3, 3, 3 and 1 weights
    kept = voted(ratio=0.5, vote_block=3).elected(votes, 10, PLAN)["kept"]
    assert kept.tolist() == [0, 6, 7, 8, 9]


def test_public_coins_decide_between_equals() -> None:
    votes = torch.zeros(1000)
    kept = voted(ratio=0.1).elected(votes, 1000, PLAN)["kept"]
    assert torch.equal(kept, voted(ratio=0.1).elected(votes, 1000, PLAN)["kept"])
    assert len(kept) == len(kept.unique()) == 100
    assert 350 < float(kept.double().mean()) < 650


def test_a_scheme_votes_first_and_trains_then() -> None:
    scheme = schemes.fl_top_dp(
        ratio=0.2,
        top_selection="votes",
        vote_rounds=2,
        vote_ratio=0.1,
        vote_noise_multiplier=3.0,
        clip_norm=0.5,
        noise_multiplier=1.0,
        bits=20,
        local_lr=0.1,
        local_steps=1,
    )
    voting = scheme.at(2)
    assert (voting.noise_multiplier, scheme.noise_multiplier) == (3.0, 1.0)
    assert voting.clip.sensitivity(100) == math.sqrt(10)
    assert scheme.at(3) is scheme and voting.at(1) is voting
    assert Scheme.from_dict(scheme.to_dict()) == scheme
    assert scheme.codec.chooses and not scheme.codec.needs_public


def test_the_votes_of_a_scheme_without_noise_have_none() -> None:
    scheme = schemes.fl_top(ratio=0.2, top_selection="votes", local_lr=0.1, local_steps=1)
    assert not scheme.at(1).noise.private
    assert scheme.at(1).weighting == "uniform" and scheme.weighting == "data-size"


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"top_selection": "public", "vote_block": 2}, "--vote-block means nothing without votes"),
        ({"top_selection": "vote"}, "did you mean 'votes'"),
        ({"ratio": 1.0}, "nothing to vote on"),
        ({"vote_rounds": 0}, "vote_rounds must be"),
        ({"vote_ratio": 1.5}, "vote_ratio must be"),
        ({"vote_block": 0}, "vote_block must be"),
        ({"vote_noise_multiplier": -1.0}, "vote_noise_multiplier must be"),
    ],
)
def test_what_makes_no_sense_is_refused(options: dict[str, object], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        schemes.fl_top(**({"ratio": 0.2, "top_selection": "votes", "local_lr": 0.1, "local_steps": 1} | options))
