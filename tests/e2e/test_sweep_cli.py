"""`laconic sweep` in processes and on Ray, from end to end: interrupted, gone on with, bit for bit."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from e2e_tools import COMMAND, process

GRID = """
seeds = 2

[grid]
local_lr = [0.1, 0.5]

[run]
rounds = {rounds}
device = "cpu"
threads = 1
checkpoint_seconds = 0

[scheme]
name = "fl-std-dp"
clip_norm = 0.5
noise_multiplier = 1.0

[data]
num_clients = 60

[sampler]
sampling_rate = 0.2

[model]
name = "logistic"
"""


def rows(run: Path) -> list[dict[str, Any]]:
    found = map(json.loads, (run / "rounds.jsonl").read_text().splitlines())
    return [{key: value for key, value in row.items() if key != "seconds"} for row in found]


def same_runs(one: Path, other: Path) -> None:
    names = sorted(run.name for run in (one / "runs").iterdir())
    assert len(names) == 4
    for name in names:
        first, second = one / "runs" / name, other / "runs" / name
        assert (first / "model.safetensors").read_bytes() == (second / "model.safetensors").read_bytes()
        assert rows(first) == rows(second)


def interrupted(folder: Path, *arguments: str) -> int:
    """The command, interrupted once a run has begun; its exit code."""
    command = [*COMMAND, "sweep", "grid.toml", *arguments, "--quiet"]
    running = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, start_new_session=True)
    out = folder / arguments[arguments.index("--out") + 1]
    for _ in range(2400):
        if running.poll() is not None or any((run / "rounds.jsonl").exists() for run in out.glob("runs/*")):
            break
        time.sleep(0.05)
    running.send_signal(signal.SIGINT)
    return running.wait(timeout=120)


@pytest.mark.slow
@pytest.mark.e2e
def test_a_sweep_in_processes_is_interrupted_goes_on_and_is_the_one_of_one_process(tmp_path: Path) -> None:
    (tmp_path / "grid.toml").write_text(GRID.format(rounds=60))
    assert interrupted(tmp_path, "--jobs", "2", "--out", "jobs") == 130
    assert not list(tmp_path.glob("jobs/runs/*/summary.json"))
    ended = process("sweep", "grid.toml", "--jobs", "2", "--out", "jobs", cwd=tmp_path)
    assert ended.code == 0, ended.err
    assert process("sweep", "grid.toml", "--out", "alone", cwd=tmp_path).code == 0
    same_runs(tmp_path / "jobs", tmp_path / "alone")


@pytest.mark.slow
@pytest.mark.e2e
def test_a_sweep_on_ray_is_interrupted_goes_on_and_is_the_one_of_one_process(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    (tmp_path / "grid.toml").write_text(GRID.format(rounds=60))
    assert interrupted(tmp_path, "--on", "ray", "--jobs", "2", "--out", "ray") == 130
    ended = process("sweep", "grid.toml", "--on", "ray", "--jobs", "2", "--out", "ray", cwd=tmp_path)
    assert ended.code == 0, ended.err
    assert process("sweep", "grid.toml", "--out", "alone", cwd=tmp_path).code == 0
    same_runs(tmp_path / "ray", tmp_path / "alone")
