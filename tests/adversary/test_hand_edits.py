"""Files of a finished run are edited by hand: every command that shows or uses it refuses it, and names the file.

Digests are no signatures: somebody who writes all digests anew is not noticed. An accident, or a figure that was made
nicer, is.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner
from torch import nn

import laconic
from conftest import make_population, make_records
from laconic import schemes
from laconic.cli.main import cli
from laconic.errors import RunFolderError
from laconic.report.live import Runs
from laconic.store.finished import finished_run, watched_run

PRIVATE = schemes.fl_std_dp(clip_norm=0.5, noise_multiplier=1.0, local_lr=0.2, local_steps=1, batch_size=4)

Edit = Callable[[Path], None]


def in_json(name: str, change: Callable[[dict[str, Any]], None]) -> Edit:
    def edit(out: Path) -> None:
        values = json.loads((out / name).read_text())
        change(values)
        (out / name).write_text(json.dumps(values, indent=2) + "\n")

    return edit


def in_row(name: str, line: int, **values: Any) -> Edit:
    def edit(out: Path) -> None:
        lines = (out / name).read_text().splitlines()
        lines[line] = json.dumps(json.loads(lines[line]) | values)
        (out / name).write_text("".join(text + "\n" for text in lines))

    return edit


def without_line(name: str, line: int) -> Edit:
    def edit(out: Path) -> None:
        lines = (out / name).read_text().splitlines()
        del lines[line]
        (out / name).write_text("".join(text + "\n" for text in lines))

    return edit


def without_file(name: str) -> Edit:
    return lambda out: (out / name).unlink()


def replaced(name: str, old: str, new: str) -> Edit:
    def edit(out: Path) -> None:
        text = (out / name).read_text()
        assert old in text
        (out / name).write_text(text.replace(old, new))

    return edit


def every_epsilon(values: dict[str, Any]) -> None:
    for key, value in values.items():
        if isinstance(value, dict):
            every_epsilon(value)
        elif "epsilon" in key and isinstance(value, float):
            values[key] = 0.1
    for who in ("released", "participant"):
        if isinstance(values.get(who), dict):
            values[who]["epsilon"] = dict.fromkeys(values[who]["epsilon"], 0.1)


def flipped(name: str) -> Edit:
    def edit(out: Path) -> None:
        content = bytearray((out / name).read_bytes())
        content[-1] ^= 1
        (out / name).write_bytes(content)

    return edit


EDITS: dict[str, Edit] = {
    "δ": in_json("privacy.json", lambda v: v.update(delta=1e-9)),
    "every ε": in_json("privacy.json", every_epsilon),
    "a shorter summary": in_json("privacy.json", lambda v: v.update(summary="ε = 0.1")),
    "no cautions": in_json("privacy.json", lambda v: v.update(cautions=[])),
    "fewer charges stated": in_json("privacy.json", lambda v: v["released"].update(rounds_charged=1)),
    "no statement": without_file("privacy.json"),
    "ε of the summary": in_json("summary.json", every_epsilon),
    "a better accuracy": in_json("summary.json", lambda v: v["last"].update(accuracy=0.99)),
    "fewer bytes": in_json("summary.json", lambda v: v["ledger"].update(bytes_up=1)),
    "fewer rounds": in_json("summary.json", lambda v: v.update(rounds=3)),
    "no summary": without_file("summary.json"),
    "a better row": in_row("rounds.jsonl", -1, accuracy=0.99),
    "an earlier row": in_row("rounds.jsonl", 0, epsilon=0.01),
    "fewer bytes in a row": in_row("rounds.jsonl", 2, bytes_up=1),
    "a row less": without_line("rounds.jsonl", 2),
    "no last row": without_line("rounds.jsonl", -1),
    "no rows": without_file("rounds.jsonl"),
    "a smaller cohort": in_row("charges.jsonl", 1, cohort=[]),
    "a charge less": without_line("charges.jsonl", 1),
    "no last charge": without_line("charges.jsonl", -1),
    "no charges": without_file("charges.jsonl"),
    "another trade-off": in_json("figures.json", lambda v: v.update(trade_off={})),
    "another seed": replaced("config.toml", "seed", "sead"),
    "fewer rounds asked for": replaced("config.toml", "rounds = 4", "rounds = 3"),
    "other weights": flipped("model.safetensors"),
    "other best weights": flipped("best.safetensors"),
    "another state": flipped("checkpoint/state.safetensors"),
    "no state": without_file("checkpoint/state.safetensors"),
    "another identity": in_json("identity.json", lambda v: v.update(seed=7)),
    "no last save": without_line("checkpoint/saves.jsonl", -1),
    "no save": without_file("checkpoint/saves.jsonl"),
    "a save less": without_line("checkpoint/saves.jsonl", 1),
    "other digests": in_row("checkpoint/saves.jsonl", -1, files={}),
    "a file that describes other records": lambda out: (out / "preprocessing.toml").write_text("x = 1\n"),
}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(0)
    out = tmp_path_factory.mktemp("finished") / "run"
    laconic.run(
        PRIVATE,
        model=nn.Linear(6, 3),
        clients=make_population([4, 9, 1, 12, 7] * 5),
        test=make_records(40, seed=1),
        rounds=4,
        sampling_rate=0.3,
        delta=1e-5,
        out=out,
        checkpoint_seconds=0.0,
    )
    return out


def shown(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(cli, list(arguments))
    return result.exit_code, result.output + str(result.exception or "")


def test_the_run_itself_is_shown_without_a_doubt(finished: Path, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    assert shown("report", str(finished), "--out", str(page))[0] == 0
    assert "not finished" not in page.read_text()
    code, text = shown("compare", str(finished))
    assert code == 0
    assert "Digests" not in text and "digests" not in text
    assert not watched_run(finished).refused


@pytest.mark.parametrize("what", EDITS)
def test_an_edit_is_refused_by_every_command(finished: Path, tmp_path: Path, what: str) -> None:
    out = tmp_path / "run"
    shutil.copytree(finished, out)
    EDITS[what](out)
    unbound = what == "no last save"  # then it is not finished, and everything else still fits
    for arguments in (("report", str(out), "--out", str(tmp_path / "page.html")), ("compare", str(out))):
        code, text = shown(*arguments)
        assert (code != 0) or unbound, f"{arguments[0]}: {what}"
        assert unbound or str(out) in text
    if not unbound:
        assert not (tmp_path / "page.html").exists()
    else:
        assert "This run is not finished" in (tmp_path / "page.html").read_text()
    with pytest.raises(RunFolderError):
        finished_run(out)
    for command in ("export", "predict"):
        assert shown(command, str(out))[0] != 0
    watched = watched_run(out)
    assert bool(watched.refused) or watched.doubt or not watched.finished, what
    assert not (watched.refused and watched.statement)
    page = Runs([out], read=watched_run).page("")
    if page is not None and watched.refused:
        assert "ε" not in page.parts["head"] and "accuracy" not in page.parts["head"]


def test_a_run_that_goes_on_says_that_it_does(finished: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    shutil.copytree(finished, out)
    for name in ("summary.json", "model.safetensors", "figures.json", "report.html"):
        (out / name).unlink()
    without_line("checkpoint/saves.jsonl", -1)(out)
    assert shown("report", str(out), "--out", str(tmp_path / "page.html"))[0] == 0
    assert "This run is not finished" in (tmp_path / "page.html").read_text()
    in_json("privacy.json", lambda v: v.update(delta=1e-9))(out)
    code, text = shown("report", str(out))
    assert code != 0
    assert "privacy.json is not the statement that was saved last" in text


def test_of_a_run_without_digests_the_pages_say_so(finished: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    out.mkdir()
    shutil.copy(finished / "rounds.jsonl", out)
    code, text = shown("compare", str(out))
    assert code == 0
    assert "No digests were kept" in text
