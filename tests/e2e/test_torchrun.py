"""Runs in several processes that torchrun starts: the same bits whatever their number, after a kill too."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from e2e_tools import charges, rounds, rows, strict_json, words
from process_tools import children_of

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

PRIVATE = words(
    "run fl-std-dp --clip-norm 0.4 --noise-multiplier 2 --num-clients 100 --sampling-rate 0.3 --rounds 40"
    " --eval-every 20 --quiet --json"
)
PLAIN = words("run fl-std --dataset synthetic --num-clients 200 --sampling-rate 0.1 --rounds 3 --quiet --json")


def torchrun(ranks: int, *arguments: str) -> subprocess.Popen[str]:
    """torchrun in a session of its own, so that a test can interrupt all of it; --standalone takes a free port."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
    return subprocess.Popen(
        [*command, "-m", "laconic", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def finished(ranks: int, *arguments: str) -> str:
    child = torchrun(ranks, *arguments)
    out, err = child.communicate(timeout=600)
    assert child.returncode == 0, err
    return out


def same(one: Path, other: Path) -> bool:
    """Weights, rows with both ε and bytes, and charges."""
    models = [(folder / "model.safetensors").read_bytes() for folder in (one, other)]
    return models[0] == models[1] and rounds(one) == rounds(other) and charges(one) == charges(other)


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One rank under torchrun."""
    out = tmp_path_factory.mktemp("reference") / "run"
    finished(1, *PRIVATE, "--out", str(out))
    return out


def test_one_two_and_three_ranks_and_no_torchrun_give_the_same_run(reference: Path, tmp_path: Path) -> None:
    for ranks in (2, 3):
        summary = strict_json(finished(ranks, *PRIVATE, "--out", str(tmp_path / str(ranks))))
        assert summary["ranks"] == ranks
        assert same(reference, tmp_path / str(ranks))
    alone = [sys.executable, "-m", "laconic", "run", str(tmp_path / "3/config.toml"), "--quiet"]
    subprocess.run([*alone, "--out", str(tmp_path / "alone")], check=True, capture_output=True, timeout=600)
    assert same(reference, tmp_path / "alone")


def test_runs_without_noise_have_the_same_bits_too(tmp_path: Path) -> None:
    for ranks in (1, 3):
        finished(ranks, *PLAIN, "--out", str(tmp_path / str(ranks)))
    assert same(tmp_path / "1", tmp_path / "3")


def _ranks_of(child: subprocess.Popen[str], size: int) -> dict[int, int]:
    """The process of every rank."""
    found = {}
    for pid in children_of(child.pid):
        settings = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        found |= {int(text[5:]): pid for text in settings if text.startswith(b"RANK=")}
    assert sorted(found) == list(range(size))
    return found


def _stopped(out: Path, ranks: int, after: int, how: str) -> tuple[str, float]:
    """Stop a run after so many rounds; what it says, and how long it took to end."""
    child = torchrun(ranks, *PRIVATE, "--out", str(out), "--resume")
    while len(rows(out / "rounds.jsonl")) < after:
        assert child.poll() is None, child.communicate()
        time.sleep(0.02)
    started = time.monotonic()
    if how == "ctrl-c":
        os.killpg(child.pid, signal.SIGINT)
    else:
        os.kill(_ranks_of(child, ranks)[int(how)], signal.SIGKILL)
    _, err = child.communicate(timeout=600)
    assert child.returncode != 0
    return err, time.monotonic() - started


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="needs /proc to find the ranks")
def test_a_rank_is_killed_and_another_number_goes_on(reference: Path, tmp_path: Path) -> None:
    """Twice: a rank that trains, then rank 0. Then Ctrl-C. Nothing that was charged is charged again."""
    out = tmp_path / "run"
    err, seconds = _stopped(out, 3, 5, "1")
    assert seconds < 60, "the others did not notice"
    assert "rank is lost" in err or "rank 1 is lost" in err or "interrupted after round" in err
    assert f"-m laconic run --out {out} --resume" in err
    charged = charges(out)
    err, _ = _stopped(out, 2, 12, "0")
    assert charged.items() <= charges(out).items()
    err, _ = _stopped(out, 3, 20, "ctrl-c")
    assert "interrupted after round" in err and "torchrun --nproc-per-node 3 -m laconic run" in err
    finished(2, *PRIVATE, "--out", str(out), "--resume")
    assert same(reference, out)
