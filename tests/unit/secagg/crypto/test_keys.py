"""Keys are signed, listed, never swapped, and bound to their run and attempt."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand
from secagg_tools import Federation, identity_of, make_plan, make_terms, public_identities

from laconic.errors import WireError
from laconic.secagg import messages
from laconic.secagg.client import SecAggClient
from laconic.secagg.crypto import keys, labels
from laconic.secagg.crypto.keys import KeyBook, PairSecrets, PublicKeys, RunKey, montgomery, pair_seed, share_key
from laconic.secagg.crypto.labels import labelled
from laconic.secagg.server import ServerRound

RUN = b"r" * 16
CONTEXT = make_terms().context


def keys_of(client: int, *, context: bytes = CONTEXT, signer: int | None = None) -> tuple[RunKey, PublicKeys]:
    private = RunKey.generate()
    return private, PublicKeys.signed(context, client, private, identity_of(client if signer is None else signer))


def begun(**options: Any) -> tuple[Federation, ServerRound]:
    federation = Federation(make_terms(), range(4), **options)
    return federation, federation.begin(make_plan(federation.terms, range(4)))


def plan_with(round: ServerRound, *swapped: PublicKeys) -> bytes:
    """The plan for client 0, with some keys in the place of the right ones."""
    other = {keys.client: keys for keys in swapped}
    book = round._server.book
    return messages.write_plan(round.plan, [other.get(client, book[client]) for client in (1, 2, 3)])


def test_two_clients_have_the_same_secret_and_others_do_not() -> None:
    book = KeyBook(CONTEXT)
    privates = {}
    for client in (1, 2, 3):
        privates[client], keys = keys_of(client)
        book.learn(keys)
    secrets = {client: PairSecrets(CONTEXT, client, private, book) for client, private in privates.items()}
    assert secrets[1][2] == secrets[2][1]
    assert len({secrets[1][2], secrets[1][3], secrets[2][3], secrets[1][1]}) == 4
    assert PairSecrets(b"s" * 32, 1, privates[1], book)[2] != secrets[1][2]
    assert PairSecrets(CONTEXT, 4, privates[1], book)[2] != secrets[1][2]  # the same key under another number


def test_a_run_key_agrees_as_the_x25519_key_of_the_same_point() -> None:
    one, other = RunKey.generate(), RunKey.generate()
    assert one.agree(other.public) == other.agree(one.public)
    stranger = X25519PrivateKey.generate()
    known = stranger.exchange(X25519PublicKey.from_public_bytes(montgomery(one.public)))
    assert known == one._agreeing.exchange(stranger.public_key())
    assert montgomery(one.public) == one._agreeing.public_key().public_bytes_raw()


def test_derived_keys_differ_by_purpose_plan_and_direction() -> None:
    secret, plans = b"s" * 32, [make_plan(make_terms(), attempt=attempt).hash for attempt in (0, 1)]
    keys = [pair_seed(secret, plan, 1, 2) for plan in plans] + [pair_seed(secret, plans[0], 1, 3)]
    keys += [share_key(secret, plan, dealer, member) for plan in plans for dealer, member in ((1, 2), (2, 1), (1, 1))]
    assert pair_seed(secret, plans[0], 2, 1) == keys[0]
    purpose = labelled(labels.MASK, plans[0], 1, 2)
    assert HKDFExpand(SHA256(), 32, info=purpose).derive(secret) == keys[0]
    assert len(set(keys)) == 9
    assert {len(key) for key in keys} == {32}


def test_announcements_survive_the_wire() -> None:
    _, keys = keys_of(5)
    data = keys.announcement(RUN)
    assert len(data) == 218
    assert PublicKeys.from_announcement(data, RUN) == keys
    for bent, reason in (
        (data[:-1], "218 bytes, not 217"),
        (data[:4] + b"\x01" + data[5:], "protocol version 1, but this is version 3: install the same laconic"),
        (b"XXXX" + data[4:], "not an announcement"),
        (data[:6] + b"s" * 16 + data[22:], "another run"),
    ):
        with pytest.raises(WireError, match=reason):
            PublicKeys.from_announcement(bent, RUN)


def test_a_key_that_its_identity_has_not_signed_is_refused() -> None:
    _, keys = keys_of(1)
    _, of_another_run = keys_of(1, context=make_terms(run=b"s" * 16).context)
    _, of_another_offer = keys_of(1, context=make_terms(offer=b"p" * 32).context)
    book = KeyBook(CONTEXT)
    forged = [
        replace(keys, signature=bytes(64)),
        replace(keys, client=2),
        replace(keys, agreement=bytes(32)),
        replace(keys, identity=b"\xff" * 32),
        of_another_run,
        of_another_offer,
    ]
    for entry in forged:
        with pytest.raises(WireError, match="signature of the keys of client [12] is wrong"):
            book.learn(entry)
    book.learn(keys)


def test_a_key_that_does_not_sign_itself_is_refused() -> None:
    """Whoever announces somebody else's key can have it signed by an identity of its own, but not by the key."""
    _, theirs = keys_of(1)
    identity = identity_of(2)
    name = identity.public_key().public_bytes_raw()
    signature = identity.sign(labelled(labels.KEYS, CONTEXT, 2, theirs.agreement, name))
    for possession in (theirs.possession, signature, bytes(64)):
        with pytest.raises(WireError, match="client 2 does not show that the key which it announces is its own"):
            KeyBook(CONTEXT).learn(PublicKeys(2, theirs.agreement, name, signature, possession))


def test_no_key_and_no_identity_stands_for_two_clients() -> None:
    private, keys = keys_of(1)
    book = KeyBook(CONTEXT)
    book.learn(keys)
    with pytest.raises(WireError, match="client 2 announces the key of client 1 as its own"):
        book.learn(PublicKeys.signed(CONTEXT, 2, private, identity_of(2)))
    with pytest.raises(WireError, match="client 2 announces the identity of client 1 as its own"):
        book.learn(keys_of(2, signer=1)[1])
    negative = keys.agreement[:31] + bytes([keys.agreement[31] ^ 0x80])  # the other point with the same X25519 form
    with pytest.raises(WireError, match="client 2 announces the key of client 1 as its own"):
        book.learn(replace(keys_of(2)[1], agreement=negative))
    book.learn(keys)


def test_a_key_is_not_replaced_within_a_run() -> None:
    federation, _ = begun()
    with pytest.raises(WireError, match="client 2 has other keys in this run already"):
        federation.server.register(keys_of(2)[1].announcement(RUN))


def test_with_a_list_of_identities_the_server_takes_no_others() -> None:
    federation, _ = begun(identities=public_identities(range(4)))
    with pytest.raises(WireError, match="client 7 is not in the list of identities"):
        federation.server.register(keys_of(7)[1].announcement(RUN))
    with pytest.raises(WireError, match="the keys of client 2 come from another identity"):
        federation.server.register(keys_of(2, signer=7)[1].announcement(RUN))


def test_with_a_list_of_identities_clients_refuse_swapped_keys() -> None:
    """A server in the middle gives out keys of its own, properly signed by an identity of its own."""
    federation, round = begun(identities=public_identities(range(4)))
    client = federation.clients[0]
    with pytest.raises(WireError, match="the keys of client 2 come from another identity"):
        client.begin(plan_with(round, keys_of(2, signer=99)[1]))
    genuine = round._server.book[2]
    with pytest.raises(WireError, match="signature of the keys of client 2 is wrong"):
        client.begin(plan_with(round, replace(genuine, agreement=keys_of(2)[1].agreement)))
    client.begin(plan_with(round))


def test_without_a_list_the_first_key_counts() -> None:
    """Documents what the list is for: a server that swaps keys from the beginning is not noticed without it."""
    federation, round = begun()
    federation.clients[0].begin(plan_with(round, keys_of(2, signer=99)[1]))
    with pytest.raises(WireError, match="client 2 has other keys in this run already"):
        federation.clients[0].begin(plan_with(round))


def test_plans_with_too_many_or_too_few_keys_are_refused() -> None:
    federation, round = begun()
    with pytest.raises(WireError, match=r"keys of clients \[8\], whom client 0 does not need"):
        federation.clients[0].begin(messages.write_plan(round.plan, [keys_of(8)[1]]))
    with pytest.raises(WireError, match=r"lacks the keys of clients \[2, 3\]"):
        federation.clients[0].begin(messages.write_plan(round.plan, [round._server.book[1]]))


def test_keys_of_low_order_are_refused() -> None:
    """Such a key signs anything: with −B·h for a commitment, one proof in eight is good."""
    identity = identity_of(2)
    name = identity.public_key().public_bytes_raw()
    for agreement, reason in (
        ((2**255 - 20).to_bytes(32, "little"), "is of low order"),  # y = −1, of order 2
        ((1).to_bytes(32, "little"), "no point that a secret"),
    ):
        signature = identity.sign(labelled(labels.KEYS, CONTEXT, 2, agreement, name))
        low = PublicKeys(2, agreement, name, signature, bytes(64))
        federation, round = begun()
        with pytest.MonkeyPatch.context() as patch, pytest.raises(WireError, match=reason):
            patch.setattr(keys, "_are_signed", lambda *some: (True, True))
            federation.clients[0].begin(plan_with(round, low))


def test_plans_that_a_client_did_not_agree_to_are_refused() -> None:
    federation, round = begun()
    client = federation.clients[0]

    def begin(**terms: Any) -> None:
        client.begin(messages.write_plan(make_plan(make_terms(**terms), range(4)), []))

    with pytest.raises(WireError, match="a plan for scheme cdcdcdcd…, but this run is 5a5a5a5a…"):
        begin(fingerprint="cd" * 16)
    with pytest.raises(WireError, match="another run"):
        begin(run=b"s" * 16)
    others = {"offer": b"p" * 32, "max_dropouts": 2, "beacon": b"c" * 32, "security_bits": 1, "least_cohort": 2}
    for weaker in ({name: value} for name, value in others.items()):
        with pytest.raises(WireError, match="under other terms"):
            begin(**weaker)
    with pytest.raises(WireError, match="client 0 is not in the cohort"):
        client.begin(messages.write_plan(make_plan(federation.terms, (1, 2, 3)), []))
    plan = round.plan_for(0)
    with pytest.raises(WireError, match="hash does not match"):
        client.begin(plan[:34] + bytes(32) + plan[66:])
    with pytest.raises(WireError, match="refused plan: bits must be 8 to 64"):
        client.begin(plan[:114] + b"\x07" + plan[115:])
    with pytest.raises(WireError, match="a plan of [0-9]+ bytes"):
        client.begin(plan[:-1])
    client.begin(plan)


def test_a_restarted_client_keeps_its_key() -> None:
    private = RunKey.generate()
    twice = [SecAggClient(1, make_terms(), identity=identity_of(1), agreement=private).announce() for _ in range(2)]
    assert twice[0] == twice[1]
