"""Membership inference on small federations: who is there is found, who leaves no trace is not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from inference_tools import TRAIN, asked, private_schemes

import laconic
from conftest import assert_close
from laconic import schemes
from laconic.errors import ConfigError
from laconic.streams import Stream
from laconic_studies.inference.membership.game import Membership, MembershipGame, membership
from laconic_studies.inference.membership.roc import roc
from laconic_studies.inference.membership.trials import Pool, Trials, Victim, _changes, statistics
from laconic_studies.inference.standing import Standing

GAME = MembershipGame(targets=2, shadows=50, trials=50, draws=3)


def by_view(results: list[Membership]) -> dict[str, Membership]:
    return {result.view: result for result in results}


@pytest.mark.parametrize("build", [schemes.fl_std, schemes.fl_sign])
def test_without_noise_a_client_is_found_in_every_code_and_sum(build: object) -> None:
    """Whose batches are all its records, so that the adversary knows its code to the bit."""
    found = by_view(membership(asked(build(local_lr=0.5, local_steps=2)), game=GAME))  # type: ignore[operator]
    assert set(found) == {"single", "others", "model", "loss"}
    assert found["single"].roc.auc.value > 0.9 and found["others"].roc.auc.value > 0.75
    assert all(result.claim is None for result in found.values())


def test_a_record_is_found_in_its_clients_code() -> None:
    found = by_view(membership(asked(schemes.fl_std(**TRAIN)), level="record", game=replace(GAME, views=("single",))))
    assert found["single"].roc.auc.value > 0.7


def test_a_client_is_found_in_whole_runs() -> None:
    """Whose batches are all its records, so that the adversary knows its code to the bit."""
    game = replace(GAME, targets=1, shadows=8, trials=8, rounds=2, views=("single", "loss"))
    found = by_view(membership(asked(schemes.fl_std(local_lr=0.5, local_steps=2)), level="run", game=game))
    assert found["single"].roc.auc.value == 1 and 0 <= found["loss"].roc.auc.value <= 1


def test_codes_that_are_decoded_together_give_the_weights_of_the_server() -> None:
    """With noise and without, by the adjoint; a solver stops for all of them at once."""
    noise = {"clip_norm": 0.01, "noise_multiplier": 1.0}
    for scheme in (schemes.fl_freq(ratio=0.5, **TRAIN), schemes.fl_freq_dp(ratio=0.5, **noise, **TRAIN)):
        standing = Standing.after(asked(scheme), 0)
        codes = standing.bounded(None, np.arange(12)).reshape(2, 6, -1)
        messages = standing.messages(codes.flatten(0, 1), Stream(1), 6).reshape(codes.shape)
        sizes, moment = torch.full((2, 6), 5), standing.moment(6)
        together = _changes(standing, moment, messages, sizes, Stream(2))
        one_by_one = torch.stack([moment.model(messages[i], sizes[i], Stream(2)) for i in range(2)])
        assert_close(together, one_by_one)


def test_a_client_that_sends_nothing_leaves_no_trace() -> None:
    """Six shares of noise or five: the sum has the same noise. False alarms: 5·10⁻⁴, beyond 3.5 standard deviations."""
    standing = Standing.after(asked(private_schemes(1.0)["fl-std-dp"]), 0)
    pool = Pool.of(standing, 2, 30)
    size = pool.codes.shape[-1]
    victim = Victim(expected=torch.ones(size), own=None, records=standing.records(0), client=0)
    direction = {"others": torch.ones(size) / size**0.5}
    seen = []
    for member in (True, False):
        codes = torch.zeros(1500, size) if member else None
        draws = np.zeros(1500, dtype=np.int64)
        trials = Trials(victim=victim, codes=codes, others=5, draws=draws, size=5, name=("test", int(member)))
        seen.append(statistics(pool, trials, ("others",), direction)["others"])
    area = roc(*seen, calibration=seen[1]).auc
    assert abs(area.value - 0.5) < 3.5 * (area.high - area.low) / (2 * 1.96)


def test_the_claim_is_the_accountants_and_none_is_made_for_single_codes() -> None:
    experiment = asked(private_schemes(1.5)["fl-top-dp"])
    game = MembershipGame(targets=1, shadows=5, trials=5, draws=1, views=("single", "others"))
    found = by_view(membership(experiment, game=game))
    claim = found["others"].claim
    assert claim is not None and found["single"].claim is None and experiment.accountant is not None
    assert claim.epsilon == experiment.accountant.participant_epsilon(1)
    assert claim.mu == pytest.approx(1 / 1.5, rel=0.01)
    of_record = by_view(membership(experiment, level="record", game=game))["others"].claim
    assert of_record is not None and of_record.mu == pytest.approx(2 * claim.mu)
    row = found["others"].row()
    assert row["bound_at_1%"] >= row["gaussian_bound_at_1%"] > 0.01 and row["epsilon"] == claim.epsilon


def test_the_same_seed_gives_the_same_figures() -> None:
    game = MembershipGame(targets=1, shadows=4, trials=4, draws=1, after=1, views=("others", "loss"))
    experiment = asked(private_schemes(1.0)["fl-sign-dp"])
    first, second = ([result.row() for result in membership(experiment, game=game)] for _ in range(2))
    assert first == second


def test_what_cannot_be_asked_is_refused_in_a_line() -> None:
    plain = asked(schemes.fl_std(**TRAIN))
    cases = [
        (lambda: membership(plain, level="clients"), "unknown level 'clients'"),
        (lambda: MembershipGame(views=("sums",)), "unknown view 'sums'"),
        (lambda: MembershipGame(trials=1), "2 or more"),
        (lambda: MembershipGame(after=-1), "--after -1"),
        (lambda: MembershipGame(targets=0), "targets"),
        (lambda: membership(asked(plain.scheme, sampler=laconic.FixedSize(cohort_size=1))), "cohort of one"),
        (lambda: membership(asked(plain.scheme, sampler=laconic.Poisson(sampling_rate=1.0))), "leave none"),
        (lambda: membership(asked(schemes.centralized(**TRAIN))), "no clients to infer from"),
    ]
    for call, text in cases:
        with pytest.raises(ConfigError, match=text) as refused:
            call()
        assert "\n" not in str(refused.value)
