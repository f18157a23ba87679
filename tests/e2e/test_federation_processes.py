"""The processes of a federation: killed while they work, and watched over many rounds. Each test takes minutes."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest
from e2e_tools import COMMAND, charges, rounds
from process_tools import PRIVATE, kill, started, wait_for_rounds, wait_until_gone, write_config

pytest.importorskip("flwr", reason="flwr is not installed: pip install '.[flower]'")

from laconic.guard.folder import NodeFolder
from laconic.guard.transcript import UPLOADED

pytestmark = [pytest.mark.e2e, pytest.mark.slow]


def wait_for_upload(node: Path, count: int, seconds: float = 200) -> None:
    """Until the node has written down that it uploads: the exchanges of that round are not over."""
    end = time.monotonic() + seconds
    while sum(row["what"] == UPLOADED for row in NodeFolder(node / "folder").log.rows()) < count:
        assert time.monotonic() < end
        time.sleep(0.02)


def test_nodes_and_couriers_that_are_killed_at_work(tmp_path: Path) -> None:
    """A node dies between the exchanges of round 2, another while it trains, and couriers: all are started again."""
    config = write_config(
        tmp_path / "config.toml",
        **PRIVATE,
        scheme__name="fl-std-dp",
        run__rounds=5,
        sampler__max_dropouts=2,
        federation__round_timeout=90.0,
    )
    folder = tmp_path / "run"
    nodes = [folder / f"federation/node-{number}" for number in range(5)]
    with started([*COMMAND, "federate", str(config), "--out", "run", "--json"], tmp_path) as running:
        wait_for_rounds(folder, 1)
        wait_for_upload(nodes[0], 2)
        kill("laconic.federation.trial.node", str(nodes[0]))
        wait_for_rounds(folder, 2)
        kill("laconic.federation.trial.node", str(nodes[1]))
        wait_for_upload(nodes[2], 3)
        kill("--runtime", str(nodes[2]))
        wait_for_rounds(folder, 3)
        kill("--runtime", str(nodes[3]))
        out, told = running.communicate(timeout=900)
    assert running.returncode == 0, told
    history = rounds(folder)
    assert [row["round"] for row in history] == [1, 2, 3, 4, 5]
    assert not any("discarded" in row for row in history)
    assert history[-1]["messages_up"] == 5, "not all nodes came back"
    summary = json.loads(out)
    assert summary["statement"]["released"]["rounds_charged"] == len(charges(folder)) == 5
    counted = 0
    for node in nodes:
        uploads = [
            (row["round"], row["attempt"]) for row in NodeFolder(node / "folder").log.rows() if row["what"] == UPLOADED
        ]
        assert len(set(uploads)) == len(uploads), "an attempt was uploaded to twice"
        assert len(uploads) <= summary["statement"]["participant"]["participations"]
        counted += len(uploads)
    assert counted >= sum(row["messages_up"] for row in history)
    wait_until_gone(tmp_path)


PROGRAMS = ("trial.node", "courier", "flower-supernode", "flower-superlink", "flower-superexec", "flwr-serverapp")


def resident(folder: Path) -> dict[str, list[int]]:
    """Resident sets of the trial's processes by program; `zombies` has an entry for each that nobody waited for."""
    found: dict[str, list[int]] = {"zombies": []}
    for process in Path("/proc").glob("[0-9]*"):
        try:
            state, parent = (process / "stat").read_text().rpartition(")")[2].split()[:2]
            of = Path(f"/proc/{parent}") if state == "Z" else process  # a zombie has no environment any more
            if str(folder).encode() not in (of / "environ").read_bytes() + (of / "cmdline").read_bytes():
                continue
            line = (process / "cmdline").read_bytes().decode()
            pages = int((process / "statm").read_text().split()[1])
        except OSError:
            continue
        name = "zombies" if state == "Z" else next((name for name in PROGRAMS if name in line), "other")
        found.setdefault(name, []).append(pages * os.sysconf("SC_PAGE_SIZE"))
    return found


def test_twenty_nodes_for_fifty_rounds(tmp_path: Path) -> None:
    config = write_config(
        tmp_path / "config.toml",
        **PRIVATE,
        scheme__name="fl-std-dp",
        run__rounds=50,
        data__num_clients=20,
        federation__nodes=20,
        sampler__max_dropouts=2,
    )
    folder = tmp_path / "run"
    with started([*COMMAND, "federate", str(config), "--out", "run", "--json"], tmp_path) as running:
        wait_for_rounds(folder, 5)
        early = resident(folder)
        wait_for_rounds(folder, 49, seconds=3000)
        late = resident(folder)
        _, told = running.communicate(timeout=600)
    assert running.returncode == 0, told
    assert early.pop("zombies") == late.pop("zombies") == []
    assert {name: len(sizes) for name, sizes in late.items()} == {name: len(sizes) for name, sizes in early.items()}
    figures = {name: (max(sizes) // 10**6, max(late[name]) // 10**6) for name, sizes in early.items()}
    print(f"megabytes after round 5 and after round 49: {figures}")
    for name, sizes in early.items():
        assert max(late[name]) <= 1.1 * max(sizes), figures
    assert len(rounds(folder)) == 50
    wait_until_gone(tmp_path)
