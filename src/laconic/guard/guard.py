"""The guard: it decides what a node promises and sends, in an order that no message can change.

    who asks  →  what the owner allows and declares  →  what it costs  →  charged on disk  →  the records

`join` and `charge` are answered from offers, policy and transcript alone, so their answers are equal, byte for byte,
for any two sets of records. Between `charge` and `send` the node trains, outside the guard. What it hands over is
bounded, noised and masked here. If there is nothing to hand over, because the records cannot be used, noise alone is
sent, which looks like any other code.

The guard believes nothing of what training, data, models and couriers say. It has the secrets of the node: its keys,
its nonces and its noise. In two cases training must be believed as well. Schemes without secure sums send what training
hands over, unchanged. And where single patients or records are protected, training clips each of them, since their sum
cannot be clipped afterwards.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from laconic.errors import PrivacyError, WireError
from laconic.guard import limits, protect
from laconic.guard.contract import Contract, Release, SignedOffer, verify_offer
from laconic.guard.folder import NodeFolder
from laconic.guard.ledger import Price, composed
from laconic.guard.noise import Entropy, Source
from laconic.guard.policy import Policy
from laconic.guard.roster import beacon_of, check_listed, check_roster, read_roster
from laconic.guard.transcript import JOINED, UPLOADED, LoggedAttempts, Row
from laconic.guard.withheld import Withheld, on_own_keys
from laconic.secagg.attempts import Nonces
from laconic.secagg.client import SecAggClient
from laconic.secagg.crypto.keys import PublicKeys
from laconic.secagg.terms import Terms

_Sources = Callable[[int, int, int], Source]
"""The words of a client's noise, by round, attempt and client."""


@dataclass(frozen=True)
class Ticket:
    """One upload that is charged: what may be sent once, and nothing else."""

    client: int
    contract: Contract
    release: Release
    round: int
    attempt: int
    cohort: tuple[int, ...]
    share: float
    """The scale of this node's share of the noise, in grid units; 0 where no sum is masked."""
    member: SecAggClient | None


class Guard:
    """The guard of one node. `nonces` are those of its process; `sources` makes noise repeatable, for tests alone."""

    def __init__(self, folder: NodeFolder, policy: Policy, nonces: Nonces, *, sources: _Sources | None = None) -> None:
        if sources is not None and not policy.allow_test_seed:
            raise PrivacyError("noise that could be repeated is for tests, and the policy does not allow it")
        self._folder, self._policy, self._nonces, self._sources = folder, policy, nonces, sources

    # Joining

    def read(self, data: bytes) -> tuple[SignedOffer, Contract]:
        """The server and the contract of an offer, if this node may join it. Nothing is written."""
        signed = verify_offer(data)
        _refuse(limits.against_server(self._policy, signed.server))
        contract = Contract.read(signed)
        new = not self._knows(signed, contract)
        if new:
            rows = self._folder.log.rows()
            _refuse(limits.against_asking(self._policy, rows, signed.server.hex()), withheld=True)
        _refuse(_allowed(self._policy, contract))
        if new:  # An accepted run is judged upload by upload. Here a server could ask any number of times what is left.
            self._within_lifetime(contract, limits.planned_prices(contract))
        return signed, contract

    def join(self, data: bytes, **about: Any) -> bytes:
        """Accept an offer, and announce this node's key of the run. `about` goes into the row for others to read: the
        guard decides nothing by it."""
        signed, contract = self.read(data)
        if not self._knows(signed, contract):
            self._folder.log.add(
                JOINED,
                contract.run,
                offer=contract.digest.hex(),
                client=signed.client,
                server=signed.server.hex(),
                scheme=contract.name,
                spare_rounds=contract.spare_rounds,
                contract=contract.row(),
                **about,
            )
        return self._keys(signed.client, contract).announcement(contract.run)

    def joined(self, run: bytes) -> tuple[int, Contract]:
        """The node's number in a run that it has joined, and the contract, if the policy still allows it."""
        row = self._row(run)
        if row is None:
            raise WireError(f"this node has not joined run {run.hex()[:8]}…")
        if "contract" not in row:
            raise WireError("this node joined the run with an older version of laconic: finish the run with that")
        contract = Contract.from_row(row["contract"])
        _refuse(limits.against_server(self._policy, contract.server))
        _refuse(_allowed(self._policy, contract))
        return row["client"], contract

    def _row(self, run: bytes) -> Row | None:
        return next((row for row in self._folder.log.rows(run) if row["what"] == JOINED), None)

    def _knows(self, signed: SignedOffer, contract: Contract) -> bool:
        """Whether this very offer was accepted before. One run has one offer, for ever."""
        row = self._row(contract.run)
        if row is None:
            return False
        if row.get("offer") != contract.digest.hex() or row.get("client") != signed.client:
            raise PrivacyError("this node has accepted another offer of the same run")
        return True

    def _keys(self, client: int, contract: Contract) -> PublicKeys:
        with on_own_keys():
            agreement, identity = self._folder.agreement(contract.run), self._folder.identity()
        return PublicKeys.signed(contract.context, client, agreement, identity)

    # A round

    def charge(
        self, run: bytes, round: int, attempt: int, *, plan: bytes = b"", roster: bytes = b"", **about: Any
    ) -> Ticket:
        """Agree to one upload, and write down what it costs: before anything that depends on records happens."""
        client, contract = self.joined(run)
        if not contract.masked:
            release, paid = self._afforded(contract, (round, attempt), None)
            steps = release.steps
            noise = None if steps is None else {"share": steps.scale / steps.units, "step": 1 / steps.units}
            self._folder.log.add(UPLOADED, run, round=round, attempt=attempt, **about | paid | {"noise": noise})
            return Ticket(client, contract, release, round, attempt, (client,), 0.0, None)
        if roster:
            self._keep_roster(client, contract, roster)
        attempts = LoggedAttempts(self._folder.log)
        member = self._member(run, attempts)
        told = member.begin(plan)
        if (told.round, told.attempt) != (round, attempt):
            raise WireError("the plan of the sum is of another round than the message")
        if told.cohort[-1] >= contract.num_clients:
            raise WireError(f"a cohort with client {told.cohort[-1]}, but the offer is to {contract.num_clients}")
        release, paid = self._afforded(contract, (round, attempt), len(told.cohort))
        if (told.bits, told.size) != (release.bits, release.code_size):
            raise WireError(
                f"a sum of {told.size} values of {told.bits} bits; the scheme has {release.code_size} of {release.bits}"
            )
        share = contract.share_scale(release, len(told.cohort))
        noise = {"share": share / release.units, "step": 1 / release.units}
        attempts.values = about | paid | {"noise": noise}
        member.commit()
        self._folder.keep(run, "plan", plan)
        return Ticket(client, contract, release, round, attempt, told.cohort, share, member)

    def send(self, ticket: Ticket, vector: np.ndarray | None) -> bytes:
        """The masked code of a charged round: what training says, bounded and noised. Of None, and of what is no
        vector of the right kind, it is the noise alone: a refusal would depend on the records."""
        assert ticket.member is not None, "what is sent in the clear is not the guard's"
        source: Source = Entropy()
        if self._sources is not None:
            source = self._sources(ticket.round, ticket.attempt, ticket.client)
        try:
            code = protect.residues(ticket.release, vector, share=ticket.share, source=source)
        except Exception as error:
            self._folder.note_records(f"round {ticket.round}: {error}")
            code = protect.residues(ticket.release, None, share=ticket.share, source=source)
        return ticket.member.mask(code)

    def consent(self, run: bytes, survivors: bytes) -> bytes:
        """Signed mode: sign the one set of survivors."""
        return self._as_member(run).consent(survivors)

    def reveal(self, run: bytes, request: bytes) -> bytes:
        """Open this member's shares of what the sum of the survivors needs."""
        return self._as_member(run).reveal(request)

    def nonce(self, run: bytes) -> bytes:
        """What the next plan of the run must have in this node's place. It is in no file."""
        return self._nonces.current(run)

    def check_tries(self, server: bytes) -> None:
        """Refuse a server whose uploads were refused too often for what other servers were given."""
        _refuse(limits.against_trying(self._policy, self._folder.log.rows(), server.hex()), withheld=True)

    def _afforded(
        self, contract: Contract, upload: limits.Upload, cohort: int | None
    ) -> tuple[Release, dict[str, Any]]:
        """The kind of round that it is, if the limits leave room for it, and what the row of the upload says.

        `cohort` is the number of announced nodes; None where codes are sent in the clear.
        """
        self.check_tries(contract.server)
        rows = self._folder.log.rows(contract.run)
        _refuse(limits.against_upload(self._policy, contract, rows, upload, cohort or 1))
        prices = [*limits.charged(rows), limits.priced(contract, rows, upload)]
        self._within_lifetime(contract, prices[-1:])
        figure = None if contract.delta is None else composed(prices, contract.delta, contract.unit)
        return contract.release(upload[0]), {
            "offer": contract.digest.hex(),
            "cohort": cohort,
            "participations": len(prices),
            "unit": contract.unit,
            "participant_epsilon": figure,
            "price": prices[-1].row(),
        }

    def _within_lifetime(self, contract: Contract, prices: list[Price]) -> None:
        reasons = limits.against_lifetime(self._policy, self._folder.log.rows(), prices)
        if reasons:
            raise Withheld("; ".join(reasons), past=contract.server.hex())

    def _keep_roster(self, client: int, contract: Contract, roster: bytes) -> None:
        """Keep the roster, once; it never changes afterwards."""
        check_roster(
            roster, contract.context, contract.num_clients, self._keys(client, contract), self._policy.identities
        )
        known = self._folder.kept(contract.run, "roster")
        if known is not None and known != roster:
            raise PrivacyError("the server has told this node another roster before")
        if known is None:
            self._folder.keep(contract.run, "roster", roster)
        terms = asdict(contract.terms(beacon_of(contract.run, roster)))
        fields = {name: value.hex() if isinstance(value, bytes) else value for name, value in terms.items()}
        self._folder.keep(contract.run, "terms", json.dumps({"client": client} | fields).encode())

    def _as_member(self, run: bytes) -> SecAggClient:
        self.joined(run)
        plan = self._folder.kept(run, "plan")
        if not plan:
            raise WireError("this node has no round under way")
        member = self._member(run, LoggedAttempts(self._folder.log))
        member.begin(plan)
        return member

    def _member(self, run: bytes, attempts: LoggedAttempts) -> SecAggClient:
        """The node's side of the masked sum, as its folder has it."""
        terms, roster = self._folder.kept(run, "terms"), self._folder.kept(run, "roster")
        if terms is None or roster is None:
            raise WireError("this node was not told the roster of the run")
        fields = json.loads(terms)
        client = fields.pop("client")
        fields |= {name: bytes.fromhex(fields[name]) for name in ("run", "offer", "beacon")}
        entries = read_roster(roster)
        check_listed(entries, self._policy.identities)
        with on_own_keys():
            identity, agreement = self._folder.identity(), self._folder.agreement(run)
        return SecAggClient(
            client,
            Terms(**fields),
            identity=identity,
            identities={entry.client: entry.identity for entry in entries},
            attempts=attempts,
            agreement=agreement,
            roster=entries,
            nonces=self._nonces,
        )


@functools.lru_cache(maxsize=64)
def _allowed(policy: Policy, contract: Contract) -> tuple[str, ...]:
    """Why the policy does not allow the run as it was offered: of an offer and a policy always the same."""
    return tuple(limits.against_contract(policy, contract))


def _refuse(reasons: Sequence[str], *, withheld: bool = False) -> None:
    if reasons:
        told = "; ".join(reasons)
        raise Withheld(told) if withheld else PrivacyError(told)
