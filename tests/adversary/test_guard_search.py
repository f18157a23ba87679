"""Whatever a server sends and an owner does, in every order up to a bound: no ε in the log is too small, no mask is
used twice, and nothing is sent that was not charged before. Where a fix is undone, the search finds the sequence.

LACONIC_SEARCH_SECONDS gives the random part more time than its default.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from guard_search import HONEST, LIES, OWNER, STEPS, Found, explored, replayed, wandered

from laconic.guard import limits, protect
from laconic.guard.contract import Contract, Release
from laconic.guard.guard import Guard
from laconic.guard.ledger import Price
from laconic.guard.transcript import JOINED, REFUSED, UPLOADED, LoggedAttempts, Transcript
from laconic.secagg import attempts as nonces
from laconic.secagg.attempts import Mark, Nonces, Step

SECONDS = float(os.environ.get("LACONIC_SEARCH_SECONDS", "20"))


def test_every_short_sequence_keeps_the_promises() -> None:
    assert explored(3) > 1_000


def test_random_long_sequences_keep_them() -> None:
    assert wandered(SECONDS, 14, seed=int.from_bytes(os.urandom(4), "little")) > 10 * SECONDS


def offers_replaced(patch: pytest.MonkeyPatch) -> None:
    """A run may be offered anew, with other terms; the newest count."""
    patch.setattr(Guard, "_knows", lambda self, signed, contract: False)

    def newest(self: Guard, run: bytes) -> Any:
        rows = [row for row in self._folder.log.rows(run) if row["what"] == JOINED]
        return rows[-1] if rows else None

    patch.setattr(Guard, "_row", newest)


def priced_by_the_last_offer(patch: pytest.MonkeyPatch) -> None:
    """The log prices all uploads of a run by what the run costs now."""
    offers_replaced(patch)

    def charged(rows: Sequence[dict[str, Any]]) -> list[Price]:
        rows = list(rows)
        last = {row["run"]: Contract.from_row(row["contract"]) for row in rows if row["what"] == JOINED}
        uploads = [(last[row["run"]], row["round"]) for row in rows if row["what"] == UPLOADED]
        return [Price.of(contract, contract.release(round)) for contract, round in uploads]

    patch.setattr(limits, "charged", charged)


def work_kept_by_run(patch: pytest.MonkeyPatch) -> None:
    """The noise is that of the first offer of a run, the price that of the newest."""
    offers_replaced(patch)
    kept: dict[bytes, Contract] = {}
    share = Contract.share_scale

    def first(self: Contract, release: Release, cohort: int) -> float:
        before = kept.setdefault(self.run, self)
        scale = share(before, before.release(1), cohort)
        return scale * release.units / before.release(1).units

    patch.setattr(Contract, "share_scale", first)


def set_back_unnoticed(patch: pytest.MonkeyPatch) -> None:
    """Nothing shows that a log was restored."""
    patch.setattr(Transcript, "_set_back", lambda self, noted: None)
    patch.setattr(Transcript, "_noted", lambda self: (0, ""))


def set_back_and_nonces_repeated(patch: pytest.MonkeyPatch) -> None:
    """Nor is there anything fresh in a plan."""
    set_back_unnoticed(patch)
    patch.setattr(nonces, "secrets", SimpleNamespace(token_bytes=bytes))


def charged_never(patch: pytest.MonkeyPatch) -> None:
    claim = LoggedAttempts.claim

    def claimed(self: LoggedAttempts, run: bytes, mark: Mark) -> None:
        if mark.step != Step.UPLOAD:
            claim(self, run, mark)

    patch.setattr(LoggedAttempts, "claim", claimed)


def attempts_repeated(patch: pytest.MonkeyPatch) -> None:
    """A plan is accepted as often as it comes."""
    patch.setattr(Nonces, "check", lambda self, run, nonce: None)
    patch.setattr(Nonces, "spend", lambda self, run, nonce: None)
    for module in ("laconic.secagg.client", "laconic.guard.transcript"):
        patch.setattr(f"{module}.check_forward", lambda *some: None)


def lifetimes_unlimited(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(limits, "against_lifetime", lambda *some: [])


def noise_of_the_planned_cohort(patch: pytest.MonkeyPatch) -> None:
    """A share of the noise as if nobody could be missing."""
    patch.setattr(Contract, "share_scale", lambda self, release, cohort: release.share_scale(cohort))


def unbounded(patch: pytest.MonkeyPatch) -> None:
    """Training is believed to have clipped."""
    patch.setattr(protect, "bounded", lambda release, vector: np.asarray(vector, dtype=np.float32))


SHORT = ("join a", "round 1 of a", "round 2 of a", "the same run, cheaper", "a round of the cheaper one")
SHORT = (*SHORT, "join b", "round 1 of b", "the same plan again", "delete the run's folder", "ask for the nonce")
LONG = ("join a", "round 1 of a", "round 2 of a", "back up", "restore in place", "restart", "ask for the nonce")


def exhaustive() -> None:
    """Short sequences with many steps, then long ones with those around a backup."""
    explored(4, steps={name: STEPS[name] for name in SHORT}, seconds=60)
    explored(8, steps={name: STEPS[name] for name in LONG}, seconds=60)


@pytest.mark.parametrize(
    ("sabotage", "words"),
    [
        (priced_by_the_last_offer, "and the log says"),
        (work_kept_by_run, "and the log says"),
        (set_back_unnoticed, "and the log says"),
        (set_back_and_nonces_repeated, "a mask was used twice"),
        (charged_never, "nothing is charged on disk"),
        (attempts_repeated, "a mask was used twice"),
        (lifetimes_unlimited, "the policy allowed no more"),
        (noise_of_the_planned_cohort, "and the log says"),
        (unbounded, "longer than its bound"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_each_fix_is_missed_when_it_is_undone(
    sabotage: Callable[[pytest.MonkeyPatch], None], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sabotage(monkeypatch)
    with pytest.raises(Found, match=words):
        exhaustive()


def test_a_mended_offer_is_refused_by_each_of_its_two_fixes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of another offer of the same run either is enough: it is refused, and uploads keep their own price."""
    offers_replaced(monkeypatch)
    explored(3)


HIDDEN = ("join a", "back up", "round 1 of a", "restore in place", "restart", "ask for the nonce")
HIDDEN = (*HIDDEN, "restart", "ask for the nonce", "round 1 of a")
"""The log is set back, and what the node refuses then is written to it."""


def test_a_refusal_that_is_written_to_a_log_that_was_set_back_hides_that(monkeypatch: pytest.MonkeyPatch) -> None:
    def written(self: Transcript, run: bytes, **values: Any) -> None:
        before, self._restored = self.restored, None
        self.add(REFUSED, run, **values)
        self._restored = before

    monkeypatch.setattr(Transcript, "add_refusal", written)
    with pytest.raises(Found, match="and the log says"):
        replayed(*HIDDEN)


@pytest.mark.parametrize(
    "path",
    [
        HIDDEN,
        ("join a", "round 1 of a", "delete the run's folder", "the same run, cheaper", "a round of the cheaper one"),
        ("join a", "back up", "round 1 of a", "restore in place", "restart", "ask for the nonce", "round 1 of a"),
        ("join a", "back up", "round 1 of a", "restore in place", "the same plan again", "open"),
        ("join a", "killed at write 0", "round 1 of a", "the same plan again", "ask for the nonce", "round 2 of a"),
        (
            "join a",
            "disk full at the write after",
            "round 1 of a",
            "round 1 of a",
            "open without one",
            "open without another",
        ),
        ("join a", "rotate keys", "round 1 of a", "move the folder", "ask for the nonce", "round 2 of a"),
    ],
    ids=" → ".join,
)
def test_sequences_that_once_broke_a_promise(path: tuple[str, ...]) -> None:
    replayed(*path)


def test_the_steps_are_those_of_servers_and_owners() -> None:
    assert len(HONEST) + len(LIES) + len(OWNER) == len(STEPS)
