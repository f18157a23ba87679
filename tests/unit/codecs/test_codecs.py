"""Signs and subsets."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from laconic.codecs.base import Sign
from laconic.codecs.subset import FixedRandomSubset, NewRandomSubset, TopSubset
from laconic.errors import ConfigError
from laconic.plan import RoundPlan
from laconic.server.rules import MajorityVote
from laconic.streams import Stream

PLAN = RoundPlan(
    round=1,
    attempt=0,
    cohort=np.arange(3),
    planned_cohort=3.0,
    run_seed=5,
    round_seed=6,
    fingerprint="",
)
LATER = dataclasses.replace(PLAN, round=2, round_seed=7)


def test_signs_and_a_random_sign_for_zero() -> None:
    update = torch.zeros(2, 10_000)
    update[:, 0], update[:, 1], update[:, 2] = 3.0, -1e-30, float("nan")
    signs = Sign().encode(update, PLAN, [Stream(1), Stream(2)])
    assert set(signs.unique().tolist()) == {-1.0, 1.0}
    assert signs[:, 0].tolist() == [1, 1]
    assert signs[:, 1].tolist() == [-1, -1]
    assert abs(float(signs[0].mean())) < 0.05
    assert abs(float((signs[0] * signs[1]).mean())) < 0.05


def test_the_majority_decides_and_a_tie_is_tossed() -> None:
    rule = MajorityVote(sign_step=0.01)
    votes = torch.tensor([0.2, -0.5, 1.0])
    change, state = rule.step(votes, {}, Sign(), 3, PLAN)
    assert torch.allclose(change, torch.tensor([0.01, -0.01, 0.01]))
    assert state == {}
    tie, _ = rule.step(torch.zeros(5000), {}, Sign(), 5000, PLAN)
    assert torch.all(tie.abs() == 0.01)
    assert abs(float(tie.mean())) < 0.001


@given(st.integers(1, 200), st.floats(0.001, 1))
def test_a_subset_and_back(size: int, ratio: float) -> None:
    for codec in (
        NewRandomSubset(ratio=ratio, train_only_kept=True),
        FixedRandomSubset(ratio=ratio, train_only_kept=True),
    ):
        kept = codec.kept(size, PLAN, torch.device("cpu"))
        assert len(set(kept.tolist())) == codec.code_size(size) == min(size, int(np.ceil(ratio * size)))
        update = torch.arange(1.0, size + 1)[None]
        code = codec.encode(update, PLAN, [])[0]
        back = codec.decode(code, size, PLAN)
        assert torch.equal(back[kept], update[0, kept])
        assert int((back != 0).sum()) == len(kept)
        assert torch.equal(codec.support(size, PLAN), kept)


def test_new_and_fixed_subsets() -> None:
    new = NewRandomSubset(ratio=0.1, train_only_kept=False)
    fixed = FixedRandomSubset(ratio=0.1, train_only_kept=False)
    cpu = torch.device("cpu")
    assert not torch.equal(new.kept(500, PLAN, cpu), new.kept(500, LATER, cpu))
    assert torch.equal(fixed.kept(500, PLAN, cpu), fixed.kept(500, LATER, cpu))
    assert (new.downlink_size(500), fixed.downlink_size(500)) == (500, 50)
    assert new.support(500, PLAN) is None


def test_the_top_weights_by_importance() -> None:
    codec = TopSubset(ratio=0.4, train_only_kept=True, init_steps=3)
    seen = []

    def importance(steps: int) -> torch.Tensor:
        seen.append(steps)
        return torch.tensor([0.1, 5.0, 0.0, 3.0, 0.2])

    shared = codec.shared(5, 0, importance)
    assert shared["kept"].tolist() == [1, 3]
    assert seen == [3]
    plan = dataclasses.replace(PLAN, shared=shared)
    assert codec.encode(torch.arange(5.0)[None], plan, []).tolist() == [[1.0, 3.0]]


def test_the_papers_sizes_and_bad_ratios() -> None:
    assert TopSubset(ratio=0.005, train_only_kept=True, init_steps=5).code_size(1_663_370) == 8317
    for ratio in (0, -0.1, 1.5, float("nan")):
        with pytest.raises(ConfigError, match="ratio must be above 0"):
            NewRandomSubset(ratio=ratio, train_only_kept=True)
