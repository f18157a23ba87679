"""Bent bytes never raise anything but a refusal, and what is signed is never taken in another form."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from secagg_tools import Federation, identity_of, make_plan, make_terms, started

from laconic.errors import LaconicError, WireError
from laconic.secagg import messages
from laconic.secagg.crypto.keys import KeyBook, PublicKeys
from laconic.secagg.server import ServerRound
from laconic.secagg.shares import secrets_to_open

CASES_A_BATCH = 1000


@cache
def recorded() -> tuple[ServerRound, dict[str, bytes], dict[str, Callable[[bytes], object]]]:
    """One message of each kind from a round in signed mode, and what reads it."""
    federation, round = started(range(6), consistency="signed", max_dropouts=1)
    plan = round.plan
    plan_message = round.plan_for(2)
    uploads = federation.upload_all(round, [0, 1, 2, 4, 5])
    round.close_uploads()
    survivors = round.survivors_for_consent()
    consents = {m: federation.clients[m].consent(survivors) for m in plan.committee}
    for consent in consents.values():
        round.accept_consent(consent)
    request = round.unmask_request()
    reveal = federation.clients[2].reveal(request)
    opened = sum(map(len, secrets_to_open(plan, (0, 1, 2, 4, 5)).values()))
    book = federation.server.book
    originals = {
        "keys": federation.clients[2].announce(),
        "plan": plan_message,
        "upload": uploads[2],
        "survivors": survivors,
        "consent": consents[2],
        "unmask": request,
        "reveal": reveal,
    }
    readers: dict[str, Callable[[bytes], object]] = {
        "keys": lambda data: KeyBook(plan.terms.context).learn(PublicKeys.from_announcement(data, plan.terms.run)),
        "plan": lambda data: messages.read_plan(data, plan.terms),
        "upload": lambda data: messages.read_upload(data, plan),
        "survivors": lambda data: messages.read_survivors(data, plan),
        "consent": lambda data: messages.read_consent(data, plan),
        "unmask": lambda data: messages.read_unmask(data, plan, book),
        "reveal": lambda data: messages.read_reveal(data, plan, opened),
    }
    for name, data in originals.items():
        readers[name](data)
    return round, originals, readers


def bent(data: bytes, others: list[bytes], draw: random.Random) -> bytes:
    """The message with one to three changes of the kinds that happen: bits, bytes, lengths, splices, wild numbers."""
    out = bytearray(data)
    for _ in range(draw.randint(1, 3)):
        place = draw.randrange(len(out) + 1)
        match draw.randrange(7):
            case 0 if out:
                out[place % len(out)] ^= 1 << draw.randrange(8)
            case 1 if out:
                out[place % len(out)] = draw.randrange(256)
            case 2:
                del out[place:]
            case 3:
                del out[place : place + draw.randrange(1, 40)]
            case 4:
                out[place:place] = draw.randbytes(draw.randrange(1, 40))
            case 5:
                out[place : place + 4] = draw.choice((b"\0\0\0\0", b"\xff\xff\xff\xff", b"\1\0\0\0", b"\0\0\0\x80"))
            case _:
                other = draw.choice(others)
                out[place:] = other[draw.randrange(len(other)) :]
    return bytes(out)


@settings(max_examples=100)
@given(st.integers(0, 2**64 - 1))
def test_readers_refuse_or_read(seed: int) -> None:
    """100 batches of 1,000 bent messages of all kinds."""
    _, originals, readers = recorded()
    draw = random.Random(seed)
    others = list(originals.values())
    names = list(originals)
    for case in range(CASES_A_BATCH):
        name = names[case % len(names)]
        data = bent(originals[name], others, draw)
        try:
            readers[name](data)
        except LaconicError as error:
            assert str(error)


@settings(max_examples=25)
@given(st.integers(0, 2**64 - 1))
def test_no_bent_message_is_taken_from_a_client(seed: int) -> None:
    """The server's own doors, signatures included: 25 batches of 100. Not one bent byte passes."""
    draw = random.Random(seed)
    federation, round = started(range(5), max_dropouts=1)
    uploads = federation.uploads(round)
    others = list(uploads.values())
    for _ in range(100):
        data = bent(uploads[2], others, draw)
        if data not in others:
            with pytest.raises(WireError):
                round.accept_upload(data)
    for upload in uploads.values():
        round.accept_upload(upload)
    round.close_uploads()
    federation.reveal_all(round)
    assert round.open().total.tolist() == federation.plain_sum(range(5), round.plan)


@settings(max_examples=60)
@given(st.integers(0, 2**64 - 1))
def test_signed_nonsense_from_a_client_is_refused_or_aborts(seed: int) -> None:
    """A client that signs what it bends: the round refuses it, opens a sum, or aborts; nothing else."""
    draw = random.Random(seed)
    federation, round = started(range(5), max_dropouts=1)
    uploads = federation.uploads(round)
    others = list(uploads.values())
    body = bent(uploads[2], others, draw)[: len(uploads[2]) - 64]
    uploads[2] = messages.signed(identity_of(2), body)
    for upload in uploads.values():
        try:
            round.accept_upload(upload)
        except WireError as error:
            assert str(error)
    try:
        round.close_uploads()
        request = round.unmask_request()
        for member in round.plan.committee:
            reveal = federation.clients[member].reveal(request)
            if member == 3:
                reveal = messages.signed(identity_of(3), bent(reveal, others, draw)[: len(reveal) - 64])
            try:
                round.accept_reveal(reveal)
            except WireError as error:
                assert str(error)
        round.open()
    except LaconicError as error:
        assert str(error)


@settings(max_examples=40)
@given(st.integers(0, 2**64 - 1))
def test_clients_refuse_bent_plans_and_requests(seed: int) -> None:
    """40 batches of 50 at a client's doors. A plan that passes is the plan; its keys may only be fewer or reordered."""
    draw = random.Random(seed)
    federation = Federation(make_terms(max_dropouts=1), range(5))
    round = federation.begin(make_plan(federation.terms, range(5)))
    client, plan = federation.clients[1], round.plan_for(1)
    request = messages.write_unmask(round.plan, range(5), {})
    for _ in range(25):
        try:
            assert client.begin(bent(plan, [request], draw)).hash == round.plan.hash
        except LaconicError as error:
            assert str(error)
    client.begin(plan)
    for _ in range(25):
        data = bent(request, [plan], draw)
        try:
            client.reveal(data)
        except LaconicError as error:
            assert str(error)
        else:
            survivors, _ = messages.read_unmask(data, round.plan, KeyBook(federation.terms.run))
            assert len(survivors) >= round.plan.min_cohort
            break
