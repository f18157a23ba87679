"""The client's side of the protocol: bytes in, bytes out.

once per run     announce()                 the key of the run, signed by the identity and by itself
every attempt    begin(plan)                check the plan and learn the keys that are new
                 upload(vector)             claim it; vector + self-mask ± pair masks, and the shares of all those seeds
                 consent(survivors)         signed mode, members only: sign the one survivor set
                 reveal(request)            members only: open the survivors' self-masks and the masks with the absent
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from laconic.errors import ConfigError, WireError
from laconic.secagg import messages
from laconic.secagg.attempts import Attempts, AttemptsInMemory, Mark, Nonces, Step, check_forward
from laconic.secagg.crypto.keys import KeyBook, PairSecrets, PublicKeys, RunKey, pair_seed, share_key
from laconic.secagg.crypto.masks import SEED_BYTES, add_masks
from laconic.secagg.shares import deal, num_secrets, pack_elements, pads, secrets_to_open
from laconic.secagg.terms import SumPlan, Terms


class SecAggClient:
    """One client in one run.

    `identity` is its long-term key. `identities` lists the public identities of all clients; without it the client
    believes the first key that it is given for each other one. `agreement` is its key of this run, kept by what
    restarts the client within the run; `roster` are keys of others that it has learnt, and so checked, before. `nonces`
    are those of the client's process, and must not be kept anywhere else.
    """

    def __init__(
        self,
        client: int,
        terms: Terms,
        *,
        identity: Ed25519PrivateKey,
        identities: Mapping[int, bytes] | None = None,
        attempts: Attempts | None = None,
        agreement: RunKey | None = None,
        nonces: Nonces | None = None,
        roster: Iterable[PublicKeys] = (),
    ) -> None:
        self.client, self.terms = client, terms
        self._identity = identity
        self._attempts = attempts if attempts is not None else AttemptsInMemory()
        self._nonces = nonces if nonces is not None else Nonces()
        private = agreement or RunKey.generate()
        self._keys = PublicKeys.signed(terms.context, client, private, identity)
        self._book = KeyBook(terms.context, identities)
        for keys in (self._keys, *roster):
            self._book.recall(keys)
        self._pairs = PairSecrets(terms.context, client, private, self._book)
        self._plan: SumPlan | None = None
        self._committed = False

    def announce(self) -> bytes:
        return self._keys.announcement(self.terms.run)

    @property
    def nonce(self) -> bytes:
        """What the next plan must have in this client's place."""
        return self._nonces.current(self.terms.run)

    def begin(self, message: bytes) -> SumPlan:
        """Accept the plan of an attempt that is later than all before, or go on with the last one after a restart."""
        plan, keys = messages.read_plan(message, self.terms)
        last = self._attempts.last(self.terms.run)
        check_forward(last, _mark(plan, Step.REVEAL))
        if self.client not in plan.position:
            raise WireError(f"client {self.client} is not in the cohort of this plan")
        if last is None or last.plan != plan.hash:  # else its upload is written down, and there will be no other
            self._nonces.check(self.terms.run, plan.nonce_of(self.client))
        contacts = plan.contacts(self.client)
        strangers = sorted({entry.client for entry in keys} - contacts)
        if strangers:
            raise WireError(f"the plan brings keys of clients {strangers}, whom client {self.client} does not need")
        for entry in keys:
            self._book.learn(entry)
        missing = sorted(other for other in contacts if other not in self._book)
        if missing:
            raise WireError(f"the plan lacks the keys of clients {missing}")
        for other in contacts:
            _ = self._pairs[other]  # refuses keys that no secret can be agreed with, before anything is sent
        self._plan, self._committed = plan, False
        return plan

    def upload(self, vector: np.ndarray) -> bytes:
        """The masked vector with the encrypted shares of every seed in its mask."""
        words = self._words(vector)  # what does not fit costs no attempt
        self.commit()
        return self._masked(words)

    def commit(self) -> None:
        """Claim the attempt: from now on one vector may be masked under its plan, and no other."""
        plan = self._current()
        self._attempts.claim(self.terms.run, _mark(plan, Step.UPLOAD))
        self._nonces.spend(self.terms.run, plan.nonce_of(self.client))
        self._committed = True

    def mask(self, vector: np.ndarray) -> bytes:
        """The masked vector, after `commit`."""
        return self._masked(self._words(vector))

    def _words(self, vector: np.ndarray) -> np.ndarray:
        plan = self._current()
        if vector.shape != (plan.size,):
            raise ConfigError(f"a vector of shape {vector.shape}, but the plan says {plan.size} values")
        return plan.ring.words(vector)

    def _masked(self, words: np.ndarray) -> bytes:
        plan = self._current()
        if not self._committed:
            raise WireError(f"client {self.client} has not claimed this attempt, or has masked its vector already")
        self._committed = False
        own = secrets.token_bytes(SEED_BYTES)
        shared = {other: self._pair_seed(plan, other) for other in plan.neighbours(self.client)}
        larger = [seed for other, seed in shared.items() if other > self.client]
        smaller = [seed for other, seed in shared.items() if other < self.client]
        add_masks(words, plus=[own, *larger], minus=smaller)
        dealing = deal(plan, [own, *shared.values()], [self._share_key(self.client, m) for m in plan.committee])
        frame = messages.write_upload(plan, self.client, plan.ring.pack(words), dealing)
        return messages.signed(self._identity, frame)

    def consent(self, message: bytes) -> bytes:
        """Sign the survivor set, the only one that this member will ever sign in this attempt."""
        plan = self._current_as_member()
        if not self.terms.signed:
            raise WireError("this run has no consents: its consistency is plain")
        survivors = messages.read_survivors(message, plan)
        check_survivors(plan, survivors)
        self._attempts.claim(self.terms.run, _mark(plan, Step.CONSENT))
        return messages.signed(self._identity, messages.write_consent(plan, self.client, survivors))

    def reveal(self, message: bytes) -> bytes:
        """Open this member's shares of what the sum of the survivors needs, once."""
        plan = self._current_as_member()
        survivors, consenting = messages.read_unmask(message, plan, self._book)
        check_survivors(plan, survivors)
        if self.terms.signed and len(consenting) < plan.threshold:
            raise WireError(f"{len(consenting)} members signed these survivors, but it takes {plan.threshold}")
        self._attempts.claim(self.terms.run, _mark(plan, Step.REVEAL))
        wanted = secrets_to_open(plan, survivors)
        all_pads = pads([self._share_key(dealer, self.client) for dealer in wanted], num_secrets(plan))
        opened = np.concatenate([own[places] for own, places in zip(all_pads, wanted.values(), strict=True)])
        self._plan = None
        frame = messages.write_reveal(plan, self.client, pack_elements(opened))
        return messages.signed(self._identity, frame)

    def _pair_seed(self, plan: SumPlan, other: int) -> bytes:
        return pair_seed(self._pairs[other], plan.hash, self.client, other)

    def _share_key(self, dealer: int, member: int) -> bytes:
        other = member if dealer == self.client else dealer
        return share_key(self._pairs[other], self._current().hash, dealer, member)

    def _current(self) -> SumPlan:
        if self._plan is None:
            raise WireError(f"client {self.client} has no round under way")
        return self._plan

    def _current_as_member(self) -> SumPlan:
        plan = self._current()
        if self.client not in plan.point:
            raise WireError(f"client {self.client} is not in the committee")
        return plan


def _mark(plan: SumPlan, step: Step) -> Mark:
    return Mark(plan.round, plan.attempt, step, plan.hash)


def check_survivors(plan: SumPlan, survivors: tuple[int, ...]) -> None:
    """Refuse a survivor set whose sum must not be opened."""
    if len(survivors) < plan.min_cohort:
        raise WireError(f"{len(survivors)} survivors, but a sum of fewer than {plan.min_cohort} is not opened")
    if not plan.connected(survivors):
        raise WireError("the survivors fall apart into groups without a common mask")
