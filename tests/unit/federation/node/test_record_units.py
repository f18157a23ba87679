"""Two units of privacy at a node: its data as a whole, and one record. Neither is mistaken for the other."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from node_tools import OFFER, SERVER, Small, make_offer, refusals, round_refusals

from laconic import schemes
from laconic.errors import ConfigError
from laconic.federation.node import refusals as node_refusals
from laconic.federation.node import training
from laconic.federation.node.lifetime import Cost, Spent, accountant_of, spent
from laconic.federation.offer import Offer, sign_offer
from laconic.figures import at_most
from laconic.guard.folder import NodeFolder
from laconic.guard.ledger import Price, composed
from laconic.guard.policy import Policy
from laconic.privacy.accounting.budget import Budget
from laconic.privacy.accounting.releases import CLIENT, RECORD
from laconic.privacy.accounting.sampling import Poisson
from laconic.privacy.accounting.tight import gaussian_epsilon

OPTIONS: dict[str, Any] = {
    "clip_norm": 1.0,
    "noise_multiplier": 2.0,
    "record_rate": 0.2,
    "batch_size": 4,
    "balance": "none",
    "noise": "integer",
    "local_lr": 0.1,
}


def records_offer(**changes: Any) -> Offer:
    """An offer of a scheme that protects records, in the clear."""
    return replace(OFFER, scheme=schemes.fl_std_record_dp(**OPTIONS | changes))


def allowed(**limits: Any) -> dict[str, Any]:
    return {"secure_aggregation": "optional", "max_records": 1000} | limits


@pytest.mark.parametrize("limit", ["max_epsilon", "max_participant_epsilon"])
def test_no_epsilon_of_records_satisfies_a_limit_on_the_whole(limit: str) -> None:
    """A server offers ε = 0.1 for a record to a node whose policy says 100 for its whole data."""
    offer = records_offer(noise_multiplier=100.0)
    assert re.search(
        f"protects single records, and has no ε .* as a whole, which {limit} would limit",
        refusals(offer, **allowed(**{limit: 100.0})),
    )
    assert refusals(offer, **allowed(**{limit.replace("max", "max_record"): 100.0})) == ""


def test_the_node_computes_the_epsilon_of_its_records_from_the_offer() -> None:
    """Rate and steps are the server's choice, so they are what the node counts with."""
    assert refusals(records_offer(), **allowed(max_record_participant_epsilon=3.0)) == ""
    for change in ({"record_rate": 1.0}, {"local_steps": 30}):
        offer = records_offer(**change)
        assert "planned ε of a record against the server" in refusals(
            offer, **allowed(max_record_participant_epsilon=3.0)
        )
        accountant = offer.mechanism.accountant
        assert accountant is not None and accountant.participant_epsilon(4) > 3.0


def test_a_limit_on_records_holds_for_schemes_that_protect_the_whole() -> None:
    """One record more or less can turn a code around: 2·S, so half the noise multiplier, and nothing is amplified."""
    accountant = OFFER.mechanism.accountant
    assert accountant is not None
    whole = accountant.participant_epsilon(4)
    of_record = gaussian_epsilon(accountant.main.multiplier / 2 / 2, accountant.delta - accountant.main.delta_slack)
    assert of_record > 2 * whole
    told = refusals(max_record_epsilon=whole)
    assert f"planned ε of a record {at_most(of_record)} is above max_record_epsilon" in told
    assert refusals(max_record_epsilon=of_record, max_record_participant_epsilon=of_record) == ""
    policy = Policy(max_delta=1e-5, max_record_epsilon=0.9 * of_record)
    before = [(1, 0), (2, 0), (3, 0)]
    assert round_refusals(policy, OFFER, uploads=before, cohort=5) == []
    told = "; ".join(round_refusals(policy, OFFER, uploads=[*before, (4, 0)], cohort=5))
    assert f"ε of a record would be {at_most(of_record)}" in told


def test_rounds_of_records_are_counted_by_the_node_itself() -> None:
    offer = records_offer()
    two = composed([Price.of(offer.contract, offer.contract.release(1))] * 2, 1e-5, RECORD)
    policy = Policy(**allowed(max_delta=1e-5, max_record_participant_epsilon=two))
    twice = [(1, 0), (1, 1)]
    assert round_refusals(policy, offer, uploads=twice, cohort=1) == []
    told = round_refusals(policy, offer, uploads=[*twice, (2, 0)], cohort=1)
    assert "ε of a record against the server would be" in told[0]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"noise": "continuous"}, "add --noise integer"),
        ({"balance": "as-published"}, "no proof covers them: use --balance per-class or --balance none"),
        ({"batch_size": 10**400}, "beyond all reason"),
        ({"noise_multiplier": 1e18}, "beyond all reason"),
    ],
)
def test_what_separate_machines_cannot_promise_is_no_offer(change: dict[str, Any], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        records_offer(**change)


def cost(offer: Offer, uploads: int) -> Cost:
    return Cost(**Cost.planned(offer).row()).after([(number, 0) for number in range(1, uploads + 1)])


def test_over_a_lifetime_each_unit_is_composed_by_itself() -> None:
    sampled = replace(records_offer(), sampler=Poisson(sampling_rate=0.5))
    accountant = accountant_of(sampled, [])
    assert accountant is not None
    alone = spent([cost(sampled, 3)], 1e-5, RECORD)
    assert alone.participant_epsilon == pytest.approx(accountant.participant_epsilon(3), rel=1e-9)
    assert alone.epsilon == pytest.approx(min(alone.participant_epsilon, accountant.released_epsilon(4)), rel=1e-9)
    assert spent([cost(sampled, 3)], 1e-5, CLIENT).epsilon == math.inf
    other = records_offer(noise_multiplier=3.0)
    both = spent([cost(sampled, 3), cost(other, 2), cost(OFFER, 1)], 1e-5, RECORD)
    parts = [spent([one], 1e-5, RECORD) for one in (cost(sampled, 3), cost(other, 2), cost(OFFER, 1))]
    assert max(part.participant_epsilon for part in parts) < both.participant_epsilon
    assert both.participant_epsilon < sum(part.participant_epsilon for part in parts)
    assert spent([cost(OFFER, 1)], 1e-5, CLIENT) == spent([cost(OFFER, 1)], 1e-5)


@pytest.mark.parametrize("noise_multiplier", [1e-160, 1e-153])
def test_next_to_no_noise_does_not_count_as_nothing(noise_multiplier: float) -> None:
    """Where divergences are not numbers any more: beside another run they add up to no ε that any limit allows."""
    bare = replace(cost(records_offer(), 1), noise_multiplier=noise_multiplier)
    both = spent([cost(records_offer(noise_multiplier=3.0), 2), bare], 1e-5, RECORD)
    assert both.participant_epsilon > 1e300


def test_a_figure_that_is_not_a_number_is_above_every_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_refusals, "spent", lambda *_: Spent(1, math.nan, math.nan))
    policy = Policy(max_delta=1e-5, lifetime_record_epsilon=50.0)
    told = node_refusals.against_lifetime(policy, {}, ("ab", ""), cost(records_offer(), 1))
    assert "above lifetime_record_epsilon 50" in told[0]


@pytest.mark.parametrize("offer", [OFFER, records_offer()], ids=["client", "record"])
def test_spare_rounds_are_in_what_the_noise_sampler_costs(offer: Offer) -> None:
    """A server may offer one round and a thousand spare ones: all of them draw noise."""
    honest, bent = replace(offer, rounds=1001), replace(offer, rounds=1, spare_rounds=1000)
    assert bent.attempts == honest.attempts
    assert bent.mechanism.delta_slack() >= honest.mechanism.delta_slack() / 2 * 0.999
    assert Cost.planned(bent).delta == bent.mechanism.delta_slack()


def test_cohorts_that_show_themselves_are_counted_over_spare_rounds_too() -> None:
    sampled = replace(OFFER, num_clients=100, sampler=Poisson(sampling_rate=0.5), max_dropouts=15, rounds=1)
    more = replace(sampled, spare_rounds=10**6)
    assert Cost.planned(sampled).amplified
    accountant = more.mechanism.accountant
    assert accountant is not None and not accountant.amplified(more.attempts)
    assert not Cost.planned(more).amplified


def test_a_joined_run_of_records_ends_what_is_promised_of_the_whole() -> None:
    policy = Policy(max_delta=1e-5, lifetime_epsilon=50.0, lifetime_record_epsilon=50.0)
    told = node_refusals.against_lifetime(policy, {}, ("ab", ""), cost(records_offer(), 1))
    assert len(told) == 1 and "ε would be ∞ (uploads without noise, or for less than that), above lifetime" in told[0]


def test_a_delta_is_judged_by_the_records_that_the_owner_declares() -> None:
    """No record is counted for it, so a server that tries out one δ after another finds nothing."""
    offer = replace(records_offer(), budget=Budget(delta=0.15))
    assert "one over the 7 records that the policy declares or more" in refusals(offer, **allowed(max_records=7))
    assert refusals(offer, **allowed(max_records=6)) == ""


def test_a_node_with_more_records_than_declared_sends_noise_alone(tmp_path: Path) -> None:
    """The nodes have 8, 7 and 6 records. None of them refuses, and the owners of two are told."""
    policy = Policy(**allowed(max_records=6))
    small = Small(tmp_path, policy, scheme=schemes.fl_std_record_dp(**OPTIONS))
    clients = small.join()
    sent = clients.collect(small.plan(clients), clients.model.initial)
    assert sent.messages == 3
    folders = [NodeFolder(tmp_path / f"node-{number}") for number in range(3)]
    assert [folder.log.rows()[-1]["unit"] for folder in folders] == [RECORD] * 3
    assert "this node has 8 records, and its policy declares max_records 6" in (folders[0].bad_records or "")
    assert folders[2].bad_records is None


def test_an_offer_of_records_is_read_as_it_was_signed() -> None:
    offer = make_offer(scheme=schemes.fl_sign_record_dp(**OPTIONS))
    again = Offer.from_bytes(offer.to_bytes())
    assert again == offer and again.scheme.fingerprint == offer.scheme.fingerprint
    assert sign_offer(again, 0, SERVER)


def test_one_attempt_is_answered_once_in_the_clear_as_well(tmp_path: Path) -> None:
    """Asked again with other weights, the node's process would draw the same records under new noise: the sampling
    that the ε counts with would not be new."""
    small = Small(tmp_path, Policy(**allowed()), scheme=schemes.fl_std_record_dp(**OPTIONS))
    clients = small.join()
    plan = small.plan(clients)
    asked = clients.requests(plan, clients.model.initial)[0]
    first = small.node(0).answer("upload", asked)
    assert small.node(0).answer("upload", asked) == first
    other = asked | {"weights": clients._weights_message(plan, clients.model.initial + 1)}
    assert "has uploaded to round 1, attempt 0, before" in str(small.node(0).answer("upload", other)["refused"])
    assert NodeFolder(tmp_path / "node-0").log.participations(small.offer.run) == 1


def test_a_node_that_sends_in_the_clear_counts_as_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Signs are bounded, but a vote is not if a node says how often its own counts."""
    small = Small(tmp_path, Policy(**allowed()), scheme=schemes.fl_sign_record_dp(**OPTIONS))
    clients = small.join()
    monkeypatch.setattr(training, "client_weight", lambda scheme, num_records: 1e9 if num_records == 8 else 1.0)
    sent = clients.collect(small.plan(clients), clients.model.initial)
    assert sent.messages == 2 and sent.weight == 2.0
    assert float(sent.total.abs().max()) <= 2.0
