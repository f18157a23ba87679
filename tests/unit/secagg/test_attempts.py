"""No step of an attempt is taken twice, not even after a restart, a crash or by a second process."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from secagg_tools import identity_of, make_plan, make_terms

from laconic.errors import PrivacyError
from laconic.guard.transcript import LoggedAttempts, Transcript
from laconic.secagg.attempts import Attempts, AttemptsInMemory, Mark, Step
from laconic.secagg.client import SecAggClient
from laconic.secagg.crypto.keys import RunKey
from laconic.secagg.server import SecAggServer

RUN, OTHER = b"r" * 16, b"s" * 16


def mark(round: int, attempt: int, step: Step, plan: bytes = b"plan") -> Mark:
    return Mark(round, attempt, step, plan)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2), st.sampled_from(Step)), max_size=30))
def test_marks_only_go_forward(claims: list[tuple[int, int, Step]]) -> None:
    attempts = AttemptsInMemory()
    taken: list[Mark] = []
    for claim in (mark(*claim) for claim in claims):
        if taken and claim <= taken[-1]:
            with pytest.raises(PrivacyError, match="is past it"):
                attempts.claim(RUN, claim)
        else:
            attempts.claim(RUN, claim)
            taken.append(claim)
    assert attempts.last(RUN) == (taken[-1] if taken else None)
    assert len(set(taken)) == len(taken)


def test_runs_are_apart_and_an_attempt_has_one_plan() -> None:
    attempts = AttemptsInMemory()
    attempts.claim(RUN, mark(5, 1, Step.UPLOAD))
    attempts.claim(OTHER, mark(1, 0, Step.UPLOAD))
    with pytest.raises(PrivacyError, match="round 5, attempt 1: this client has begun it under another plan"):
        attempts.claim(RUN, mark(5, 1, Step.REVEAL, b"another"))
    attempts.claim(RUN, mark(5, 2, Step.UPLOAD, b"another"))
    assert attempts.last(OTHER) == mark(1, 0, Step.UPLOAD)


def test_a_client_that_crashed_after_its_claim_never_masks_under_that_attempt_again(tmp_path: Path) -> None:
    """The upload may have left or not, and the client cannot know. It can still help to unmask, once."""
    terms, key = make_terms(max_dropouts=1), RunKey.generate()
    path = tmp_path / "log.jsonl"

    def victim_with(attempts: Attempts) -> SecAggClient:
        return SecAggClient(0, terms, identity=identity_of(0), attempts=attempts, agreement=key)

    server = SecAggServer(terms)
    others = {number: SecAggClient(number, terms, identity=identity_of(number)) for number in (1, 2)}
    attempts = LoggedAttempts(Transcript(path))
    victim = victim_with(attempts)
    for member in (victim, *others.values()):
        server.register(member.announce())
    nonces = {number: member.nonce for number, member in others.items()}
    round = server.begin(make_plan(terms, range(3)).with_nonces({0: victim.nonce} | nonces))
    victim.begin(round.plan_for(0))
    victim.upload(np.arange(6))  # lost
    for number, other in others.items():
        other.begin(round.plan_for(number))
        round.accept_upload(other.upload(np.arange(6)))
    round.close_uploads()

    attempts = LoggedAttempts(Transcript(path))
    victim = victim_with(attempts)
    server.register(victim.announce())
    victim.begin(round.plan_for(0))
    with pytest.raises(PrivacyError, match="round 1, attempt 0: this client is past it"):
        victim.upload(np.arange(6))
    request = round.unmask_request()
    for member in (victim, others[1]):
        round.accept_reveal(member.reveal(request))
    assert round.open().total.tolist() == [0, 2, 4, 6, 8, 10]

    attempts = LoggedAttempts(Transcript(path))
    victim = victim_with(attempts)
    with pytest.raises(PrivacyError, match="round 1, attempt 0: this client is past it"):
        victim.begin(round.plan_for(0))
    server.register(victim.announce())
    later = server.begin(make_plan(terms, range(3), attempt=1).with_nonces({0: victim.nonce}))
    victim.begin(later.plan_for(0))
    assert later.accept_upload(victim.upload(np.arange(6))) == 0
