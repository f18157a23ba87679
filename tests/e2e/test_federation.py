"""Federations of real processes: Flower's SuperLink and SuperNodes on this machine, with TLS and node keys."""

from __future__ import annotations

import json
import os
import signal
import time
from contextlib import suppress
from pathlib import Path

import pytest
from e2e_tools import COMMAND, charges, rounds
from process_tools import (
    PRIVATE,
    children_of,
    kill,
    laconic,
    pids_of,
    started,
    wait_for_rounds,
    wait_until_gone,
    write_config,
)

pytest.importorskip("flwr", reason="flwr is not installed: pip install '.[flower]'")
from safetensors.torch import load_file

from laconic.guard.folder import NodeFolder
from laconic.guard.transcript import UPLOADED

pytestmark = pytest.mark.e2e


def test_separate_processes_give_what_the_simulator_gives(tmp_path: Path) -> None:
    """FL-CS-DP with masked sums, keys from entropy and noise from a test's seed: the same weights, bit for bit."""
    scheme = PRIVATE | {"scheme.name": "fl-cs-dp", "scheme.ratio": 0.5, "scheme.num_chunks": 7}
    few = {"data.num_clients": 3, "federation.nodes": 3}
    config = write_config(tmp_path / "config.toml", **scheme | few)
    shares = ("--noise-draws", "per-client")  # as nodes draw them
    near = laconic("run", str(config), *shares, "--out", "near", "--quiet", cwd=tmp_path, unnamed=True)
    assert near.returncode == 0, near.stderr
    far = laconic("federate", str(config), "--out", "far", "--json", cwd=tmp_path, seed=True)
    assert far.returncode == 0, far.stderr
    ours, theirs = load_file(tmp_path / "far/model.safetensors"), load_file(tmp_path / "near/model.safetensors")
    assert ours.keys() == theirs.keys()
    assert all(ours[name].equal(theirs[name]) for name in ours)
    assert [r["accuracy"] for r in rounds(tmp_path / "far")] == [r["accuracy"] for r in rounds(tmp_path / "near")]
    assert charges(tmp_path / "far") == charges(tmp_path / "near")
    summary = json.loads(far.stdout)
    assert "it protects nothing" in str(summary["statement"]["assumptions"])
    assert summary["ledger"]["transport_upload_up"] > 0
    for number in range(3):
        log = NodeFolder(tmp_path / f"far/federation/node-{number}/folder").log.rows()
        assert [row["round"] for row in log if row["what"] == UPLOADED] == [1, 2]
    wait_until_gone(tmp_path)


@pytest.mark.slow
def test_a_strict_node_a_stranger_and_an_interrupted_run(tmp_path: Path) -> None:
    """A policy refuses, Ctrl-C leaves nothing running and a folder to go on with, a stranger is not let in."""
    config = write_config(tmp_path / "config.toml", **PRIVATE, scheme__name="fl-std-dp", scheme__noise_multiplier=7.0)
    (tmp_path / "strict.toml").write_text("max_epsilon = 0.5\nmax_delta = 1e-5\n")
    refused = laconic("federate", str(config), "--out", "refused", "--policy", "2=strict.toml", cwd=tmp_path)
    assert refused.returncode == 3
    assert "node 2" in refused.stderr
    assert "is above max_epsilon 0.5" in refused.stderr
    wait_until_gone(tmp_path)

    command = [*COMMAND, "federate", str(config), "--out", "run", "--set", "rounds=3"]
    with started(command, tmp_path) as running:
        wait_for_rounds(tmp_path / "run", 1)
        expect_refused(tmp_path / "run")
        running.send_signal(signal.SIGINT)
        _, told = running.communicate(timeout=60)
    assert running.returncode == 130
    assert "interrupted after round 1; go on with: laconic federate --out run --resume" in told
    wait_until_gone(tmp_path)

    resumed = laconic("federate", "--out", "run", "--resume", "--json", cwd=tmp_path)
    assert resumed.returncode == 0, resumed.stderr
    assert [row["round"] for row in rounds(tmp_path / "run")] == [1, 2, 3]
    charged = charges(tmp_path / "run")
    assert [number for number, _ in charged] in ([1, 2, 3], [1, 2, 2, 3])
    assert json.loads(resumed.stdout)["statement"]["participant"]["participations"] == len(charged)
    wait_until_gone(tmp_path)


@pytest.mark.slow
def test_nodes_and_servers_that_are_killed(tmp_path: Path) -> None:
    """A SuperNode dies in round 2, the SuperLink in round 3, the server's process in round 4: the run finishes.

    All of them are started again, and the two spare rounds are enough.
    """
    config = write_config(
        tmp_path / "config.toml",
        **PRIVATE,
        scheme__name="fl-std-dp",
        run__rounds=5,
        sampler__max_dropouts=1,
        federation__round_timeout=90.0,
    )
    command = [*COMMAND, "federate", str(config), "--out", "run", "--json"]
    folder = tmp_path / "run"
    with started(command, tmp_path) as running:
        wait_for_rounds(folder, 1)
        kill("flower-supernode", str(folder / "federation/node-4/key"))
        wait_for_rounds(folder, 2)
        kill("flower-superlink", str(folder / "federation/link/state.db"))
        wait_for_rounds(folder, 3)
        os.kill(json.loads((folder / "process.json").read_text())["pid"], signal.SIGKILL)
        out, told = running.communicate(timeout=900)
    assert running.returncode == 0, told
    assert "the SuperLink died; the run goes on" in told
    assert "the server's process died; the run goes on" in told
    assert "node 4's SuperNode ended (signal 9) and is started again" in told
    history = rounds(folder)
    assert [row["round"] for row in history] == [1, 2, 3, 4, 5]
    assert not any("discarded" in row for row in history)
    assert history[-1]["messages_up"] == 5
    charged = charges(folder)
    assert {number for number, _ in charged} == {1, 2, 3, 4, 5}
    summary = json.loads(out)
    assert summary["statement"]["released"]["rounds_charged"] == len(charged)
    assert summary["federation"]["repeated_rounds"] == len(charged) - 5 <= 2
    assert summary["federation"]["incomplete"] == ""
    wait_until_gone(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("everything", [False, True], ids=["the command", "every process"])
def test_a_killed_trial_goes_on_within_a_minute(everything: bool, tmp_path: Path) -> None:
    """The SuperLink still takes the nodes for online, if nobody signed off for them."""
    config = write_config(tmp_path / "config.toml", **PRIVATE, scheme__name="fl-std-dp", run__rounds=3)
    folder, begun = tmp_path / "run", time.monotonic()
    with started([*COMMAND, "federate", str(config), "--out", "run", "--json"], tmp_path) as running:
        wait_for_rounds(folder, 1)
        first = time.monotonic() - begun
        if everything:
            for process in [*children_of(running.pid), running.pid, *pids_of(folder)]:
                with suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
        running.kill()
        running.communicate(timeout=60)
    before, begun = len(charges(folder)), time.monotonic()
    with started([*COMMAND, "federate", "--out", "run", "--resume", "--json"], tmp_path) as running:
        while len(charges(folder)) == before:
            assert time.monotonic() < begun + max(60, first)  # a busy machine takes that long for any start
            time.sleep(0.2)
        out, told = running.communicate(timeout=600)
    assert running.returncode == 0, told
    assert [row["round"] for row in rounds(folder)] == [1, 2, 3]
    assert json.loads(out)["federation"]["incomplete"] == ""
    wait_until_gone(tmp_path)


def expect_refused(folder: Path) -> None:
    """A node whose key was not registered is not let in."""
    from laconic.federation.trial.processes import Processes, free_port
    from laconic.federation.trial.superlink import make_node_key

    trial = folder / "federation"
    make_node_key(folder / "stranger")
    log = folder / "stranger.txt"
    address = (trial / "link/home/config.toml").read_text().partition('address = "')[2].partition('"')[0]
    with Processes() as processes:
        stranger = processes.start(
            "flower-supernode",
            *("--superlink", address, "--root-certificates", str(trial / "authority.pem")),
            *("--auth-supernode-private-key", str(folder / "stranger"), "--port", str(free_port())),
            log=log,
            home=folder / "stranger-home",
        )
        stranger.wait(timeout=60)
    assert "No SuperNode found with the given public key" in (trial / "link/log.txt").read_text()
