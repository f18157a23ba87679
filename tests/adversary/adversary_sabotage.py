"""The fixes, undone one at a time: what each of them is for shows when it is missing."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any

import pytest
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from laconic.errors import PrivacyError, WireError
from laconic.guard import guard as guard_module
from laconic.guard import roster as roster_module
from laconic.guard import transcript
from laconic.guard.contract import Contract
from laconic.guard.transcript import LoggedAttempts
from laconic.secagg import attempts, messages
from laconic.secagg import client as client_module
from laconic.secagg.attempts import Mark, Step
from laconic.secagg.crypto import keys
from laconic.secagg.crypto.keys import KeyBook, PairSecrets, PublicKeys, montgomery
from laconic.secagg.terms import context_of


def offers_unbound(patch: pytest.MonkeyPatch) -> None:
    """Keys, masks and signatures do not depend on what was offered."""
    terms = Contract.terms
    patch.setattr(Contract, "context", property(lambda self: context_of(self.run, bytes(32))))
    patch.setattr(Contract, "terms", lambda self, beacon: replace(terms(self, beacon), offer=bytes(32)))


def possession_unproven(patch: pytest.MonkeyPatch) -> None:
    """Nobody must show that a key is theirs."""
    both = keys._are_signed
    patch.setattr(keys, "_are_signed", lambda *some: (both(*some)[0], True))


def keys_repeated(patch: pytest.MonkeyPatch) -> None:
    """One key may stand for two clients."""

    def keep(self: KeyBook, entry: PublicKeys) -> None:
        self._known[entry.client] = entry
        self._owners[entry.identity] = entry.client

    patch.setattr(KeyBook, "_keep", keep)


def identities_repeated(patch: pytest.MonkeyPatch) -> None:
    """One identity may stand for two clients."""

    def keep(self: KeyBook, entry: PublicKeys) -> None:
        self._known[entry.client] = entry
        self._owners[montgomery(entry.agreement)] = entry.client

    patch.setattr(KeyBook, "_keep", keep)


def numbers_unbound(patch: pytest.MonkeyPatch) -> None:
    """Secrets of two clients follow from their keys alone."""

    def secret(self: PairSecrets, client: int) -> bytes:
        other = self._book[client].agreement
        info = b"".join(sorted((self._private.public, other)))
        return HKDF(SHA256(), 32, salt=self._context, info=info).derive(self._private.agree(other))

    seed = keys.pair_seed
    patch.setattr(PairSecrets, "__getitem__", secret)
    patch.setattr(client_module, "pair_seed", lambda secret, plan, one, other: seed(secret, plan, 0, 0))


def copied_keys_accepted(patch: pytest.MonkeyPatch) -> None:
    """Both checks that keep a copied key out of a roster."""
    possession_unproven(patch)
    keys_repeated(patch)


def copied_keys_useful(patch: pytest.MonkeyPatch) -> None:
    """And the derivation that makes a copied key worthless."""
    copied_keys_accepted(patch)
    numbers_unbound(patch)


def rosters_of_any_length(patch: pytest.MonkeyPatch) -> None:
    def check(data: bytes, context: bytes, clients: int, own: PublicKeys, identities: Collection[str]) -> None:
        book = KeyBook(context)
        for entry in roster_module.read_roster(data):
            if entry.identity.hex() not in identities:
                raise PrivacyError("a stranger")
            book.learn(entry)
        if own.client not in book or book[own.client].agreement != own.agreement:
            raise WireError("not in it")

    patch.setattr(guard_module, "check_roster", check)


def strangers_accepted(patch: pytest.MonkeyPatch) -> None:
    check = roster_module.check_roster
    patch.setattr(guard_module, "check_roster", lambda *some: check(*some[:-1], ()))
    patch.setattr(guard_module, "check_listed", lambda *some: None)


def attempts_forgotten(patch: pytest.MonkeyPatch) -> None:
    """A node masks as many vectors under one attempt as it is asked for."""
    for module in (attempts, client_module, transcript):
        patch.setattr(module, "check_forward", lambda *some: None)


def survivors_unchecked(patch: pytest.MonkeyPatch) -> None:
    """Members open sums of any size."""
    patch.setattr(client_module, "check_survivors", lambda *some: None)


def consents_unneeded(patch: pytest.MonkeyPatch) -> None:
    """Members open what nobody else has signed."""
    read = messages.read_unmask

    def believed(data: bytes, plan: Any, book: KeyBook) -> tuple[tuple[int, ...], set[int]]:
        return read(data, plan, book)[0], set(plan.committee)

    patch.setattr(messages, "read_unmask", believed)


def uploads_unlogged(patch: pytest.MonkeyPatch) -> None:
    """A vector is masked and sent, and nothing is charged for it."""
    claim = LoggedAttempts.claim

    def claimed(self: LoggedAttempts, run: bytes, mark: Mark) -> None:
        if mark.step != Step.UPLOAD:
            claim(self, run, mark)

    patch.setattr(LoggedAttempts, "claim", claimed)


SABOTAGES = (
    offers_unbound,
    possession_unproven,
    keys_repeated,
    identities_repeated,
    rosters_of_any_length,
    strangers_accepted,
    attempts_forgotten,
    survivors_unchecked,
    consents_unneeded,
    uploads_unlogged,
)
