"""A disk that fills up in the middle of a run: one line says so, and with room again the run goes on as ever."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from e2e_tools import call, charges, rounds, words

pytestmark = pytest.mark.e2e
pytest.importorskip("resource", reason="limits on the size of files are Unix's")

RUN = words(
    "run fl-std-dp --clip-norm 0.4 --noise-multiplier 2 --dataset synthetic --num-clients 300 --sampling-rate 0.2"
    " --rounds 12 --eval-every 20 --threads 1 --engine one-by-one --quiet"
)
# Files may not grow beyond so many bytes; Python sees an error from the system, as with a full disk.
LIMITED = """
import resource, runpy, sys
resource.setrlimit(resource.RLIMIT_FSIZE, (2500, 2500))
sys.argv[0] = "laconic"
runpy.run_module("laconic", run_name="__main__")
"""


def test_full_disk(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, reference = tmp_path / "run", tmp_path / "reference"
    assert call(capsys, *RUN, "--out", reference).code == 0
    command = [sys.executable, "-c", LIMITED, *RUN, "--out", str(out)]
    full = subprocess.run(command, capture_output=True, text=True, check=False)
    assert 0 < len(charges(out)) < 12, "the limit does not fall into the run"
    assert (full.returncode, full.stderr.count("\n")) == (5, 1), full.stderr
    assert full.stderr.startswith("laconic: error: cannot write ")
    for _ in range(2):
        ended = call(capsys, *RUN, "--out", out, "--resume")
        assert ended.code == 0, ended.err
        assert charges(out) == charges(reference)
        assert rounds(out) == rounds(reference)
        assert (out / "model.safetensors").read_bytes() == (reference / "model.safetensors").read_bytes()
