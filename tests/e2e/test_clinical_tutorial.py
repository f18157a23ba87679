"""The commands of docs/clinical.md, pasted into a shell one after the other."""

from __future__ import annotations

import csv
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.e2e
def test_the_tutorial_can_be_pasted(tmp_path: Path) -> None:
    text = (ROOT / "docs/clinical.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```sh\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert len(blocks) == 7
    tools = tmp_path / "bin"
    tools.mkdir()
    for name, command in (("laconic", "-m laconic"), ("python", "")):
        (tools / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {command} "$@"\n')
        (tools / name).chmod(0o755)
    script = tmp_path / "paste.sh"
    script.write_text("set -eu\n" + "\n".join(blocks), encoding="utf-8")
    environment = os.environ | {"PATH": f"{tools}:{os.environ['PATH']}", "OMP_NUM_THREADS": "1"}
    ended = subprocess.run(["bash", script], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    assert "-DP per record against an outsider (rdp)" in ended.stdout
    assert "Protected: one record of one client" in ended.stdout
    statement = json.loads((tmp_path / "runs/private/privacy.json").read_text())
    assert statement["released"]["epsilon"]["rdp"] <= 8
    with (tmp_path / "predictions.csv").open(newline="") as stream:
        assert [0 < float(row["probability"]) < 1 for row in csv.DictReader(stream)] == [True] * 5
