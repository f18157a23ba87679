"""Records are read once, and again when a run begins after they changed; the work of old runs leaves memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from node_tools import Small

from laconic.federation.node.kept import KeptRecords, KeptWork
from laconic.federation.node.node import Node
from laconic.guard.folder import NodeFolder


class Counted:
    def __init__(self) -> None:
        self.reads = 0

    def __call__(self) -> Any:
        self.reads += 1
        return self.reads


def test_a_file_is_read_again_when_it_has_changed(tmp_path: Path) -> None:
    file, load = tmp_path / "data.csv", Counted()
    file.write_text("a")
    kept = KeptRecords(load, file)
    assert [kept.read(), kept.read()] == [1, 1]
    file.write_text("ab")
    assert [kept.read(), kept.read()] == [2, 2]
    (tmp_path / "new.csv").write_text("ab")
    (tmp_path / "new.csv").replace(file)  # as long as before, perhaps as old, but another file
    assert kept.read() == 3


def test_a_folder_is_read_again_when_a_picture_has_come(tmp_path: Path) -> None:
    load = Counted()
    kept = KeptRecords(load, tmp_path)
    (tmp_path / "cat").mkdir()
    (tmp_path / "cat/1.png").write_text("x")
    assert [kept.read(), kept.read()] == [1, 1]
    (tmp_path / "cat/2.png").write_text("x")
    assert kept.read() == 2


def test_a_loader_of_the_owners_own_is_asked_for_every_run() -> None:
    load = Counted()
    kept = KeptRecords(load, None)
    assert [kept.read(), kept.read()] == [1, 2]


def test_the_work_of_the_last_runs_is_kept() -> None:
    kept, made = KeptWork(2), Counted()
    assert [kept.of(run, made) for run in (b"a", b"b", b"a", b"c", b"a", b"b")] == [1, 2, 1, 3, 1, 4]


def test_a_run_trains_on_the_records_that_it_began_with(tmp_path: Path) -> None:
    """Over two rounds of one process the records are read once."""
    small, load = Small(tmp_path), Counted()
    clients = small.join()
    kept = KeptWork(2)

    def records(offer: Any) -> Any:
        load()
        return small.population.records(0)

    node = Node(
        NodeFolder(tmp_path / "node-0"),
        small.policy,
        model=small.node(0)._model,
        records=records,
        kept=kept,
        nonces=small.processes[0],
    )
    for round in (1, 2):
        asked = clients.requests(small.plan(clients, round=round), clients.model.initial)[0]
        assert "upload" in node.answer("upload", asked)
    assert load.reads == 1
