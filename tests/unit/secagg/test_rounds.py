"""With enough members alive and enough uploads a round recovers, whoever else is gone; otherwise nothing is opened."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st
from secagg_tools import Federation, make_plan, make_terms, openable, started

from laconic.secagg.crypto.keys import ANNOUNCEMENT_BYTES, ENTRY_BYTES
from laconic.secagg.foretell import Vanishes, foretell
from laconic.secagg.session import InProcessFederation
from laconic.secagg.shares import RoundAborted
from laconic.secagg.terms import NONCE_BYTES, SumPlan


@st.composite
def situations(draw: st.DrawFn) -> tuple[SumPlan, dict[int, Vanishes], list[int], list[int]]:
    """A plan, who vanishes when, and the orders in which uploads and answers arrive."""
    ring = draw(st.booleans())
    size = draw(st.integers(9, 24) if ring else st.integers(1, 9))
    cohort = sorted(draw(st.sets(st.integers(0, 2**32 - 2), min_size=size, max_size=size)))
    colluders = draw(st.integers(0, max(0, (size - 1) // 3)))
    terms = make_terms(
        consistency=draw(st.sampled_from(["plain", "signed"])),
        max_colluders=colluders,
        max_dropouts=draw(st.integers(0, max(0, size - 1 - colluders))),
        small_cohort=2 if ring else 32,
        security_bits=draw(st.integers(1, 12)),
        failure_bits=draw(st.integers(1, 8)),
        beacon=draw(st.binary(min_size=32, max_size=32)),
    )
    plan = make_plan(terms, cohort, bits=draw(st.integers(8, 64)), size=draw(st.integers(1, 20)))
    rate = draw(st.sampled_from([0, 1, 2, 5]))
    vanishing = {
        client: stage
        for client in cohort
        if draw(st.integers(0, 9)) < rate and (stage := draw(st.sampled_from(Vanishes)))
    }
    return plan, vanishing, draw(st.permutations(cohort)), draw(st.permutations(plan.committee))


@settings(max_examples=100)
@given(situations())
def test_a_round_recovers_or_opens_nothing(
    situation: tuple[SumPlan, dict[int, Vanishes], list[int], list[int]],
) -> None:
    plan, vanishing, uploaders, members = situation
    federation = Federation(plan.terms, plan.cohort)
    round = federation.begin(plan)
    plan = round.plan

    def there(client: int, stage: Vanishes) -> bool:
        return vanishing.get(client, stage + 1) > stage

    survivors = sorted(client for client in plan.cohort if there(client, Vanishes.BEFORE_UPLOAD))
    consenting = [m for m in members if there(m, Vanishes.BEFORE_CONSENT)]
    answering = [m for m in members if there(m, Vanishes.DURING_UNMASK)]
    recovers = (
        len(survivors) >= plan.min_cohort
        and plan.connected(survivors)
        and len(answering) >= plan.threshold
        and (not plan.terms.signed or len(consenting) >= plan.threshold)
    )
    uploads, reveals = {}, {}
    try:
        for client in uploaders:
            message = round.plan_for(client)
            if there(client, Vanishes.BEFORE_UPLOAD):
                federation.clients[client].begin(message)
                uploads[client] = federation.clients[client].upload(federation.vector(client, plan))
                round.accept_upload(uploads[client])
        round.close_uploads()
        if plan.terms.signed:
            request = round.survivors_for_consent()
            for member in consenting:
                round.accept_consent(federation.clients[member].consent(request))
        request = round.unmask_request()
        for member in members:
            if there(member, Vanishes.BEFORE_UNMASK):
                reveal = federation.clients[member].reveal(request)
                if there(member, Vanishes.DURING_UNMASK):
                    reveals[member] = reveal
                    round.accept_reveal(reveal)
        opened = round.open()
    except RoundAborted as aborted:
        event("aborted")
        assert not recovers
        assert foretell(plan, vanishing) == ((), str(aborted))
        assert not openable(plan, uploads.values(), [(tuple(survivors), data) for data in reveals.values()])
        return
    event("recovered with dropouts" if vanishing else "recovered, all there")
    assert recovers
    assert opened.survivors == tuple(survivors)
    assert foretell(plan, vanishing) == (opened.survivors, "")
    assert opened.total.tolist() == federation.plain_sum(survivors, plan)


@pytest.mark.parametrize("consistency", ["plain", "signed"])
def test_a_large_cohort_with_its_real_sizes(consistency: str) -> None:
    terms = make_terms(consistency=consistency, max_dropouts=12)
    federation = InProcessFederation(terms)
    for round in (1, 2):
        plan = make_plan(terms, range(0, 180, 3), round=round, bits=20, size=300)
        assert plan.degree < 59
        assert len(plan.committee) < 60
        rng = np.random.default_rng(round)
        vectors = {client: rng.integers(-1000, 1000, plan.size) for client in plan.cohort}
        gone = dict(
            zip(rng.permutation(plan.cohort).tolist(), [Vanishes.BEFORE_UPLOAD] * 6 + [*Vanishes], strict=False)
        )
        outcome = federation.run(plan, vectors, gone)
        present = [c for c in plan.cohort if gone.get(c) != Vanishes.BEFORE_UPLOAD]
        assert outcome.survivors == tuple(present)
        assert outcome.total is not None
        assert outcome.total.tolist() == [s % 2**20 for s in sum(vectors[c] for c in present).tolist()]
        traffic = outcome.traffic
        assert traffic.payload_up == len(present) * plan.ring.packed_size(plan.size)
        assert traffic.keys_up == ((ANNOUNCEMENT_BYTES + NONCE_BYTES) * 60 if round == 1 else 0)
        assert min(traffic.keys_down, traffic.shares_up, traffic.unmask_up, traffic.unmask_down) > 0


def test_keys_are_passed_on_once() -> None:
    terms = make_terms()
    federation = InProcessFederation(terms)
    vectors = {client: np.arange(6) for client in range(8)}
    first = federation.run(make_plan(terms, range(8), round=1), vectors).traffic
    second = federation.run(make_plan(terms, range(8), round=2), vectors).traffic
    assert first.keys_down == 8 * 7 * ENTRY_BYTES
    assert (second.keys_up, second.keys_down) == (0, 0)


def test_a_restarted_client_announces_itself_again_and_is_told_all_keys() -> None:
    federation, round = started(range(4))
    federation.upload_all(round)
    announcement = federation.clients[2].announce()
    assert federation.server.register(announcement) == 2
    later = federation.begin(make_plan(federation.terms, range(4), round=2))
    assert len(later.plan_for(2)) - len(later.plan_for(1)) == 3 * ENTRY_BYTES


def test_the_session_says_why_a_round_was_aborted() -> None:
    terms = make_terms(max_dropouts=1)
    federation = InProcessFederation(terms)
    vectors = {client: np.arange(6) for client in range(5)}

    def reason(round: int, gone: dict[int, Vanishes], **options: Any) -> str:
        outcome = federation.run(make_plan(terms, range(5), round=round, **options), vectors, gone)
        assert outcome.total is None
        assert outcome.survivors == ()
        return outcome.reason

    two_never_came = dict.fromkeys((1, 2), Vanishes.BEFORE_UPLOAD)
    assert reason(1, two_never_came) == "3 uploads, but a sum of fewer than 4 is not opened"
    two_left = dict.fromkeys((1, 2), Vanishes.DURING_UNMASK)
    assert reason(2, two_left) == "3 members answered, but it takes 4 to open the sum"


def test_a_member_that_came_too_late_to_upload_still_helps_to_unmask() -> None:
    federation, round = started(range(4), max_dropouts=1)
    federation.upload_all(round, [0, 1, 3])
    round.close_uploads()
    federation.reveal_all(round, [2, 1, 3])
    opened = round.open()
    assert opened.survivors == (0, 1, 3)
    assert opened.total.tolist() == federation.plain_sum([0, 1, 3], round.plan)


def test_a_cohort_of_one_opens_its_own_vector() -> None:
    federation, round = started([7])
    federation.upload_all(round)
    round.close_uploads()
    federation.reveal_all(round)
    assert round.open().total.tolist() == federation.plain_sum([7], round.plan)


def test_the_hash_of_a_plan_depends_on_everything_in_it() -> None:
    terms: list[dict[str, Any]] = [
        {"max_dropouts": 1},
        {"run": b"s" * 16},
        {"consistency": "signed"},
        {"beacon": b"c" * 32},
    ]
    plans: list[dict[str, Any]] = [{"round": 2}, {"attempt": 1}, {"bits": 14}, {"size": 7}, {"cohort": range(6)}]
    hashes = {make_plan(make_terms(), **options).hash for options in [{}, *plans]}
    hashes |= {make_plan(make_terms(**options)).hash for options in terms}
    assert len(hashes) == 1 + len(plans) + len(terms)
