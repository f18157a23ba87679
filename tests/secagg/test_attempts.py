"""No step of an attempt is taken twice, not even after a restart, a crash or by a second process."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st
from secagg_tools import identity_of, make_plan, make_terms

from laconic.errors import PrivacyError, RunFolderError
from laconic.secagg import AttemptsInMemory, AttemptsOnDisk, SecAggClient, SecAggServer
from laconic.secagg.attempts import Attempts, Step

RUN, OTHER = b"r" * 16, b"s" * 16


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2), st.sampled_from(Step)), max_size=30))
def test_marks_only_go_forward(claims: list[tuple[int, int, Step]]) -> None:
    attempts = AttemptsInMemory()
    taken: list[tuple[int, int, int]] = []
    for claim in claims:
        if taken and claim <= taken[-1]:
            with pytest.raises(PrivacyError, match="is past it"):
                attempts.claim(RUN, *claim)
        else:
            attempts.claim(RUN, *claim)
            taken.append(claim)
    assert attempts.last(RUN) == (taken[-1] if taken else None)
    assert len(set(taken)) == len(taken)


def test_runs_are_apart() -> None:
    attempts = AttemptsInMemory()
    attempts.claim(RUN, 5, 1, Step.REVEAL)
    attempts.claim(OTHER, 1, 0, Step.UPLOAD)
    assert attempts.last(OTHER) == (1, 0, 1)


def test_a_claim_is_synced_to_disk_before_it_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "attempts.json"
    attempts = AttemptsOnDisk(path)
    events: list[str] = []
    sync, replace = os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda number: events.append("sync") or sync(number))
    monkeypatch.setattr(os, "replace", lambda a, b: events.append("replace") or replace(a, b))
    attempts.claim(RUN, 3, 1, Step.UPLOAD)
    assert events == ["sync", "replace", "sync"]
    assert json.loads(path.read_text()) == {RUN.hex(): [3, 1, 1]}
    attempts.close()


def test_a_restart_remembers(tmp_path: Path) -> None:
    path = tmp_path / "attempts.json"
    with AttemptsOnDisk(path) as first:
        first.claim(RUN, 3, 1, Step.CONSENT)
        first.claim(OTHER, 9, 0, Step.UPLOAD)
    with AttemptsOnDisk(path) as second:
        for claim in ((3, 1, Step.UPLOAD), (3, 1, Step.CONSENT), (3, 0, Step.REVEAL), (2, 9, Step.REVEAL)):
            with pytest.raises(PrivacyError, match="its last was round 3, attempt 1"):
                second.claim(RUN, *claim)
        second.claim(RUN, 3, 1, Step.REVEAL)
        assert second.last(OTHER) == (9, 0, 1)


def test_a_crash_while_writing_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "attempts.json"
    attempts = AttemptsOnDisk(path)
    attempts.claim(RUN, 1, 0, Step.UPLOAD)

    def full(number: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(RunFolderError, match="No space left on device; nothing was sent"):
            attempts.claim(RUN, 2, 0, Step.UPLOAD)
    attempts.close()
    with AttemptsOnDisk(path) as again:
        assert again.last(RUN) == (1, 0, 1)


@pytest.mark.parametrize(
    "content", ["", "{", "[]", '{"zz": [1, 2, 3]}', '{"00": [1]}', '{"00": "abc"}', '{"00": 5}', "\xff"]
)
def test_a_damaged_file_is_not_guessed_at(tmp_path: Path, content: str) -> None:
    path = tmp_path / "attempts.json"
    path.write_bytes(content.encode("latin-1"))
    with pytest.raises(RunFolderError, match="which attempts were used is not known"):
        AttemptsOnDisk(path)
    path.unlink()
    AttemptsOnDisk(path).close()  # the lock was given back


def test_two_processes_cannot_share_a_file(tmp_path: Path) -> None:
    first = AttemptsOnDisk(tmp_path / "attempts.json")
    with pytest.raises(RunFolderError, match="a client must not run twice"):
        AttemptsOnDisk(tmp_path / "attempts.json")
    first.close()
    AttemptsOnDisk(tmp_path / "attempts.json").close()
    with pytest.raises(RunFolderError, match="cannot open"):
        AttemptsOnDisk(tmp_path / "missing" / "attempts.json")


def test_a_client_that_crashed_after_its_claim_never_masks_under_that_attempt_again(tmp_path: Path) -> None:
    """The upload may have left or not; the client cannot know, so the attempt is lost to it and the next one is not."""
    terms, key = make_terms(), X25519PrivateKey.generate()

    def client(
        number: int, attempts: Attempts | None = None, agreement: X25519PrivateKey | None = None
    ) -> SecAggClient:
        return SecAggClient(number, terms, identity=identity_of(number), attempts=attempts, agreement=agreement)

    server = SecAggServer(terms)
    attempts = AttemptsOnDisk(tmp_path / "attempts.json")
    victim = client(0, attempts, key)
    for member in (victim, client(1), client(2)):
        server.register(member.announce())
    round = server.begin(make_plan(terms, range(3)))
    plan = round.plan_for(0)
    victim.begin(plan)
    victim.upload(np.arange(6))
    attempts.close()

    with AttemptsOnDisk(tmp_path / "attempts.json") as attempts:
        restarted = client(0, attempts, key)
        with pytest.raises(PrivacyError, match="round 1, attempt 0: this client is past it"):
            restarted.begin(plan)
        server.register(restarted.announce())
        later = server.begin(make_plan(terms, range(3), attempt=1))
        restarted.begin(later.plan_for(0))
        assert later.accept_upload(restarted.upload(np.arange(6))) == 0
