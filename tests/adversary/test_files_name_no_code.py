"""A configuration, a grid or a run folder of somebody else's names code: no command runs it, unless it is allowed.

The cases are made from the list of commands: each command gets hostile files wherever it takes a path.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

import laconic
from laconic.cli.main import cli
from laconic.own_code import needed, only_typed, typed

WAITS = {"watch", "node serve", "node courier"}
"""Commands that serve until they are stopped. `watch` makes the pages of `report`; a node takes no code from a file."""
HOSTILE = """
import pathlib, torch
pathlib.Path("ran").write_text("x")

def net(**options):
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10))

def other(*arguments, **options):
    raise RuntimeError("this must not run")
"""
PLACES = {
    "model": "[model]\nname = 'hostile:net'\n",
    "scheme": "[scheme]\nname = 'hostile:other'\n",
    "data set": "[data]\ndataset = 'hostile:other'\n",
    "front end": "[front_end]\nname = 'hostile:other'\n",
    "aggregator": "[aggregator]\nname = 'hostile:other'\n",
    "attack": "[attack]\nkind = 'hostile:other'\nfraction = 0.2\n",
}
SMALL = {
    "infer membership": ("--targets", "1", "--shadows", "2", "--trials", "1", "--draws", "1", "--num-clients", "20"),
    "infer reconstruction": ("--victims", "1", "--batches", "1", "--iterations", "1", "--num-clients", "20"),
}
"""Studies that need no file, so that they are done in full when another folder is to hold what they find."""
RUN = ("--num-clients", "20", "--rounds", "1", "--sampling-rate", "0.5", "--quiet")


def commands(group: click.Group = cli, before: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Every command with its words."""
    context = click.Context(group)
    for name in group.list_commands(context):
        found = group.get_command(context, name)
        assert found is not None
        if isinstance(found, click.Group):
            yield from commands(found, (*before, name))
        else:
            yield (*before, name), found


COMMANDS = {" ".join(words): command for words, command in commands()}


def takes_path(param: click.Parameter) -> bool:
    return isinstance(param.type, click.Path) or "TOML" in (param.metavar or "") or "RUN" in (param.metavar or "")


def calls(name: str, files: dict[str, Path]) -> Iterator[list[str]]:
    """The command with hostile files in place of its arguments, then as each of its options that takes a path.

    Each call once.
    """
    command = COMMANDS[name]
    arguments = [param for param in command.params if isinstance(param, click.Argument)]
    options = [param for param in command.params if isinstance(param, click.Option) and takes_path(param)]
    optional = arguments and not takes_path(arguments[0])
    plain = [*name.split(), *SMALL.get(name, ())]
    seen: list[list[str]] = []
    for file in files.values():
        given = [str(file)] * max(1, sum(takes_path(param) for param in arguments)) if arguments else []
        ways = [[], *([option.opts[0], str(other)] for option in options for other in files.values())]
        ways += [["--to", "onnx"], ["--to", "card"]] if name == "export" else []
        ways += [["--out", str(file), "--resume"]] if name in ("run", "federate") else []
        for way in ways:
            for words in ([*plain, *given, *way], *([[*plain, *way]] if optional else [])):
                if words not in seen:
                    seen.append(words)
                    yield words


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the hostile module, configurations that name it, and a finished run of somebody who allowed it."""
    where = tmp_path_factory.mktemp("stage")
    (where / "hostile.py").write_text(HOSTILE)
    for name, text in PLACES.items():
        (where / f"{name.replace(' ', '-')}.toml").write_text(text)
    (where / "grid.toml").write_text("[model]\nname = 'hostile:net'\n[sweep]\n'run.seed' = [0, 1]\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(where)
        patch.syspath_prepend(str(where))
        done = CliRunner().invoke(cli, ["run", "fl-std", "--model", "hostile:net", *RUN, "--out", "theirs"])
        assert done.exit_code == 0, done.output + str(done.exception)
    assert (where / "ran").exists()
    return where


@pytest.fixture
def here(stage: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of it where nothing has been imported yet."""
    shutil.copytree(stage, tmp_path / "here")
    (tmp_path / "here/ran").unlink()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.syspath_prepend(str(tmp_path / "here"))
    monkeypatch.delitem(sys.modules, "hostile", raising=False)
    return tmp_path / "here"


def invoke(*words: str) -> tuple[int, str]:
    done = CliRunner().invoke(cli, list(words))
    return done.exit_code, done.output + str(done.exception or "")


def test_every_command_is_tried_or_serves() -> None:
    assert set(COMMANDS) > WAITS
    assert {"run", "plan", "predict", "export", "sweep", "federate", "audit", "keys rotate"} <= set(COMMANDS)


@pytest.mark.parametrize("name", sorted(set(COMMANDS) - WAITS))
def test_no_command_runs_code_that_only_a_file_names(here: Path, name: str) -> None:
    tomls = {path.stem: path for path in here.glob("*.toml")}
    for words in calls(name, {**tomls, "run folder": here / "theirs"}):
        invoke(*words)
        assert not (here / "ran").exists(), " ".join(words)
        assert "hostile" not in sys.modules, " ".join(words)


@pytest.mark.parametrize("place", PLACES)
def test_the_refusal_says_what_is_code_and_how_to_allow_it(here: Path, place: str) -> None:
    code, text = invoke("plan", f"{place.replace(' ', '-')}.toml", "--num-clients", "20")
    assert code != 0
    assert "is code, and only a file names it" in text
    assert "--allow-code" in text


def test_what_is_typed_or_allowed_runs(here: Path) -> None:
    assert invoke("plan", "fl-std", "--model", "hostile:net", "--num-clients", "20")[0] == 0
    assert (here / "ran").exists()
    assert invoke("export", "theirs", "--to", "safetensors", "--allow-code")[0] == 0
    assert invoke("plan", "model.toml", "--allow-code", "--num-clients", "20")[0] == 0


def test_in_python_a_folder_names_no_code_either(here: Path) -> None:
    assert "is code" in laconic.load("theirs").model._why  # type: ignore[operator, union-attr]
    with pytest.raises(laconic.LaconicError, match="allow_code=True"):
        laconic.export_run("theirs", "safetensors")
    assert not (here / "ran").exists()
    assert laconic.load("theirs", allow_code=True).model is not None
    assert (here / "ran").exists()


def test_without_the_check_the_code_runs(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("laconic.own_code._allowed", lambda name: True)
    invoke("plan", "model.toml", "--num-clients", "20")
    assert (here / "ran").exists()


def test_names_of_files_are_not_names_of_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "os:system").mkdir()
    assert typed(["predict", "os:system", "new.csv"]) == set()
    assert typed(["plan", "os:system.toml"]) == set()
    assert typed(["run", "mine:scheme", "--model=a.b:net", "--set", "model.name=c:d"]) == {
        *("mine:scheme", "a.b:net", "c:d"),
    }
    assert needed(["run", "--model", "a:b"]) == ["--allow-code"]
    assert needed(["run", "fl-std"]) == []


def test_what_a_command_allows_ends_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    monkeypatch.delenv("LACONIC_OWN_CODE", raising=False)
    with only_typed(["run", "--model", "a:b"]):
        assert os.environ["LACONIC_OWN_CODE"] == '["a:b"]'
    assert "LACONIC_OWN_CODE" not in os.environ
