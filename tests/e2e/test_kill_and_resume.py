"""Runs in processes of their own, killed or stopped at any instant and gone on with; folders that cannot be."""

from __future__ import annotations

import json
import random
import shlex
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from e2e_tools import COMMAND, call, charges, files, process, rounds, rows, strict_json, words

pytestmark = pytest.mark.e2e

PRIVATE = words(
    "run fl-std-dp --clip-norm 0.4 --noise-multiplier 2 --num-clients 100 --sampling-rate 0.1 --rounds 20"
    " --eval-every 5 --checkpoint-seconds 0.05 --threads 1 --engine one-by-one --quiet --json"
)
CORRELATED = words(
    "run fl-std-dp --clip-norm 0.4 --noise-multiplier 2 --num-clients 100 --sampler cyclic --separation 8 --noise-bands"
    " 6 --momentum 0.5 --rounds 20 --eval-every 5 --checkpoint-seconds 0.05 --threads 1 --engine one-by-one --quiet"
    " --json"
)
PLAIN = words(
    "run fl-std --dataset synthetic --num-clients 1000 --sampling-rate 0.1 --rounds 12 --eval-every 100"
    " --checkpoint-seconds 0.05 --threads 1 --engine one-by-one --quiet --json"
)
SHORT = words(
    "run fl-std-dp --clip-norm 0.4 --noise-multiplier 2 --dataset synthetic --num-clients 50 --rounds 3 --threads 1"
    " --engine one-by-one --quiet --json"
)
_POINTS = 3
Folder = Callable[[Path], None]


@pytest.fixture(scope="module", params=[PRIVATE, CORRELATED], ids=["independent", "correlated"])
def reference(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, float, list[str]]:
    """An undisturbed run, how long it took, and its command."""
    out = tmp_path_factory.mktemp("reference") / "run"
    started = time.monotonic()
    ended = process(*request.param, "--out", str(out))
    assert ended.code == 0, ended.err
    return out, time.monotonic() - started, request.param


def killed(arguments: list[str], after: float) -> None:
    """The command, killed after so many seconds unless it has ended by then."""
    child = subprocess.Popen([*COMMAND, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        child.wait(after)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()


def without_times(summary: dict[str, Any]) -> dict[str, Any]:
    """What of a summary does not depend on the clock or the place."""
    last = {k: v for k, v in summary["last"].items() if k != "seconds"}
    return {k: v for k, v in summary.items() if k not in ("seconds", "folder")} | {"last": last}


@pytest.mark.parametrize("point", range(_POINTS))
def test_killed_at_a_random_instant(reference: tuple[Path, float, list[str]], tmp_path: Path, point: int) -> None:
    expected, seconds, arguments = reference
    out, rng = tmp_path / "run", random.Random(point)
    command = [*arguments, "--out", str(out), "--resume"]
    instants = [(point + rng.random()) / _POINTS, *([rng.random()] if point % 3 == 0 else [])]
    charged: dict[tuple[int, int], list[int]] = {}
    for instant in instants:
        killed(command, instant * seconds)
        assert charged.items() <= charges(out).items(), "a charge was forgotten"
        charged = charges(out)
    saved = out / "privacy.json"
    epsilon = strict_json(saved.read_text())["released"]["epsilon"]["pld"] if saved.exists() else 0.0

    ended = process(*command)
    assert ended.code == 0, ended.err
    assert (out / "model.safetensors").read_bytes() == (expected / "model.safetensors").read_bytes()
    assert (out / "best.safetensors").read_bytes() == (expected / "best.safetensors").read_bytes()
    assert rounds(out) == rounds(expected)
    assert charges(out) == charges(expected)
    assert charged.items() <= charges(out).items()
    statement, summary = (strict_json((out / name).read_text()) for name in ("privacy.json", "summary.json"))
    assert statement == strict_json((expected / "privacy.json").read_text())
    assert statement["released"]["epsilon"]["pld"] >= epsilon
    assert statement["released"]["rounds_charged"] >= len(charged)
    assert without_times(summary) == without_times(strict_json((expected / "summary.json").read_text()))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
def test_stopped_politely(tmp_path: Path, capsys: pytest.CaptureFixture[str], number: signal.Signals) -> None:
    out, other = tmp_path / "run", tmp_path / "undisturbed"
    assert call(capsys, *PLAIN, "--out", other).code == 0
    child = subprocess.Popen(
        [*COMMAND, *PLAIN, "--out", str(out)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # A shell starts its background jobs with SIGINT ignored, and so would the tests' children be.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler) and None,
    )
    try:
        while child.poll() is None and len(rows(out / "rounds.jsonl")) < 2:
            time.sleep(0.01)
        child.send_signal(signal.SIGSTOP)  # a slow machine must not let it finish meanwhile
        second = call(capsys, *PLAIN, "--out", out, "--resume")
        child.send_signal(number)
        child.send_signal(signal.SIGCONT)
        _, err = child.communicate(timeout=60)
    finally:
        child.kill()
        child.wait()
    assert (second.code, second.err.count("\n")) == (5, 1)
    assert f"{out} is in use by another process" in second.err
    assert child.returncode == 130
    assert len(rows(out / "rounds.jsonl")) < 12, "the signal came too late to show anything"
    assert err.startswith("laconic: interrupted after round ")
    assert err.count("\n") == 1
    command = shlex.split(err.partition("go on with: ")[2])
    assert command[0] == "laconic"
    assert call(capsys, *command[1:], "--quiet", "--json").code == 0
    assert (out / "model.safetensors").read_bytes() == (other / "model.safetensors").read_bytes()
    assert rounds(out) == rounds(other)


@pytest.fixture
def finished(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """The folder of a short run."""
    out = tmp_path / "run"
    assert call(capsys, *SHORT, "--out", out).code == 0
    return out


def truncated(name: str) -> Folder:
    def damage(folder: Path) -> None:
        content = (folder / name).read_bytes()
        (folder / name).write_bytes(content[: len(content) // 2])

    return damage


def replaced(name: str, line: int, by: bytes) -> Folder:
    """One line of a file in place of another; b'' takes it out."""

    def damage(folder: Path) -> None:
        lines = (folder / name).read_bytes().splitlines(keepends=True)
        lines[line] = by
        (folder / name).write_bytes(b"".join(lines))

    return damage


def emptied(name: str) -> Folder:
    return lambda folder: (folder / name).write_bytes(b"")  # type: ignore[return-value]


DAMAGE = {
    "checkpoint cut short": (truncated("checkpoint/state.safetensors"), "state.safetensors"),
    "checkpoint empty": (emptied("checkpoint/state.safetensors"), "state.safetensors"),
    "identity cut short": (truncated("identity.json"), "identity.json"),
    "round garbled": (replaced("rounds.jsonl", 1, b"{]\n"), "rounds.jsonl"),
    "round missing": (replaced("rounds.jsonl", 1, b""), "rounds.jsonl"),
    "rounds gone": (emptied("rounds.jsonl"), "rounds.jsonl"),
    "charge garbled": (replaced("charges.jsonl", 0, b"\n}\n"), "charges.jsonl"),
    "round not text": (replaced("rounds.jsonl", 1, b"\xff\xfe\x00\n"), "rounds.jsonl"),
    "round no row": (replaced("rounds.jsonl", 1, b"17\n"), "rounds.jsonl"),
    "charge no row": (replaced("charges.jsonl", 1, b"{}\n"), "charges.jsonl"),
    "configuration garbled": (replaced("config.toml", 1, b"rounds = \n"), "config.toml"),
    "charges gone": (emptied("charges.jsonl"), "charges.jsonl"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_folder_is_refused(finished: Path, capsys: pytest.CaptureFixture[str], damage: str) -> None:
    damaged, name = DAMAGE[damage]
    damaged(finished)
    before = files(finished)
    ended = call(capsys, *SHORT[:-1], "--out", finished, "--resume")
    assert ended.code == 5
    assert ended.err.startswith("laconic: error: ")
    assert ended.err.count("\n") == 1
    assert name in ended.err
    assert files(finished) == before


def test_resume_starts_what_was_not_started(tmp_path: Path, capsys: pytest.CaptureFixture[str], finished: Path) -> None:
    for out in (tmp_path / "new", tmp_path / "empty"):
        if out.name == "empty":
            out.mkdir()
        assert call(capsys, *SHORT, "--out", out, "--resume").code == 0
        assert (out / "model.safetensors").read_bytes() == (finished / "model.safetensors").read_bytes()


@pytest.mark.parametrize(
    ("options", "key"),
    [
        ("--local-lr 0.3", "scheme.local_lr"),
        ("--noise-multiplier 1", "scheme.noise_multiplier"),
        ("--epochs 2", "scheme.epochs"),
        ("--seed 1", "run.seed"),
        ("--delta 1e-6", "privacy.delta"),
        ("--epsilon 100", "privacy.epsilon"),
        ("--model mlp", "model.name"),
        ("--num-clients 51", "data.num_clients"),
        ("--sampling-rate 0.3", "sampler.sampling_rate"),
        ("--rounds 2", "run.rounds"),
    ],
)
def test_a_changed_option_is_refused(
    finished: Path, capsys: pytest.CaptureFixture[str], options: str, key: str
) -> None:
    before = files(finished)
    ended = call(capsys, *SHORT[:-1], *options.split(), "--out", finished, "--resume")
    assert ended.code == 5
    assert ended.err.count("\n") == 1
    assert f"was started with {key} = " in ended.err
    assert files(finished) == before


def test_rounds_may_grow(finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    more = ["--rounds", "5", "--out"]
    before = charges(finished)
    grown, straight = (call(capsys, *SHORT, *more, out, "--resume") for out in (finished, tmp_path / "straight"))
    assert (grown.code, grown.json["rounds"]) == (0, 5)
    assert (finished / "model.safetensors").read_bytes() == (tmp_path / "straight/model.safetensors").read_bytes()
    assert before.items() <= charges(finished).items()
    for row, expected in zip(rounds(finished), rounds(tmp_path / "straight"), strict=True):
        assert row.pop("weights") == expected.pop("weights")
        assert row == pytest.approx(expected, rel=1e-9)  # ε: the sampler's precision is counted for all planned rounds
    assert grown.json["statement"] == straight.json["statement"]
    assert json.loads((finished / "summary.json").read_text())["rounds"] == 5


def test_a_run_from_a_file_is_resumed_by_the_same_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "config.toml"
    config.write_text('[scheme]\nname = "fl-std"\n[data]\ndataset = "synthetic"\nnum_clients = 50\n[run]\nrounds = 2\n')
    command = ["run", str(config), "--out", str(tmp_path / "run"), "--resume", "--quiet"]
    assert call(capsys, *command).code == 0
    ended = call(capsys, *command)
    assert ended.code == 0, ended.err
