"""Below the command line no message names a flag: every surface calls an option by the name that it has there."""

from __future__ import annotations

import ast
import pickle
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import laconic
from conftest import make_population
from laconic.errors import ConfigError, LaconicError, in_python, on_command_line, option_named, speaking, worded
from laconic.settings.check import check_config
from laconic.settings.config import RunConfig, every_option, in_file
from laconic.sweeps.grid import Grid

SOURCE = Path(laconic.__file__).parent
ABOVE = ("cli", "train/units")
"""The command line itself, and sums of units, which are to follow."""
FLAG = re.compile(r"(?<![\w`-])--[a-z][a-z-]+")
COMMAND = re.compile(r"laconic [a-z]+ |pip install|python -m|torchrun|nproc-per-node")
"""A whole command stays one on every surface."""


def raised(path: Path) -> Iterator[tuple[int, str]]:
    """The lines and texts of all raise statements of a file."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Raise):
            texts = [
                part.value for part in ast.walk(node) if isinstance(part, ast.Constant) and isinstance(part.value, str)
            ]
            yield node.lineno, "".join(texts)


def test_no_message_below_the_command_line_names_a_flag() -> None:
    files = [path for path in SOURCE.rglob("*.py") if not path.relative_to(SOURCE).as_posix().startswith(ABOVE)]
    texts = [(path.name, line, text) for path in files for line, text in raised(path)]
    assert len(texts) > 700
    assert sum("⟨" in text for _, _, text in texts) > 200
    assert not [found for found in texts if FLAG.search(found[2]) and not COMMAND.search(found[2])]


def test_every_option_that_a_message_names_is_one() -> None:
    """A misspelt mark would name a flag that no command has."""
    from laconic.cli.main import cli

    flags = {one.flag for one in every_option()} | set(_flags_of(cli))
    marks = re.compile(r"⟨([a-z][a-z0-9-]*)⟩")
    named = {name for path in SOURCE.rglob("*.py") for name in marks.findall(path.read_text(encoding="utf-8"))}
    assert len(named) > 100
    assert not {name for name in named if f"--{name}" not in flags}


def _flags_of(command: object) -> Iterator[str]:
    import click

    assert isinstance(command, click.Command)
    for parameter in command.params:
        yield from parameter.opts
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            yield from _flags_of(found) if found is not None else ()


def test_each_surface_has_its_own_words() -> None:
    error = ConfigError(f"{option_named('evaluate_every')} 1 leaves no round: see ⟨clip-norm⟩, and a < b ⟨ c")
    with speaking(on_command_line):
        assert str(error) == "--evaluate-every 1 leaves no round: see --clip-norm, and a < b ⟨ c"
    with speaking(in_python):
        assert str(error) == "evaluate_every 1 leaves no round: see clip_norm, and a < b ⟨ c"
    with speaking(in_file):
        assert str(error) == "evaluation.every 1 leaves no round: see scheme.clip_norm, and a < b ⟨ c"
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


def test_the_words_are_those_of_before_after_a_block_that_fails() -> None:
    with speaking(in_python), pytest.raises(LaconicError), speaking(in_file):
        raise LaconicError("⟨rounds⟩")
    with speaking(in_python):
        assert worded("⟨rounds⟩") == "rounds"


def test_python_names_arguments() -> None:
    """What `laconic.run` refuses in a script names no flag."""
    script = (
        "import torch, laconic\n"
        "scheme = laconic.schemes.fl_std_dp(clip_norm=0.5, noise_multiplier=1.0, local_lr=0.1, local_steps=1)\n"
        "clients = [(torch.randn(4, 8), torch.randint(0, 2, (4,))) for _ in range(10)]\n"
        "try:\n    laconic.run(scheme, model=torch.nn.Linear(8, 2), clients=clients, sampling_rate=1.0, rounds=1,"
        " delta=0.2)\n"
        "except laconic.LaconicError as error:\n    print(error)\n"
    )
    said = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=True
    ).stdout
    assert "lower delta, or insist with allow_large_delta" in said and "--" not in said


def test_the_command_line_names_flags_and_a_grid_names_keys() -> None:
    config = RunConfig().with_values({"scheme.name": "fl-std", "evaluation.every": 2, "evaluation.held_out": 0.0})
    with pytest.raises(ConfigError, match="--evaluate-held-out 0 leaves nothing to measure on"):
        check_config(config)
    data = {"scheme": {"name": "fl-std"}, "evaluation": {"every": 2}, "grid": {"evaluation.held_out": [0.0, 0.2]}}
    with pytest.raises(ConfigError, match=r"evaluation\.held_out 0 leaves nothing to measure on"):
        Grid.from_dict(data).points()
    with speaking(in_python), pytest.raises(ConfigError, match="lower delta"):
        laconic.run(
            laconic.schemes.fl_std_dp(clip_norm=1.0, noise_multiplier=1.0, local_lr=0.1, local_steps=1),
            model=torch.nn.Linear(6, 3), clients=make_population([5] * 4), sampling_rate=1.0, rounds=1, delta=0.5,
        )  # fmt: skip
