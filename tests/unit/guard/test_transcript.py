"""The transcript: what was charged is on disk before it counts, a kill loses nothing, and a restored log shows.

The file system is the real one, and copies are made as a person makes them.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from laconic.errors import PrivacyError, RunFolderError
from laconic.guard.folder import NodeFolder
from laconic.guard.ledger import Price, Seen, composed
from laconic.guard.limits import charged
from laconic.guard.transcript import MOVED, UPLOADED, LoggedAttempts, Transcript
from laconic.secagg.attempts import Mark, Step

RUN, OTHER = b"r" * 16, b"s" * 16
PRICE = {"price": Price({"client": Seen(2.0)}).row()}


def mark(round: int, attempt: int, step: Step, plan: bytes = b"plan") -> Mark:
    return Mark(round, attempt, step, plan)


def log_of(path: Path) -> Transcript:
    """The log as another process sees it."""
    return Transcript(path / "log.jsonl")


# Attempts


def test_a_claim_is_synced_to_disk_before_it_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[str] = []
    sync = os.fsync
    monkeypatch.setattr(os, "fsync", lambda number: events.append("sync") or sync(number))
    LoggedAttempts(log_of(tmp_path)).claim(RUN, mark(3, 1, Step.UPLOAD))
    assert events[0] == "sync"
    row = json.loads((tmp_path / "log.jsonl").read_text())
    assert (row["what"], row["round"], row["attempt"], row["plan"]) == (UPLOADED, 3, 1, b"plan".hex())


def test_a_restart_remembers(tmp_path: Path) -> None:
    first = LoggedAttempts(log_of(tmp_path))
    first.claim(RUN, mark(3, 1, Step.CONSENT))
    first.claim(OTHER, mark(9, 0, Step.UPLOAD))
    second = LoggedAttempts(log_of(tmp_path))
    for claim in ((3, 1, Step.UPLOAD), (3, 1, Step.CONSENT), (3, 0, Step.REVEAL), (2, 9, Step.REVEAL)):
        with pytest.raises(PrivacyError, match="its last was round 3, attempt 1, consent"):
            second.claim(RUN, mark(*claim))
    second.claim(RUN, mark(3, 1, Step.REVEAL))
    assert second.last(OTHER) == mark(9, 0, Step.UPLOAD)


def test_a_full_disk_refuses_and_the_row_counts_if_it_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether it is on the disk cannot be known, so it is not undone: charged too much is no harm."""

    def full(number: int) -> None:
        raise OSError(28, "No space left on device")

    attempts = LoggedAttempts(log_of(tmp_path))
    attempts.claim(RUN, mark(1, 0, Step.UPLOAD))
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(RunFolderError, match="No space left on device; nothing was sent"):
            attempts.claim(RUN, mark(2, 0, Step.UPLOAD))
    again = LoggedAttempts(log_of(tmp_path))
    assert again.last(RUN) == mark(2, 0, Step.UPLOAD)
    again.claim(RUN, mark(3, 0, Step.UPLOAD))


def test_what_an_older_version_kept_is_taken_over_once(tmp_path: Path) -> None:
    folder = NodeFolder(tmp_path / "node")
    file = tmp_path / "node" / "attempts.json"
    file.write_text(json.dumps({RUN.hex(): [3, 1, 2, b"plan".hex()]}))
    folder.take_over()
    folder.take_over()
    assert folder.log.mark(RUN) == mark(3, 1, Step.CONSENT) and not file.exists()
    assert len(folder.log.rows()) == 1


@pytest.mark.parametrize(
    "content", ["", "{", "[]", '{"zz": [1, 2, 3, "00"]}', '{"00": [1, 2, 3]}', '{"00": [1, 2, 9, "00"]}', '{"00": 5}']
)
def test_a_damaged_file_of_an_older_version_is_not_guessed_at(tmp_path: Path, content: str) -> None:
    folder = NodeFolder(tmp_path / "node")
    (tmp_path / "node" / "attempts.json").write_text(content)
    with pytest.raises(RunFolderError, match="which attempts were used is not known"):
        folder.take_over()


# Rows


def test_rows_of_an_older_version_are_read_and_priced_one_by_one(tmp_path: Path) -> None:
    """They have no hash, and the cost of their run in each: the cheaper ones do not price the dearer ones."""
    dear = {"noise_multiplier": 2.0, "delta": 0.0}
    cheap = dear | {"noise_multiplier": 10_000.0}
    rows = [{"what": UPLOADED, "run": RUN.hex(), "round": n, "attempt": 0, "cost": dear} for n in range(40)]
    rows.append({"what": UPLOADED, "run": RUN.hex(), "round": 41, "attempt": 0, "cost": cheap})
    (tmp_path / "log.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    log = log_of(tmp_path)
    assert log.restored is None
    assert composed(charged(log.rows()), 1e-5) == pytest.approx(17.9, abs=0.1)
    log.add(UPLOADED, RUN, round=42, attempt=0, **PRICE)
    assert len(log_of(tmp_path).rows()) == 42


@pytest.mark.parametrize("change", ["a figure", "a row taken out", "rows exchanged", "a row without a hash"])
def test_rows_that_were_changed_are_noticed(tmp_path: Path, change: str) -> None:
    log = log_of(tmp_path)
    for round in range(4):
        log.add(UPLOADED, RUN, round=round, attempt=0, **PRICE)
    path = tmp_path / "log.jsonl"
    lines = path.read_text().splitlines()
    if change == "a figure":
        lines[1] = lines[1].replace("2.0", "9.0")
    elif change == "a row taken out":
        del lines[1]
        lines.append(lines[-1])
    elif change == "rows exchanged":
        lines[1], lines[2] = lines[2], lines[1]
    else:
        row = json.loads(lines[1])
        del row["chain"]
        lines[1] = json.dumps(row).ljust(len(lines[1]))
    path.write_text("\n".join(lines) + "\n")
    with pytest.raises(RunFolderError, match="line [23]: changed, or rows before it are missing"):
        log_of(tmp_path).rows()


# Set back


WAYS = {
    "cp": ("cp -a {node} {backup}", "cp -a {backup}/. {node}/"),
    "rsync": ("rsync -a {node}/ {backup}/", "rsync -a {backup}/ {node}/"),
    "rsync --inplace": ("rsync -a {node}/ {backup}/", "rsync -a --inplace {backup}/ {node}/"),
    "tar": ("tar -C {node} -cf {backup} .", "tar -C {node} --overwrite -xf {backup}"),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_log_that_was_set_back_in_place_is_noticed(tmp_path: Path, way: str) -> None:
    if shutil.which(way.split()[0]) is None:
        pytest.skip(f"{way} is not installed here")
    node = tmp_path / "node"
    keep, back = (command.format(node=node, backup=tmp_path / "backup").split() for command in WAYS[way])
    folder = NodeFolder(node)
    folder.log.add(UPLOADED, RUN, round=1, attempt=0, **PRICE)
    subprocess.run(keep, check=True)
    folder.log.add(UPLOADED, RUN, round=2, attempt=0, **PRICE)
    time.sleep(0.05)  # clocks of file systems tick a hundred times a second
    subprocess.run(back, check=True)
    with pytest.raises(RunFolderError, match="rows are missing"):
        folder.log.rows()  # the process remembers
    try:
        told = NodeFolder(node).copied or ""
    except RunFolderError as error:  # rsync leaves the note alone if its size and second are the same
        told = str(error)
    assert "laconic keys moved" in told or "rows are missing" in told


def test_an_owner_who_says_that_nothing_is_missing_is_believed_and_that_is_logged(tmp_path: Path) -> None:
    log = log_of(tmp_path)
    log.add(UPLOADED, RUN, round=1, attempt=0, **PRICE)
    time.sleep(0.05)
    os.chmod(tmp_path / "log.jsonl", 0o640)
    again = log_of(tmp_path)
    assert "was restored, or changed by another program" in (again.restored or "")
    again.accept()
    assert log_of(tmp_path).restored is None
    assert [row["what"] for row in log_of(tmp_path).rows()] == [UPLOADED, MOVED]


def test_a_move_of_the_folder_and_a_kill_between_a_row_and_its_note_are_no_restores(tmp_path: Path) -> None:
    folder = NodeFolder(tmp_path / "node")
    folder.log.add(UPLOADED, RUN, round=1, attempt=0, **PRICE)
    noted = (tmp_path / "node" / "log.jsonl.length").read_bytes()
    folder.log.add(UPLOADED, RUN, round=2, attempt=0, **PRICE)
    (tmp_path / "node" / "log.jsonl.length").write_bytes(noted)  # as before the second row
    os.rename(tmp_path / "node", tmp_path / "elsewhere")
    assert NodeFolder(tmp_path / "elsewhere").copied is None


def test_two_processes_see_each_others_rows(tmp_path: Path) -> None:
    first, second = log_of(tmp_path), log_of(tmp_path)
    first.add(UPLOADED, RUN, round=1, attempt=0, **PRICE)
    second.add(UPLOADED, OTHER, round=1, attempt=0, **PRICE)
    first.add(UPLOADED, RUN, round=2, attempt=0, **PRICE)
    assert len(second.rows()) == len(first.rows()) == 3
