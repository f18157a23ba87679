"""What is malformed, replayed, forged or out of place is refused with its reason, and the round goes on without it."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from secagg_tools import Federation, identity_of, make_plan, make_terms, started

from laconic.errors import ConfigError, WireError
from laconic.secagg import messages
from laconic.secagg.crypto.shamir import PRIME
from laconic.secagg.messages import HEADER_BYTES
from laconic.secagg.server import ServerRound
from laconic.secagg.shares import SHARE_BYTES, Dealing, RoundAborted, pack_elements

# Where things are in a header
MAGIC, VERSION, KIND, RUN, ROUND, ATTEMPT, SENDER, HASH = 0, 4, 5, 6, 22, 26, 30, 34


def at(place: int, new: bytes) -> Callable[[bytes], bytes]:
    return lambda data: data[:place] + new + data[place + len(new) :]


def u32(value: int) -> bytes:
    return struct.pack("<I", value)


def resigned(data: bytes, signer: int) -> bytes:
    return messages.signed(identity_of(signer), data[:-64])


def flipped(place: int) -> Callable[[bytes], bytes]:
    return lambda data: at(place % len(data), bytes([data[place] ^ 1]))(data)


BENT: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "nothing": (lambda data: b"", "shorter than its header"),
    "half a header": (lambda data: data[:40], "shorter than its header"),
    "cut short": (lambda data: data[:-1], "bytes, expected"),
    "cut after the header": (lambda data: data[:HEADER_BYTES], "bytes, expected"),
    "one byte more": (lambda data: data + b"\0", "bytes, expected"),
    "something else": (at(MAGIC, b"LACN"), "not a message of laconic"),
    "another version": (at(VERSION, b"\x07"), "protocol version 7, but this is version 3"),
    "another kind": (at(KIND, b"\x06"), "kind 6, expected"),
    "another run": (at(RUN, b"s" * 16), "of another run"),
    "another round": (at(ROUND, u32(2)), "of round 2.0, but this is round 1.0"),
    "another attempt": (at(ATTEMPT, u32(1)), "of round 1.1, but this is round 1.0"),
    "another plan": (at(HASH, b"h" * 32), "under another plan"),
    "a stranger": (at(SENDER, u32(9)), "client 9 is not in the cohort"),
    "in another's name": (at(SENDER, u32(1)), "signature is not client 1's"),
    "signed by another": (lambda data: resigned(data, 1), "signature is not client 2's"),
    "a flipped bit": (flipped(HEADER_BYTES), "signature is not client 2's|bits|survivors|no element"),
    "a forged signature": (lambda data: data[:-64] + bytes(64), "signature is not client 2's"),
}


def finish(federation: Federation, round: ServerRound, survivors: list[int]) -> None:
    """The rest of the round, which must open the sum of the survivors."""
    round.close_uploads()
    federation.reveal_all(round)
    opened = round.open()
    assert opened.survivors == tuple(survivors)
    assert opened.total.tolist() == federation.plain_sum(survivors, round.plan)


@pytest.mark.parametrize("name", BENT)
@pytest.mark.parametrize("consistency", ["plain", "signed"])
def test_a_bent_upload_is_refused_and_the_round_survives(name: str, consistency: str) -> None:
    federation, round = started(range(5), max_dropouts=1, consistency=consistency)
    bend, reason = BENT[name]
    uploads = federation.uploads(round)
    for client in (0, 3):
        round.accept_upload(uploads[client])
    with pytest.raises(WireError, match=reason):
        round.accept_upload(bend(uploads[2]))
    for client in (1, 4):
        round.accept_upload(uploads[client])
    finish(federation, round, [0, 1, 3, 4])


@pytest.mark.parametrize("name", BENT)
def test_the_right_upload_is_taken_after_a_bent_one(name: str) -> None:
    federation, round = started(range(5))
    uploads = federation.uploads(round)
    with pytest.raises(WireError):
        round.accept_upload(BENT[name][0](uploads[2]))
    for upload in uploads.values():
        round.accept_upload(upload)
    finish(federation, round, [0, 1, 2, 3, 4])


@pytest.mark.parametrize("name", BENT)
def test_a_bent_reveal_is_refused_and_the_round_survives(name: str) -> None:
    federation, round = started(range(5), max_dropouts=1)
    federation.upload_all(round)
    round.close_uploads()
    request = round.unmask_request()
    reveals = {member: federation.clients[member].reveal(request) for member in round.plan.committee}
    bend, reason = BENT[name]
    with pytest.raises(WireError, match=reason):
        round.accept_reveal(bend(reveals[2]))
    for member in (0, 1, 3, 4):
        round.accept_reveal(reveals[member])
    assert round.open().total.tolist() == federation.plain_sum(range(5), round.plan)


@pytest.mark.parametrize("name", BENT)
def test_a_bent_consent_is_refused_and_the_round_survives(name: str) -> None:
    federation, round = started(range(5), max_dropouts=1, consistency="signed")
    federation.upload_all(round)
    round.close_uploads()
    request = round.survivors_for_consent()
    consents = {member: federation.clients[member].consent(request) for member in round.plan.committee}
    bend, reason = BENT[name]
    with pytest.raises(WireError, match=reason):
        round.accept_consent(bend(consents[2]))
    for member in (0, 1, 3, 4):
        round.accept_consent(consents[member])
    unmask = round.unmask_request()
    for member in (2, 1, 3, 4):
        round.accept_reveal(federation.clients[member].reveal(unmask))
    assert round.open().total.tolist() == federation.plain_sum(range(5), round.plan)


def test_duplicates_are_refused() -> None:
    federation, round = started(range(4), consistency="signed")
    uploads = federation.upload_all(round)
    with pytest.raises(WireError, match="client 2 has uploaded already"):
        round.accept_upload(uploads[2])
    round.close_uploads()
    survivors = round.survivors_for_consent()
    consents = [federation.clients[member].consent(survivors) for member in round.plan.committee]
    for consent in consents:
        round.accept_consent(consent)
        with pytest.raises(WireError, match="has consented already"):
            round.accept_consent(consent)
    request = round.unmask_request()
    for member in round.plan.committee:
        reveal = federation.clients[member].reveal(request)
        round.accept_reveal(reveal)
        with pytest.raises(WireError, match="has revealed already"):
            round.accept_reveal(reveal)
    assert round.open().total.tolist() == federation.plain_sum(range(4), round.plan)


def test_messages_out_of_order_are_refused() -> None:
    federation, round = started(range(4), max_dropouts=1, consistency="signed")
    for early in (round.survivors_for_consent, round.unmask_request, round.open):
        with pytest.raises(WireError, match="not now: the round is taking uploads"):
            early()
    uploads = federation.uploads(round)
    for client in (0, 1, 2):
        round.accept_upload(uploads[client])
    round.close_uploads()
    with pytest.raises(WireError, match="not now: the round is taking consents"):
        round.accept_upload(uploads[3])
    with pytest.raises(WireError, match="not now: the round is taking consents"):
        round.accept_reveal(b"")
    federation.reveal_all(round)
    with pytest.raises(WireError, match="not now: the round is taking reveals"):
        round.accept_consent(b"")
    assert round.open().survivors == (0, 1, 2)
    for late in (round.open, round.unmask_request, round.close_uploads):
        with pytest.raises(WireError, match="not now: the round is closed"):
            late()


def test_a_client_without_a_round_refuses_everything() -> None:
    federation, round = started(range(4))
    fresh = Federation(federation.terms, range(4)).clients[0]
    calls: list[Callable[[], Any]] = [
        lambda: fresh.upload(np.zeros(6, dtype=np.int64)),
        lambda: fresh.consent(b""),
        lambda: fresh.reveal(b""),
    ]
    for call in calls:
        with pytest.raises(WireError, match="client 0 has no round under way"):
            call()
    federation.uploads(round)
    with pytest.raises(WireError, match="its consistency is plain"):
        federation.clients[0].consent(messages.write_survivors(round.plan, range(4)))


def test_who_is_not_in_the_committee_has_no_say() -> None:
    federation, round = started(range(12), small_cohort=2, consistency="signed", security_bits=3, failure_bits=3)
    plan = round.plan
    outsider = next(client for client in plan.cohort if client not in plan.point)
    federation.upload_all(round)
    round.close_uploads()
    with pytest.raises(WireError, match=f"client {outsider} is not in the committee"):
        federation.clients[outsider].reveal(b"")
    forged = messages.signed(identity_of(outsider), messages.write_consent(plan, outsider, plan.cohort))
    with pytest.raises(WireError, match=f"client {outsider} is not in the committee"):
        round.accept_consent(forged)
    federation.reveal_all(round, plan.committee[:-1])
    num_opened = sum(map(len, round._wanted.values()))
    forged = messages.signed(
        identity_of(outsider), messages.write_reveal(plan, outsider, bytes(SHARE_BYTES * num_opened))
    )
    with pytest.raises(WireError, match=f"client {outsider} is not in the committee"):
        round.accept_reveal(forged)
    assert round.open().survivors == plan.cohort


def test_a_consent_to_other_survivors_is_refused() -> None:
    federation, round = started(range(5), max_dropouts=1, consistency="signed")
    federation.upload_all(round)
    round.close_uploads()
    consent = federation.clients[2].consent(messages.write_survivors(round.plan, (0, 1, 2, 3)))
    with pytest.raises(WireError, match="client 2 has signed other survivors"):
        round.accept_consent(consent)
    for member in (0, 1):
        round.accept_consent(federation.clients[member].consent(round.survivors_for_consent()))
    with pytest.raises(RoundAborted, match="2 members signed the survivors, but it takes 4"):
        round.unmask_request()


def test_messages_of_an_earlier_attempt_are_refused() -> None:
    federation, round = started(range(4))
    old = federation.upload_all(round)
    round.close_uploads()
    old_reveals = federation.reveal_all(round)
    old_request = round.unmask_request()
    again = federation.begin(make_plan(federation.terms, range(4), attempt=1))
    new = federation.uploads(again)
    with pytest.raises(WireError, match="of round 1.0, but this is round 1.1"):
        again.accept_upload(old[0])
    for upload in new.values():
        again.accept_upload(upload)
    again.close_uploads()
    with pytest.raises(WireError, match="of round 1.0, but this is round 1.1"):
        federation.clients[0].reveal(old_request)
    with pytest.raises(WireError, match="of round 1.0, but this is round 1.1"):
        again.accept_reveal(old_reveals[0])
    federation.reveal_all(again)
    assert again.open().total.tolist() == federation.plain_sum(range(4), again.plan)


# Members and dealers that follow the form but send wrong numbers


def lying_reveal(federation: Federation, round: ServerRound, member: int, request: bytes) -> bytes:
    plan = round.plan
    count = sum(map(len, round._wanted.values()))
    _, pads = messages.read_reveal(federation.clients[member].reveal(request), plan, count)
    return messages.signed(
        identity_of(member), messages.write_reveal(plan, member, pack_elements((pads + 7919 * member**3) % PRIME))
    )


@pytest.mark.parametrize("liars", [[1], [2, 5], [1, 3, 6]])
def test_wrong_shares_are_found_and_left_out_while_enough_are_right(liars: list[int]) -> None:
    federation, round = started(range(9), max_dropouts=3)
    assert round.plan.threshold == 6
    federation.upload_all(round, range(8))
    round.close_uploads()
    request = round.unmask_request()
    for member in range(9):
        lies = member in liars
        round.accept_reveal(
            lying_reveal(federation, round, member, request) if lies else federation.clients[member].reveal(request)
        )
    assert round.open().total.tolist() == federation.plain_sum(range(8), round.plan)


def test_too_many_wrong_shares_abort_the_round() -> None:
    federation, round = started(range(9), max_dropouts=3)
    federation.upload_all(round)
    round.close_uploads()
    request = round.unmask_request()
    for member in range(9):
        round.accept_reveal(
            lying_reveal(federation, round, member, request)
            if 0 < member < 5
            else federation.clients[member].reveal(request)
        )
    with pytest.raises(RoundAborted, match="shares contradict each other"):
        round.open()


def test_a_dealer_with_contradicting_shares_aborts_the_round() -> None:
    federation, round = started(range(5), max_dropouts=1)
    plan = round.plan
    uploads = federation.uploads(round)
    _, vector, dealing = messages.read_upload(uploads[3], plan)
    corrections = dealing.corrections(plan)
    corrections[:, 0] += 1
    bent = Dealing(dealing.checks, pack_elements(corrections % PRIME))
    uploads[3] = messages.signed(identity_of(3), messages.write_upload(plan, 3, bytes(vector), bent))
    for upload in uploads.values():
        round.accept_upload(upload)
    round.close_uploads()
    federation.reveal_all(round)
    with pytest.raises(RoundAborted, match="a secret of client 3 cannot be opened"):
        round.open()


def test_shares_that_are_no_field_elements_are_refused() -> None:
    federation, round = started(range(5), max_dropouts=1)
    plan = round.plan
    uploads = federation.uploads(round)
    _, vector, dealing = messages.read_upload(uploads[3], plan)
    bent = Dealing(dealing.checks, b"\xff" * len(dealing.packed))
    with pytest.raises(WireError, match="no element of the field"):
        round.accept_upload(messages.signed(identity_of(3), messages.write_upload(plan, 3, bytes(vector), bent)))


def test_clients_that_disagree_on_their_seed_are_noticed_before_anything_is_opened() -> None:
    """A client that restarted with another key, say, whose mask would not cancel."""
    federation, round = started(range(5), max_dropouts=1)
    uploads = federation.uploads(round)
    _, vector, dealing = messages.read_upload(uploads[3], round.plan)
    checks = dealing.checks[:8] + bytes(8) + dealing.checks[16:]
    frame = messages.write_upload(round.plan, 3, bytes(vector), Dealing(checks, dealing.packed))
    for client in (0, 1, 2, 4):
        round.accept_upload(uploads[client])
    with pytest.raises(WireError, match="clients 0 and 3 have different seeds"):
        round.accept_upload(messages.signed(identity_of(3), frame))
    finish(federation, round, [0, 1, 2, 4])


# What a caller can get wrong


def test_vectors_that_do_not_fit_the_plan_cost_no_attempt() -> None:
    federation, round = started(range(3))
    federation.clients[0].begin(round.plan_for(0))
    with pytest.raises(ConfigError, match=r"shape \(7,\), but the plan says 6 values"):
        federation.clients[0].upload(np.zeros(7, dtype=np.int64))
    with pytest.raises(ConfigError, match="whole numbers, not float64"):
        federation.clients[0].upload(np.zeros(6))
    assert federation.clients[0].upload(np.zeros(6, dtype=np.int64))


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"bits": 7}, "bits must be 8 to 64"),
        ({"bits": 65}, "bits must be 8 to 64"),
        ({"size": 0}, "size must be"),
        ({"cohort": (1, 1, 2)}, "no client is in it twice"),
        ({"cohort": (2, 1)}, "ascending order"),
        ({"cohort": (1, 2**32 - 1)}, "client numbers must be"),
        ({"cohort": ()}, "a cohort of 0 clients, but this run needs 3"),
        ({"cohort": (1, 2)}, "a cohort of 2 clients, but this run needs 3"),
        ({"round": -1}, "round must be"),
        ({"attempt": 2**32}, "too large to be sent"),
    ],
)
def test_impossible_plans(options: dict[str, Any], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        make_plan(make_terms(max_dropouts=1, max_colluders=1), **options)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"run": b"short"}, "run must have 16 bytes"),
        ({"beacon": b""}, "beacon 32"),
        ({"fingerprint": "xyz"}, "fingerprint must be 32 hexadecimal digits"),
        ({"consistency": "sworn"}, "unknown consistency 'sworn'"),
        ({"max_dropouts": -1}, "max_dropouts must be"),
        ({"collusion_rate": 1.0}, "collusion_rate must be"),
        ({"security_bits": 0}, "security_bits must be"),
    ],
)
def test_impossible_terms(options: dict[str, Any], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        make_terms(**options)


def test_a_server_starts_no_attempt_twice_and_none_with_strangers() -> None:
    federation, round = started(range(3))
    with pytest.raises(ConfigError, match="number it anew"):
        federation.begin(round.plan)
    with pytest.raises(ConfigError, match=r"clients \[3, 4\] are in the cohort but have announced no keys"):
        federation.begin(make_plan(federation.terms, range(5), round=2))
    with pytest.raises(ConfigError, match="other terms"):
        federation.begin(make_plan(make_terms(max_dropouts=1), range(3), round=2))
