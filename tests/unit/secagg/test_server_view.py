"""What the server holds after a round, an abort, a replay, a lie: never enough to bare a client or a smaller sum."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from secagg_tools import (
    Federation,
    identity_of,
    make_plan,
    make_terms,
    openable,
    pair_places,
    started,
)

from laconic.errors import PrivacyError, WireError
from laconic.secagg import messages
from laconic.secagg.client import check_survivors
from laconic.secagg.crypto.masks import add_masks
from laconic.secagg.terms import SumPlan


def unmasked(plan: SumPlan, uploads: dict[int, bytes], seeds: dict[tuple[int, int], bytes]) -> list[int]:
    """The sum of some uploads less the masks of all the seeds, with the sign that the dealer gave each of them."""
    total = plan.ring.zeros(plan.size)
    for data in uploads.values():
        total += plan.ring.unpack(messages.read_upload(data, plan)[1], plan.size)
    for (dealer, place), seed in seeds.items():
        if dealer in uploads:
            added = place == 0 or plan.neighbours(dealer)[place - 1] > dealer
            add_masks(total, **{"minus" if added else "plus": [seed]})  # type: ignore[arg-type]
    return plan.ring.reduced(total).tolist()


@settings(max_examples=40)
@given(st.data())
def test_never_a_self_mask_and_a_pair_mask_of_two_survivors(data: st.DataObject) -> None:
    """Even if those whom the server took for gone have uploaded after all, and it kept their uploads."""
    ring = data.draw(st.booleans())
    size = data.draw(st.integers(9, 16) if ring else st.integers(2, 8))
    dropouts = data.draw(st.integers(0, size // 2))
    consistency = data.draw(st.sampled_from(["plain", "signed"]))
    bounds = {"security_bits": 6, "failure_bits": 4} if ring else {}
    federation, round = started(
        range(size), max_dropouts=dropouts, consistency=consistency, small_cohort=2 if ring else 32, **bounds
    )
    plan = round.plan
    gone = data.draw(st.sets(st.sampled_from(plan.cohort), max_size=dropouts))
    survivors = tuple(sorted(set(plan.cohort) - gone))
    if not plan.connected(survivors):
        return
    uploads = federation.uploads(round)
    for client in survivors:
        round.accept_upload(uploads[client])
    round.close_uploads()
    reveals = federation.reveal_all(round)
    assert round.open().total.tolist() == federation.plain_sum(survivors, plan)

    held = openable(plan, uploads.values(), [(survivors, reveal) for reveal in reveals.values()])
    for client in plan.cohort:
        assert ((client, 0) in held) == (client in survivors)
        for other, place in pair_places(plan, client).items():
            opened = (client, place) in held or (other, pair_places(plan, other)[client]) in held
            assert opened == ((client in survivors) != (other in survivors))


def test_fewer_members_than_the_threshold_open_nothing() -> None:
    federation, round = started(range(7), max_dropouts=2)
    plan = round.plan
    assert plan.threshold == 5
    uploads = federation.upload_all(round, [0, 1, 2, 4, 5])
    round.close_uploads()
    request = round.unmask_request()
    reveals = {member: federation.clients[member].reveal(request) for member in plan.committee}
    for count, expected in ((4, 0), (5, 5 + 5 * 2)):
        some = list(reveals.values())[:count]
        assert len(openable(plan, uploads.values(), [((0, 1, 2, 4, 5), data) for data in some])) == expected


# Replays


def test_an_attempt_cannot_be_repeated() -> None:
    federation, round = started(range(4), max_dropouts=1)
    plan = round.plan
    plans = {client: round.plan_for(client) for client in plan.cohort}
    federation.upload_all(round)
    federation.clients[0].begin(plans[0])
    with pytest.raises(PrivacyError, match="round 1, attempt 0: this client is past it"):
        federation.clients[0].upload(federation.vector(0, plan))
    other_cohort = messages.write_plan(make_plan(plan.terms, range(3)), [])
    with pytest.raises(PrivacyError, match="begun it under another plan"):
        federation.clients[0].begin(other_cohort)
    round.close_uploads()
    request = round.unmask_request()
    smaller = messages.write_unmask(plan, (0, 1, 2), {})
    federation.clients[1].reveal(request)
    for repeated in (request, smaller):
        with pytest.raises(WireError, match="no round under way"):
            federation.clients[1].reveal(repeated)
    for repeated in (plans[1], other_cohort):
        with pytest.raises(PrivacyError, match="past it"):
            federation.clients[1].begin(repeated)


def test_a_client_that_has_revealed_does_not_upload_late() -> None:
    federation, round = started(range(4), max_dropouts=1)
    federation.upload_all(round, [0, 1, 3])
    round.close_uploads()
    federation.clients[2].reveal(round.unmask_request())
    with pytest.raises(WireError, match="no round under way"):
        federation.clients[2].upload(np.zeros(6, dtype=np.int64))


def two_attempts(federation: Federation, victim: int) -> tuple[SumPlan, bytes, dict[tuple[int, int], bytes]]:
    """The victim survives attempt 0 and is taken for gone in attempt 1: what the server makes of both together.

    Returned are plan and upload of attempt 0, with its self-mask seed and the pair seeds of attempt 1.
    """
    plans, uploads, held = [], [], []
    for attempt, gone in ((0, []), (1, [victim])):
        round = federation.begin(make_plan(federation.terms, range(5), attempt=attempt))
        plan = round.plan
        sent = federation.uploads(round)
        survivors = tuple(client for client in plan.cohort if client not in gone)
        for client in survivors:
            round.accept_upload(sent[client])
        round.close_uploads()
        reveals = federation.reveal_all(round)
        plans.append(plan)
        uploads.append(sent[victim])
        held.append(openable(plan, sent.values(), [(survivors, data) for data in reveals.values()]))
    seeds = {(victim, 0): held[0][victim, 0]}
    for other, place in pair_places(plans[0], victim).items():
        seeds[victim, place] = held[1][other, pair_places(plans[1], other)[victim]]
    return plans[0], uploads[0], seeds


def test_two_attempts_at_a_round_do_not_open_a_client() -> None:
    federation = Federation(make_terms(max_dropouts=1), range(5))
    plan, upload, seeds = two_attempts(federation, victim=2)
    assert len(seeds) == 5
    assert unmasked(plan, {2: upload}, seeds) != federation.plain_sum([2], plan)


def test_without_the_attempt_in_the_keys_they_would(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sabotaged twin of the test above."""
    monkeypatch.setattr(SumPlan, "hash", b"one for all".ljust(32))
    federation = Federation(make_terms(max_dropouts=1), range(5))
    plan, upload, seeds = two_attempts(federation, victim=2)
    assert unmasked(plan, {2: upload}, seeds) == federation.plain_sum([2], plan)


# A server that lies about the survivors


def split_sets() -> dict[int, tuple[int, ...]]:
    """For six members: all are told that 0, 1, 2 survived, and each that two of 3, 4, 5 did not."""
    pairs = list(combinations((3, 4, 5), 2))
    return {member: tuple(c for c in range(6) if c not in pairs[member % 3]) for member in range(6)}


def test_plain_split_survivor_sets_open_a_smaller_sum() -> None:
    """What "honest-but-curious server" leaves out: no member is asked for less than `min_cohort` = 4 survivors, yet
    4 = t of 6 members leave out each of 3, 4 and 5, and the bare sum of three clients appears."""
    federation, round = started(range(6), max_dropouts=2)
    plan = round.plan
    assert (plan.threshold, plan.min_cohort) == (4, 4)
    uploads = federation.upload_all(round)
    lies = split_sets()
    reveals = [
        (lies[m], federation.clients[m].reveal(messages.write_unmask(plan, lies[m], {}))) for m in plan.committee
    ]
    few = {client: uploads[client] for client in (0, 1, 2)}
    assert unmasked(plan, few, openable(plan, uploads.values(), reveals)) == federation.plain_sum([0, 1, 2], plan)


def test_signed_split_survivor_sets_open_nothing() -> None:
    federation, round = started(range(6), max_dropouts=2, consistency="signed")
    plan = round.plan
    uploads = federation.upload_all(round)
    lies = split_sets()
    consents = {}
    for member in plan.committee:
        data = federation.clients[member].consent(messages.write_survivors(plan, lies[member]))
        consents[member] = messages.read_consent(data, plan)[0].signature
    for member in plan.committee:
        alike = {other: consents[other] for other in plan.committee if lies[other] == lies[member]}
        with pytest.raises(WireError, match="2 members signed these survivors, but it takes 4"):
            federation.clients[member].reveal(messages.write_unmask(plan, lies[member], alike))
        with pytest.raises(WireError, match="signature is not client"):
            federation.clients[member].reveal(messages.write_unmask(plan, lies[member], consents))
        with pytest.raises(PrivacyError, match="past it"):
            federation.clients[member].consent(messages.write_survivors(plan, plan.cohort))
    assert openable(plan, uploads.values(), []) == {}


@pytest.mark.parametrize("colluders", [1, 2])
@pytest.mark.parametrize("size", [4, 5, 6, 7, 8, 9])
def test_colluders_cannot_get_two_survivor_sets_signed(size: int, colluders: int) -> None:
    """The honest members are split as evenly as can be, and the colluders sign both sets."""
    federation, round = started(range(size), consistency="signed", max_dropouts=1, max_colluders=colluders)
    plan = round.plan
    federation.upload_all(round)
    sets = (plan.cohort, plan.cohort[:-1])
    corrupt = plan.committee[:colluders]
    honest = plan.committee[colluders:]
    enough = 0
    for survivors, signers in zip(sets, (honest[::2], honest[1::2]), strict=True):
        request = messages.write_survivors(plan, survivors)
        consents = [federation.clients[member].consent(request) for member in signers]
        consents += [messages.signed(identity_of(m), messages.write_consent(plan, m, survivors)) for m in corrupt]
        signatures = {m.sender: m.signature for m, _ in (messages.read_consent(data, plan) for data in consents)}
        request = messages.write_unmask(plan, survivors, signatures)
        if len(signatures) >= plan.threshold:
            enough += 1
        else:
            with pytest.raises(WireError, match="members signed these survivors"):
                federation.clients[honest[0]].reveal(request)
    assert enough <= 1
    assert 2 * plan.threshold > size + colluders


def test_one_member_signing_many_times_counts_once() -> None:
    federation, round = started(range(5), consistency="signed", max_dropouts=1)
    plan = round.plan
    federation.upload_all(round)
    data = federation.clients[0].consent(messages.write_survivors(plan, plan.cohort))
    signature = messages.read_consent(data, plan)[0].signature
    request = messages.write_unmask(plan, plan.cohort, {0: signature})
    with pytest.raises(WireError, match="1 members signed these survivors"):
        federation.clients[1].reveal(request + request[-66:] * 4)
    with pytest.raises(WireError, match="too long"):
        federation.clients[1].reveal(request + request[-66:] * 5)


def test_members_refuse_small_and_disconnected_survivor_sets() -> None:
    federation, round = started(range(5), max_dropouts=1)
    federation.upload_all(round)
    for survivors in ((), (0,), (0, 1, 2)):
        with pytest.raises(WireError, match="a sum of fewer than 4 is not opened"):
            federation.clients[3].reveal(messages.write_unmask(round.plan, survivors, {}))

    terms = make_terms(max_dropouts=12, small_cohort=2, security_bits=1, dropout_rate=0, collusion_rate=0)
    plan = make_plan(terms, range(20))
    reach = plan.degree // 2
    circle = plan._circle
    survivors = tuple(sorted(set(circle) - set(circle[1 : 1 + reach]) - set(circle[10 : 10 + reach])))
    assert len(survivors) >= plan.min_cohort
    with pytest.raises(WireError, match="fall apart"):
        check_survivors(plan, survivors)


def test_naming_a_client_that_never_uploaded_opens_nothing_real() -> None:
    """A server that pads the survivor set with the absent gets masks that do not cancel."""
    federation, round = started(range(5), max_dropouts=2)
    plan = round.plan
    uploads = federation.upload_all(round, [0, 1, 2])
    claimed = (0, 1, 2, 3)
    request = messages.write_unmask(plan, claimed, {})
    reveals: Iterable[bytes] = [federation.clients[m].reveal(request) for m in plan.committee]
    seeds = openable(plan, uploads.values(), [(claimed, data) for data in reveals])
    assert unmasked(plan, uploads, seeds) != federation.plain_sum([0, 1, 2], plan)
