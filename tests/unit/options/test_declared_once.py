"""An option is declared in one place: a copy of the package with one more line has it everywhere."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
_PLACE = '    checkpoint_seconds: float = option(10.0, "Seconds between two checkpoints.", check=non_negative)\n'
_LINE = '    warm_up: int = option(3, "Rounds to warm up for.", check=positive_int, identity=True)\n'

_USE = """
import json, torch, laconic
from laconic.cli.main import cli
from click.testing import CliRunner
from laconic.errors import ConfigError, RunFolderError
from laconic.settings.config import RunConfig

assert "warm_up" in RunConfig.from_dict({"run": {"warm_up": 7}}).to_dict()["run"]
help = CliRunner().invoke(cli, ["run", "--help"]).output
assert "--warm-up" in help and "Rounds to warm up for" in help and "[3]" in help
assert "| `warm_up` | `--warm-up` | 3 | Rounds to warm up for. *(same run)* |" in CliRunner().invoke(
    cli, ["options", "--markdown"]).output

x = torch.randn(40, 4); y = (x.sum(1) > 0).long()
clients = list(zip(x.split(4), y.split(4)))
def run(**options):
    torch.manual_seed(0)
    return laconic.run(laconic.schemes.fl_std(local_lr=0.1, local_steps=1), model=torch.nn.Linear(4, 2),
                       clients=clients, sampling_rate=1.0, rounds=1, out="folder", **options)
try:
    run(warm_up=0)
except ConfigError as error:
    assert "warm_up must be a whole number that is 1 or more, not 0" in str(error)
else:
    raise AssertionError("0 was accepted")
run(warm_up=5)
assert json.load(open("folder/identity.json"))["warm_up"] == 5
try:
    run(warm_up=6, resume=True)
except RunFolderError as error:
    assert "another warm_up (5, now 6)" in str(error)
else:
    raise AssertionError("another run was resumed")
print("everywhere")
"""


@pytest.mark.e2e
def test_one_line_gives_flag_file_python_docs_and_identity(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "src/laconic", tmp_path / "laconic", ignore=shutil.ignore_patterns("__pycache__"))
    sections = tmp_path / "laconic/options/sections.py"
    text = sections.read_text(encoding="utf-8")
    assert _PLACE in text
    sections.write_text(text.replace(_PLACE, _PLACE + _LINE), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-c", _USE], cwd=tmp_path, capture_output=True, text=True, env={"PYTHONPATH": str(tmp_path)}
    )
    assert (done.returncode, done.stdout) == (0, "everywhere\n"), done.stderr
