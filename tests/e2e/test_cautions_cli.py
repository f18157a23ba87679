"""On the command line: a δ that promises nothing is refused, and weak promises are warned of beforehand."""

from __future__ import annotations

from pathlib import Path

import pytest
from e2e_tools import call, words

RUN = "run fl-std-dp --dataset synthetic --num-clients 30 --sampling-rate 0.2 --rounds 2 --clip-norm 1"
EPSILON = "epsilon --sampling-rate 0.2 --rounds 9"


@pytest.mark.parametrize(
    "line",
    [
        RUN + " --noise-multiplier 2 --delta 0.5",
        RUN + " --epsilon 1 --delta 1/30",
        "plan" + RUN.removeprefix("run") + " --noise-multiplier 2 --delta 0.5",
        EPSILON + " --num-clients 30 --noise-multiplier 2 --delta 1/30",
        EPSILON + " --num-clients 30 --record-rate 0.1 --noise-multiplier 2 --delta 1/30",
        "calibrate --sampling-rate 0.2 --num-clients 30 --rounds 9 --epsilon 1 --delta 0.1",
    ],
)
def test_a_delta_of_one_over_the_clients_needs_to_be_insisted_on(
    line: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    refused = call(capsys, *words(line))
    assert refused.code == 2
    assert "--allow-large-delta" in refused.err and len(refused.err.splitlines()) == 1
    assert not list(tmp_path.iterdir())
    allowed = call(capsys, *words(line), "--allow-large-delta")
    assert allowed.code == 0
    said = " ".join((allowed.out + allowed.err).split())
    assert "data in full and still meet the definition" in said


def test_weak_promises_are_on_stderr_and_in_the_statement(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    line = RUN.replace("--num-clients 30", "--num-clients 8") + " --noise-multiplier 0.1 --json --quiet"
    ended = call(capsys, *words(line), "--out", tmp_path / "run")
    said = ended.json["statement"]["cautions"]
    assert any("promises next to nothing" in text for text in said)
    assert any("a usual sum holds the codes of 1.6 clients" in text for text in said)
    warned = [line for line in ended.err.splitlines() if line.startswith("laconic: warning: ")]
    assert len(warned) == 3
    assert "Caution" in (tmp_path / "run/report.html").read_text()


def test_a_resumed_run_still_insists(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    line = words(RUN + " --noise-multiplier 2 --delta 0.5 --quiet")
    out = ("--out", str(tmp_path / "run"))
    assert call(capsys, *line, "--allow-large-delta", *out).code == 0
    assert "allow_large_delta = true" in (tmp_path / "run/config.toml").read_text()
    assert call(capsys, "run", *out, "--resume", "--rounds", "3").code == 0


def test_an_unknown_number_of_clients_is_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    ended = call(capsys, *words(EPSILON + " --noise-multiplier 2 --delta 0.01"))
    assert "δ = 0.01 means nothing for 100 clients or more" in ended.out
    assert "Caution" not in call(capsys, *words(EPSILON + " --noise-multiplier 2")).out


def test_insisting_without_noise_is_a_misunderstanding(capsys: pytest.CaptureFixture[str]) -> None:
    ended = call(capsys, *words("run fl-std --rounds 1 --allow-large-delta"))
    assert ended.code == 2
    assert "--allow-large-delta means nothing" in ended.err
