"""The front end on the command line: run, resume and plan."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import own_front_ends
import pytest
from e2e_tools import call, words

RUN = words(
    "fl-std-dp --clip-norm 0.4 --noise-multiplier 1.5 --dataset digits --num-clients 50 --sampling-rate 0.2 --threads 1"
    " --front-end scattering --front-end-features 20 --front-end-projection public --front-end-images 60"
    " --front-end-mirror true --public-dataset dead-leaves --eval-every 10 --device cpu"
)


def test_a_resumed_run_is_the_whole_run(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for out, *rounds in (("parts", "2"), ("parts", "4", "--resume"), ("whole", "4")):
        ended = call(capsys, "run", *RUN, "--out", tmp_path / out, "--quiet", "--json", "--rounds", *rounds)
        assert ended.code == 0, ended.err
        assert "20 leading principal components of 60 images" in str(ended.json["statement"]["assumptions"])
    for name in ("model.safetensors", "front_end.safetensors", "identity.json"):
        assert (tmp_path / "parts" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    again = call(capsys, "run", "--out", tmp_path / "parts", "--resume", "--rounds", "5", "--front-end-ridge", "0.5")
    assert again.code == 5
    assert "front_end.ridge = 0.001, not 0.5" in again.err


def test_a_damaged_front_end_is_not_replaced(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert call(capsys, "run", *RUN, "--out", tmp_path / "run", "--quiet", "--rounds", "1").code == 0
    (tmp_path / "run/front_end.safetensors").write_bytes(b"nothing")
    ended = call(capsys, "run", "--out", tmp_path / "run", "--resume", "--rounds", "2")
    assert ended.code == 5
    assert "front_end.safetensors is damaged" in ended.err


def test_a_plan_says_what_is_not_sent(capsys: pytest.CaptureFixture[str]) -> None:
    ended = call(capsys, "plan", *RUN)
    assert ended.code == 0
    text = " ".join(ended.out.split())
    assert "front end: 20 of 324 scattering features, a public projection of 27.22 kB that is not sent" in text
    assert "down: 900 bytes per client and round" in text


def test_a_module_of_ones_own_predicts_until_its_code_changes(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code = Path(own_front_ends.__file__).read_text()
    (tmp_path / "mine.py").write_text(code)
    run = words("fl-std --dataset digits --num-clients 40 --sampling-rate 0.2 --device cpu --threads 1 --quiet")
    run += words("--front-end mine:net --set front_end.width=9 --out mine --json --rounds")
    assert call(capsys, "run", *run, "1").code == 0
    np.savez(tmp_path / "new.npz", inputs=np.zeros((3, 1, 8, 8), dtype=np.float32))
    assert len(call(capsys, "predict", "mine", "new.npz", "--allow-code", "--json").json) == 3
    (tmp_path / "mine.py").write_text(code + "# other code\n")
    for command in (["run", *run, "2", "--resume"], ["predict", "mine", "new.npz", "--allow-code"]):
        ended = call(capsys, *command)
        assert ended.code == 2
        assert "mine:net: its source code changed" in ended.err
