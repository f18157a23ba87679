"""What a node's policy allows and refuses."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from node_tools import OFFER, SCHEME, TRAIN, refusals, round_refusals
from offer_tools import CASES

from laconic import schemes
from laconic.errors import ConfigError
from laconic.federation.node.backup import back_up, restore
from laconic.federation.node.refusals import planned_epsilons
from laconic.federation.offer import Offer
from laconic.guard import limits
from laconic.guard.folder import NodeFolder
from laconic.guard.ledger import Price, Seen, composed
from laconic.guard.policy import Policy, read_policy
from laconic.guard.transcript import JOINED, UPLOADED
from laconic.privacy.accounting.budget import Budget


def test_what_keeps_within_the_limits_is_allowed() -> None:
    released, participant = planned_epsilons(OFFER.mechanism)
    assert released == participant  # everyone takes part in every round
    limits = {"max_epsilon": released, "max_participant_epsilon": participant, "max_delta": 1e-5}
    allowed = {"fingerprints": (SCHEME.fingerprint,), "servers": (OFFER.server.hex(),)}
    assert refusals(**limits, **allowed, min_cohort=5, max_participations=4) == ""
    assert refusals() == ""


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        ({"max_epsilon": 0.5}, "planned ε 1.998 is above max_epsilon 0.5"),
        ({"max_participant_epsilon": 0.5}, "against the server 1.998 is above max_participant_epsilon 0.5"),
        ({"max_delta": 1e-6}, "δ 1e-05 is above max_delta 1e-06"),
        ({"max_participations": 3}, "up to 4 participations, above max_participations 3"),
        ({"min_cohort": 6}, "sums of 5 honest nodes may be opened, fewer than min_cohort 6"),
        ({"fingerprints": ("ab",)}, "fl-std-dp .* is not among the fingerprints"),
        ({"servers": ("ab",)}, "server 0001.* is not among the servers"),
        ({"secure_aggregation": "signed", "identities": ("ab",)}, "not signed"),
        ({"min_colluders": 1}, "max_colluders 0 is below min_colluders 1"),
        ({"max_rounds": 3}, "4 rounds, more than max_rounds 3"),
        ({"max_nodes": 4}, "5 nodes, more than max_nodes 4"),
        ({"max_model_size": 20}, "21 weights, more than max_model_size 20"),
    ],
)
def test_every_limit_refuses(limits: dict[str, Any], reason: str) -> None:
    assert re.search(reason, refusals(**limits))


def test_all_reasons_are_given_at_once() -> None:
    text = refusals(max_epsilon=0.1, max_delta=1e-9, servers=("ab",))
    assert text.count(";") == 2


def test_a_promised_budget_counts() -> None:
    """A server that promises to stop at ε ≤ 1 plans no more than that."""
    promised = replace(OFFER, budget=Budget(delta=1e-5, epsilon=1.0), rounds=400)
    assert refusals(promised, max_epsilon=1.0) == ""
    assert "planned ε 1.000 is above max_epsilon 0.5" in refusals(promised, max_epsilon=0.5)


def test_a_scheme_without_noise_or_masks() -> None:
    plain = replace(OFFER, scheme=schemes.fl_std(**TRAIN), budget=None)
    assert "shows the server every node's code" in refusals(plain)
    assert refusals(plain, secure_aggregation="optional") == ""
    assert "∞ (no noise) is above max_epsilon 8" in refusals(plain, max_epsilon=8.0)


def against_round(policy: Policy, offer: Offer = OFFER, **now: int) -> str:
    """The last of so many uploads, one in each round before."""
    values = {"round": 1, "attempt": 0, "cohort": 5, "participations": 1} | now
    before = [(number, 0) for number in range(1, values["participations"])]
    uploads = [*before, (values["round"], values["attempt"])]
    return "; ".join(round_refusals(policy, offer, uploads=uploads, cohort=values["cohort"]))


def test_rounds_are_checked_one_by_one() -> None:
    assert against_round(Policy()) == ""
    assert "round 5 of a run that was offered with 4" in against_round(Policy(), round=5)
    assert "a sum of 1 honest nodes, fewer than min_cohort 2" in against_round(Policy(), cohort=1)
    slack = replace(OFFER, max_dropouts=2)
    assert "a sum of 3 honest nodes, fewer than min_cohort 4" in against_round(Policy(min_cohort=4), slack)
    assert "participation 3, above max_participations 2" in against_round(
        Policy(max_participations=2), participations=3
    )


def test_the_nodes_own_count_limits_what_it_gives() -> None:
    """Whatever the server says: a node that was asked too often stops."""
    accountant = OFFER.mechanism.accountant
    assert accountant is not None
    policy = Policy(max_delta=1e-5, max_participant_epsilon=accountant.participant_epsilon(2))
    assert against_round(policy, round=2, participations=2) == ""
    assert "against the server would be" in against_round(policy, round=3, participations=3)
    capped = replace(OFFER, budget=Budget(delta=1e-5, max_participations=1))
    assert "participation 2 of the offered 1" in against_round(Policy(), capped, participations=2)


def test_repeated_attempts_count_against_the_outsider() -> None:
    accountant = OFFER.mechanism.accountant
    assert accountant is not None
    policy = Policy(max_delta=1e-5, max_epsilon=accountant.released_epsilon(2))
    assert against_round(policy, round=2, participations=2) == ""
    assert "ε would be" in against_round(policy, round=2, attempt=3, participations=5)


def test_a_policy_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "policy.toml"
    path.write_text('max_epsilon = 1\nmax_delta = 1e-5\nidentities = ["AB"]\nsecure_aggregation = "signed"\n')
    assert read_policy(path) == Policy(max_epsilon=1, max_delta=1e-5, identities=("ab",), secure_aggregation="signed")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("max_epsilom = 1\n", "did you mean 'max_epsilon'"),
        ("max_epsilon = -1\n", "max_epsilon must be a positive number"),
        ("max_participations = 1.5\n", "whole number"),
        ('secure_aggregation = "yes"\n', "unknown secure_aggregation 'yes'"),
        ('servers = "ab"\n', "servers must be a list of texts"),
        ("allow_test_seed = 1\n", "true or false"),
        ("max_epsilon = 1\n", "max_epsilon needs max_delta"),
        ("lifetime_epsilon = 1\n", "lifetime_epsilon needs max_delta"),
        ('secure_aggregation = "signed"\n', "needs identities"),
        ('identities = ["AB", "ab"]\n', "names a node twice"),
        ("max_rounds = 0\n", "max_rounds must be a whole number that is 1 or more"),
        ("min_colluders = -1\n", "min_colluders must be a whole number that is 0 or more"),
        ("max_epsilon =\n", "not valid TOML"),
    ],
)
def test_mistakes_in_a_policy_are_named(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "policy.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=message):
        read_policy(path)
    with pytest.raises(ConfigError, match="cannot read the policy"):
        read_policy(tmp_path / "none.toml")


def test_an_offer_that_is_too_large_is_refused_before_anything_is_computed_with_it() -> None:
    """Four billion rounds would not fit into the memory of a node."""
    policy = Policy(max_delta=1e-5, max_participant_epsilon=1.0)
    endless = replace(OFFER.contract, rounds=2**32 - 2)
    assert limits.against_contract(policy, endless) == ["4,294,967,294 rounds, more than max_rounds 10,000"]


def test_kinds_of_rounds_are_priced_each_by_itself_whatever_they_are_called() -> None:
    main = OFFER.contract.releases[-1]
    dear = replace(main, last=2, multiplier=main.multiplier / 10)
    both = replace(OFFER.contract, releases=(dear, main))
    one, other = Price.of(both, dear), Price.of(both, main)
    assert sorted(limits.planned_prices(both), key=str) == sorted([one, one, other, other], key=str)


def test_rounds_in_which_only_other_nodes_had_a_patient_count_as_the_dearest_kind() -> None:
    """Asked in cheap rounds alone, a node knows nothing of the others but that there were some."""
    contract = CASES["patients of two nodes"]().contract
    main = contract.releases[-1]
    cheap = replace(main, every=4, multiplier=main.multiplier * 1e3, coins=0.1)
    both = replace(contract, releases=(cheap, main))
    assert limits.priced(both, [], (4, 0)).seen["patient"] == Seen(main.multiplier, main.price[1], 4)
    rows = [{"what": UPLOADED, "round": 3, "attempt": 0}]
    assert limits.priced(both, rows, (4, 0)).seen["patient"] == Seen(cheap.multiplier, cheap.price[1])


def test_noise_that_is_next_to_none_counts_as_none_and_ends_no_computation() -> None:
    main = OFFER.contract.releases[-1]
    price = Price.of(OFFER.contract, replace(main, multiplier=1e-200))
    assert composed([price], 1e-5) == math.inf
    assert composed([Price.of(OFFER.contract, replace(main, multiplier=1e-100))], 1e-5) > 1e100


def test_rounds_in_the_clear_go_forward_too() -> None:
    offer = CASES["steps by class"]()
    policy = Policy(secure_aggregation="optional")
    assert round_refusals(policy, offer, uploads=[(3, 1), (4, 0)], cohort=1) == []
    for again in ((2, 0), (3, 0), (3, 1)):
        told = round_refusals(policy, offer, uploads=[(3, 1), again], cohort=1)
        assert len(told) == 1 and "before, or to a later one" in told[0]


def test_what_a_restored_node_may_have_sent_since_is_priced_by_the_contract(tmp_path: Path) -> None:
    """Spare rounds may have been of the dearest kind. A cost that states fewer rounds changes nothing."""
    contract = replace(CASES["patients of two nodes"]().contract, rounds=6)
    main = contract.releases[-1]
    dear = replace(main, every=5, multiplier=main.multiplier / 10)
    contract = replace(contract, releases=(dear, main))
    folder = NodeFolder(tmp_path / "node")
    folder.identity()
    cost = {"rounds": 3, "noise_multiplier": 100.0, "delta": 0.0}
    folder.log.add(JOINED, contract.run, contract=contract.row(), cost=cost, spare_rounds=2)
    back_up(folder, tmp_path / "archive")
    assert restore(tmp_path / "archive", tmp_path / "restored") == 8
    prices = limits.charged(NodeFolder(tmp_path / "restored").log.rows())
    kinds = [main, main, main, main, dear, main, dear, dear]
    assert prices == [Price.of(contract, kind) for kind in kinds]
