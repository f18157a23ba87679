"""The commands end to end: what they print, what a run leaves behind, and that a plan is what then happens."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from e2e_tools import Ended, call, charges, files, process, rounds, strict_json, words

from laconic.catalogue import SCHEMES

Capture = pytest.CaptureFixture[str]
PRIVATE = words(
    "fl-std-dp --clip-norm 0.4 --noise-multiplier 1.5 --dataset synthetic --num-clients 50 --sampling-rate 0.2"
    " --rounds 4 --threads 1"
)
PLAIN = words("fl-std --dataset synthetic --num-clients 50 --rounds 3 --threads 1")
EPSILON = words("epsilon --sampling-rate 1/60 --noise-multiplier 1.54 --rounds 200 --delta 1e-5")


def run(capsys: Capture, out: Path, *arguments: str) -> Any:
    """A run's summary."""
    ended = call(capsys, "run", *arguments, "--out", out, "--quiet", "--json")
    assert ended.code == 0, ended.err
    return ended.json


def model(out: Path) -> bytes:
    return (out / "model.safetensors").read_bytes()


def imports_torch(*arguments: str) -> tuple[bool, str]:
    """Whether the command, in a fresh process, has torch imported at its end; and what it printed."""
    script = (
        "import sys\nfrom laconic.cli.main import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "print('torch' in sys.modules, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", script, *arguments], capture_output=True, text=True, check=True)
    return done.stderr.strip() == "True", done.stdout


@pytest.mark.e2e
def test_help_imports_no_torch() -> None:
    torch, out = imports_torch("--help")
    assert not torch
    for command in ("run", "plan", "epsilon", "calibrate", "compare", "schemes", "datasets", "models", "doctor"):
        assert f"\n  {command} " in out
    assert imports_torch("models", "--json")[0], "otherwise the test sees nothing"


@pytest.mark.e2e
def test_epsilon_of_the_papers_without_torch() -> None:
    torch, out = imports_torch(*EPSILON, "--papers")
    assert not torch
    assert "moments: 1.004   rdp: 0.777   pld: 0.683" in out


@pytest.mark.e2e
def test_the_installed_command() -> None:
    ended = process("--version")
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.startswith("laconic, version ")


@pytest.mark.parametrize(
    ("line", "keys"),
    [
        (" ".join(EPSILON), {"released", "participant", "delta", "adjacency"}),
        ("calibrate --epsilon 1 --sampling-rate 1/60 --rounds 20", {"noise_multiplier"}),
        ("plan " + " ".join(PRIVATE), {"privacy", "bytes_up_per_client_and_round", "memory_bytes"}),
        ("plan " + " ".join(PLAIN), {"privacy", "bytes_up_in_all"}),
        ("schemes", {"fl-std", "fl-std-dp", "centralized"}),
        ("datasets", {"digits", "mnist", "fashion-mnist", "synthetic"}),
        ("models", {"cnn", "mlp", "logistic"}),
        ("doctor", {"laconic", "python", "packages", "cuda", "datasets", "missing"}),
        ("epsilon --sampling-rate 0.1 --noise-multiplier 1 --rounds 2 --delta 1e-30", {"released"}),
    ],
)
def test_json(capsys: Capture, line: str, keys: set[str]) -> None:
    ended = call(capsys, *line.split(), "--json")
    assert (ended.code, ended.err) == (0, "")
    assert keys <= set(ended.json)


@pytest.mark.parametrize("command", ["schemes", "datasets", "models", "doctor", " ".join(EPSILON)])
def test_for_people(capsys: Capture, command: str) -> None:
    ended = call(capsys, *command.split())
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.strip()


def test_datasets_of_a_folder_with_nothing_in_it(capsys: Capture, tmp_path: Path) -> None:
    ended = call(capsys, "datasets", "--data-dir", tmp_path)
    assert ended.code == 0, ended.err


def test_a_run_and_what_it_leaves_behind(capsys: Capture, tmp_path: Path) -> None:
    out = tmp_path / "run"
    summary = run(capsys, out, *PRIVATE)
    expected = {
        "config.toml": "[scheme]",
        "rounds.jsonl": '{"round": 1,',
        "charges.jsonl": '{"round": 1,',
        "privacy.json": "{",
        "summary.json": "{",
        "report.html": "<!doctype html>",
    }
    for name, start in expected.items():
        text = (out / name).read_text()
        assert text.startswith(start) or start in text
    assert (out / "checkpoint/state.safetensors").exists()
    assert (out / "best.safetensors").exists()
    assert strict_json((out / "summary.json").read_text()) == summary
    assert strict_json((out / "privacy.json").read_text()) == summary["statement"]
    assert [row["round"] for row in rounds(out)] == [1, 2, 3, 4]
    assert summary["ledger"]["bytes_up"] == sum(row["bytes_up"] for row in rounds(out))
    assert not list(out.rglob("*.new"))

    again = run(capsys, tmp_path / "again", str(out / "config.toml"))
    assert model(tmp_path / "again") == model(out)
    assert rounds(tmp_path / "again") == rounds(out)
    assert again["statement"] == summary["statement"]
    assert (tmp_path / "again/config.toml").read_text() == (out / "config.toml").read_text()

    both = call(capsys, "compare", out, tmp_path / "again", "--json").json
    assert set(both) == {str(out), str(tmp_path / "again")}
    assert both[str(out)]["epsilon"] == summary["statement"]["released"]["epsilon"]["pld"]
    people = call(capsys, "compare", out)
    assert (people.code, people.err) == (0, "")


@pytest.mark.parametrize("scheme", SCHEMES)
def test_every_scheme_can_be_planned(capsys: Capture, scheme: str) -> None:
    line = ["plan", scheme, "--dataset", "synthetic", "--num-clients", "50", "--rounds", "3"]
    line += ["--ratio", "0.5"] if "ratio" in SCHEMES[scheme].options else []
    line += ["--noise-multiplier", "1"] if SCHEMES[scheme].private else []
    line += ["--sampling-rate", "1"] if scheme.startswith("sign-sgd") else []
    if SCHEMES[scheme].record_level:
        line += ["--record-rate", "0.2", "--batch-size", "5", "--clip-norm", "1", "--balance", "none"]
    planned = call(capsys, *line, "--json")
    assert (planned.code, planned.err) == (0, "")
    assert (planned.json["privacy"] is not None) == SCHEMES[scheme].private
    assert (planned.json["bytes_up_per_client_and_round"] > 0) == (scheme != "centralized")


def test_a_plan_is_what_then_happens(capsys: Capture, tmp_path: Path) -> None:
    planned = call(capsys, "plan", *PRIVATE, "--json").json
    summary = run(capsys, tmp_path / "run", *PRIVATE)
    for direction in ("up", "down"):
        key = f"bytes_{direction}_per_client_and_round"
        assert planned[key] == summary["ledger"][key]
    assert planned["privacy"]["released"]["4"] == summary["statement"]["released"]["epsilon"]
    assert planned["privacy"]["noise_multiplier"] == 1.5
    assert planned["fingerprint"] == summary["statement"]["mechanism"]["fingerprint"]


@pytest.mark.parametrize(("option", "side"), [("--epsilon", "released"), ("--participant-epsilon", "participant")])
def test_a_budget_stops_before_it_is_exceeded(capsys: Capture, tmp_path: Path, option: str, side: str) -> None:
    free = run(capsys, tmp_path / "free", *PRIVATE, "--rounds", "12")
    key = "epsilon" if side == "released" else "participant_epsilon"
    spent = [row[key] for row in rounds(tmp_path / "free")]
    budget = (max(s for s in spent if s < spent[-1]) + spent[-1]) / 2
    fits = sum(s <= budget for s in spent)
    assert 0 < fits < 12
    options = [*PRIVATE, "--rounds", "12", option, repr(budget)]
    summary = run(capsys, tmp_path / "run", *options)
    assert (summary["stop_reason"], summary["rounds"]) == ("budget", fits)
    assert summary["statement"][side]["epsilon"]["pld"] <= budget < free["statement"][side]["epsilon"]["pld"]
    assert set(charges(tmp_path / "run")) == {(number, 0) for number in range(1, fits + 1)}
    before = files(tmp_path / "run")
    spent_already = call(capsys, "run", *options, "--out", tmp_path / "run", "--resume")
    assert spent_already.code == 3
    assert "is spent" in spent_already.err
    assert files(tmp_path / "run") == before


def test_the_last_round_counts_whatever_ends_the_run(capsys: Capture, tmp_path: Path) -> None:
    run(capsys, tmp_path / "free", *PRIVATE)
    spent = [row["epsilon"] for row in rounds(tmp_path / "free")]
    budget = (spent[2] + spent[3]) / 2
    out = tmp_path / "run"
    summary = run(capsys, out, *PRIVATE, "--eval-every", "2", "--epsilon", repr(budget))
    assert (summary["stop_reason"], summary["rounds"]) == ("budget", 3)
    compared = call(capsys, "compare", out, "--json").json[str(out)]
    assert compared["epsilon"] == summary["statement"]["released"]["epsilon"]["pld"]
    assert "accuracy" in summary["last"]


def test_early_stopping(capsys: Capture, tmp_path: Path) -> None:
    hasty = words("fl-std --num-clients 100 --rounds 60 --local-lr 3 --server-lr 3 --holdout 0.2 --patience 1")
    summary = run(capsys, tmp_path / "run", *hasty)
    assert summary["stop_reason"] == "patience"
    held = [row["holdout_accuracy"] for row in rounds(tmp_path / "run")]
    assert len(held) < 60
    assert held[-1] <= max(held[:-1])
    assert all(later > max(held[:at]) for at, later in enumerate(held[:-1]) if at)


def write_clients(folder: Path, suffix: str) -> None:
    """Six clients with twelve records each."""
    rng = np.random.default_rng(0)
    folder.mkdir()
    for number in range(6):
        targets = np.arange(12) % 3
        inputs = rng.normal(size=(12, 4)) + targets[:, None]
        if suffix == ".npz":
            np.savez(folder / f"{number}.npz", inputs=inputs, targets=targets)
        else:
            table = np.column_stack([inputs, targets])
            header = "a,b,c,d,outcome"
            np.savetxt(folder / f"{number}.csv", table, "%.4f,%.4f,%.4f,%.4f,%d", header=header, comments="")


@pytest.mark.parametrize("kind", ["npz", "csv", "npz with test", "table"])
def test_ones_own_data(capsys: Capture, tmp_path: Path, kind: str) -> None:
    data, options = tmp_path / "data", ["--target", "outcome", "--sampling-rate", "1"]
    write_clients(data, ".csv" if kind in ("csv", "table") else ".npz")
    if kind == "npz with test":
        shutil.copy(data / "0.npz", data / "test.npz")
    if kind == "table":
        lines = [f"{line},{f.stem}" for f in sorted(data.iterdir()) for line in f.read_text().splitlines()[1:]]
        data = tmp_path / "table.csv"
        data.write_text("\n".join(["a,b,c,d,outcome,site", *lines]) + "\n")
        options += ["--client-column", "site"]
    summary = run(capsys, tmp_path / "run", "fl-std", "--dataset", str(data), *options, "--rounds", "3")
    assert [row["cohort"] for row in rounds(tmp_path / "run")] == [6, 6, 6]
    assert ("accuracy" in summary["last"]) == (kind in ("npz with test", "table"))


def test_ones_own_model(capsys: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "e2e_package").mkdir()
    (tmp_path / "e2e_package/nets.py").write_text(
        "from torch import nn\n\ndef net(num_classes, width=3):\n"
        "    return nn.Sequential(nn.Linear(20, width), nn.ReLU(), nn.Linear(width, num_classes))\n"
    )
    monkeypatch.chdir(tmp_path)
    own = ["--model", "e2e_package.nets:net", "--model-option", "width=7"]
    assert run(capsys, tmp_path / "run", *PLAIN, *own)["rounds"] == 3
    run(capsys, tmp_path / "again", str(tmp_path / "run/config.toml"), "--allow-code")
    assert model(tmp_path / "run") == model(tmp_path / "again")
    size = 21 * 7 + 8 * 5
    ended: Ended = call(capsys, "plan", *PLAIN, *own, "--json")
    assert ended.json["size"] == size
