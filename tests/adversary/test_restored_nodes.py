"""A node's folder is set back in place, as a person would do it, and the server asks for the same attempt once more.

The log was changed by another program then, which the node notices, and goes on noticing. Were it not, as with a
snapshot of the whole disk, its log would have forgotten the last upload. Then the nonces, which are in no file, are in
the way.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from adversary_knowledge import Watch
from adversary_promises import leaks
from adversary_world import Attempt, World

from laconic.guard import transcript
from laconic.guard.transcript import JOINED, Transcript
from laconic.guard.withheld import WITHHELD
from laconic.secagg import attempts as nonces

VICTIM = 0
WAYS = {
    "cp": ("cp -a {node} {backup}", "cp -a {backup}/. {node}/"),
    "rsync": ("rsync -a {node}/ {backup}/", "rsync -a {backup}/ {node}/"),
    "tar": ("tar -C {node} -cf {backup} .", "tar -C {node} --overwrite -xf {backup}"),
}


@pytest.fixture
def watch() -> Iterator[Watch]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        yield Watch(patch)


class Owner:
    """Whoever keeps copies of the victim's folder, and sets it back."""

    def __init__(self, world: World, way: str) -> None:
        if shutil.which(way) is None:
            pytest.skip(f"{way} is not installed here")
        self._keep, self._back = (
            command.format(node=world.path / f"node-{VICTIM}", backup=world.path / "backup") for command in WAYS[way]
        )

    def keeps_a_copy(self) -> None:
        subprocess.run(self._keep.split(), check=True)
        if self._keep.startswith("rsync"):  # which leaves files alone that have the size and second of the copy
            time.sleep(1.1)

    def sets_it_back(self) -> None:
        subprocess.run(self._back.split(), check=True)


@pytest.mark.parametrize("way", WAYS)
def test_a_node_that_was_set_back_refuses_until_its_owner_has_looked(way: str, tmp_path: Path, watch: Watch) -> None:
    """Each refusal is a message of its own, and each time the folder is read by another process."""
    world = World(tmp_path)
    owner = Owner(world, way)
    world.invite_all()
    assert world.whole_round(world.attempt(round=1)) == []
    owner.keeps_a_copy()
    assert world.whole_round(world.attempt(round=2)) == []
    owner.sets_it_back()
    before = (tmp_path / f"node-{VICTIM}" / "log.jsonl").read_bytes()
    for attempt in range(3):
        world.restart(VICTIM)
        assert world.ask_upload(world.attempt(round=3, attempt=attempt), VICTIM) == WITHHELD
        assert world.invite(VICTIM) == WITHHELD
        assert "was restored" in str(world.folder(VICTIM).copied)
    assert (tmp_path / f"node-{VICTIM}" / "log.jsonl").read_bytes() == before, "to write to it would hide that"
    world.folder(VICTIM).log.accept()
    assert world.invite(VICTIM) == ""


def test_a_log_that_was_set_back_without_what_was_noted_of_it_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    log = Transcript(path)
    log.add(JOINED, bytes(16))
    before = path.read_bytes()
    log.add(JOINED, bytes(16))
    (tmp_path / "log.jsonl.length").unlink()
    assert Transcript(path).restored is None, "as if a kill had come between the row and the note"
    path.write_bytes(before)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(transcript, "_CRASH", -1.0)  # hours later
        assert "was restored" in str(Transcript(path).restored)


def replayed(world: World, way: str, *, restarted: bool) -> tuple[Attempt, str]:
    """A round, a copy, a round, the copy set back, and that round's plan again: its attempt, and why it is refused."""
    owner = Owner(world, way)
    world.invite_all()
    assert world.whole_round(world.attempt(round=1)) == []
    owner.keeps_a_copy()
    attempt = world.attempt(round=2)
    assert [world.ask_upload(attempt, client) for client in world.honest] == [""] * len(world.honest)
    owner.sets_it_back()
    folder = world.folder(VICTIM)
    assert folder.copied is not None
    folder.log._note()  # a snapshot of the whole disk brings back the inode and all its times
    assert world.folder(VICTIM).copied is None
    assert [round for round, _ in folder.log.uploads(world.offer.run)] == [1], "nothing was forgotten"
    if restarted:
        world.restart(VICTIM)
    again = replace(attempt, uploads={})  # the adversary has both uploads, and all else of the attempt once
    world.attempts.append(again)
    reason = world.ask_upload(again, VICTIM)
    for ask in (world.ask_consent, world.ask_reveal):
        for client in world.honest:
            ask(attempt, client, attempt.plan.cohort)
    return attempt, reason


@pytest.mark.parametrize("restarted", [True, False], ids=["restarted", "still running"])
@pytest.mark.parametrize("way", WAYS)
def test_a_node_that_was_set_back_in_place_masks_nothing_twice(
    way: str, restarted: bool, tmp_path: Path, watch: Watch
) -> None:
    world = World(tmp_path)
    attempt, reason = replayed(world, way, restarted=restarted)
    assert "another nonce than this client's" in reason
    assert len(attempt.reveals) + len(world.colluders) >= attempt.plan.threshold, "nothing could be opened at all"
    # The log has forgotten the upload, which no nonce can mend. Nothing but the whole sum is open.
    assert all("noise that was not logged" in complaint for complaint in leaks(world, watch))
    # The refusal brings the node's nonce, so it takes part again at once.
    assert world.whole_round(world.attempt(round=3)) == []
    masked = [set(upload.masks) for upload in watch.uploads if upload.node == VICTIM]
    assert len(masked) == 3
    assert not any(one & other for i, one in enumerate(masked) for other in masked[:i]), "a mask was used twice"


@pytest.mark.parametrize("restarted", [True, False], ids=["restarted", "still running"])
def test_with_nonces_that_repeat_the_difference_of_two_vectors_is_bare(
    restarted: bool, tmp_path: Path, watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sabotaged twin: the same folder, the same server, and a nonce that is always the same."""
    monkeypatch.setattr(nonces, "secrets", SimpleNamespace(token_bytes=bytes))
    world = World(tmp_path)
    _, reason = replayed(world, "cp", restarted=restarted)
    assert reason == ""
    first, second = [set(upload.masks) for upload in watch.uploads if upload.node == VICTIM and upload.plan.round == 2]
    assert len(first & second) == len(first) - 1, "all but the self-masks are the same"
    assert any("a difference of uploads can be opened" in complaint for complaint in leaks(world, watch))
