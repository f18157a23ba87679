"""examples/start.sh takes free ports, and says what is wrong with its arguments."""

from __future__ import annotations

import os
import re
import subprocess
import time
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "examples/start.sh"
STAND_IN = '#!/bin/sh\n[ "$2" = identity ] && exit\necho "$(basename "$0") $*" >> "$STARTED"\nexec sleep 60\n'


def test_two_trials_at_once_have_ports_of_their_own(tmp_path: Path) -> None:
    """With stand-ins for Flower's programs: which ports they would have been given."""
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in ("flower-superlink", "flower-supernode", "laconic"):
        (tools / name).write_text(STAND_IN)
        (tools / name).chmod(0o755)
    for name in ("policy.toml", "a.csv", "b.csv"):
        (tmp_path / name).touch()
    environment = os.environ | {"PATH": f"{tools}:{os.environ['PATH']}", "STARTED": str(tmp_path / "started")}
    files = [*(str(tmp_path / name) for name in ("policy.toml", "a.csv", "b.csv")), "--", "--schema", "s.toml"]
    trials = [
        subprocess.Popen(
            ["bash", SCRIPT, tmp_path / trial, *files], env=environment, stdout=subprocess.PIPE, start_new_session=True
        )
        for trial in ("one", "two")
    ]
    try:
        started = until(tmp_path / "started", lines=14)
    finally:
        for trial in trials:
            trial.terminate()
        for trial in trials:
            trial.communicate(timeout=30)
    ports = re.findall(r"--port (\d+)", started)
    assert len(ports) == len(set(ports)) == 6
    assert len(re.findall(r"laconic node serve \S+ .*--data \S+/[ab].csv .*--schema s.toml", started)) == 4
    couriers = re.findall(r"laconic node courier .*--runtime 127\.0\.0\.1:(\d+)", started)
    assert sorted(couriers) == sorted(re.findall(r"flower-supernode .*--isolation process .*--port (\d+)", started))
    links = re.findall(r"flower-superlink .*--port (\d+)", started)
    assert sorted(re.findall(r"--superlink 127\.0\.0\.1:(\d+)", started)) == sorted(links * 2)
    configured = [re.findall(r":(\d+)", (tmp_path / t / "server/config.toml").read_text())[0] for t in ("one", "two")]
    assert sorted(configured) == sorted(links)


def until(path: Path, lines: int) -> str:
    end = time.monotonic() + 60
    while time.monotonic() < end:
        if path.exists() and len(path.read_text().splitlines()) == lines:
            return path.read_text()
        time.sleep(0.05)
    raise AssertionError("not all programs were started")


@pytest.mark.parametrize("arguments", [[], ["trial"], ["trial", "policy.toml"], ["trial", "policy.toml", "no.csv"]])
def test_what_is_missing_is_said(arguments: list[str], tmp_path: Path) -> None:
    (tmp_path / "policy.toml").touch()
    ended = subprocess.run(["bash", SCRIPT, *arguments], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ended.returncode == 2
    assert "usage: " in ended.stderr or "no such file: no.csv" in ended.stderr
