"""The documents keep their word: their Python runs, the options and the files that they name exist."""

from __future__ import annotations

import re
import runpy
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
import torch

from laconic.cli.main import cli
from laconic.parts import Part

ROOT = Path(__file__).parents[2]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def fenced(path: Path, language: str | None = None) -> list[str]:
    """The fenced blocks of a document, of one language or all of them."""
    blocks = re.findall(r"^```(\w*)\n(.*?)^```$", path.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    return [text for name, text in blocks if language in (None, name)]


def commands(path: Path) -> Iterator[list[str]]:
    """The words of every `laconic ...` command line in the document's fenced blocks, continued lines joined."""
    for block in fenced(path):
        for line in block.replace("\\\n", " ").splitlines():
            if re.match(r"laconic [a-z]", line.strip()):
                yield shlex.split(line, comments=True)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", ["README.md", "docs/python.md", "docs/architecture.md"])
def test_python_of_the_documents_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = fenced(ROOT / name, "python")
    assert blocks
    script = tmp_path / "document.py"
    script.write_text("\n".join(blocks), encoding="utf-8")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # the models are tiny
    try:
        with torch.random.fork_rng():
            runpy.run_path(str(script), run_name="document")
    finally:
        torch.set_num_threads(threads)
        for kind in [kind for kind, part in Part._kinds.items() if part.__module__ == "document"]:
            del Part._kinds[kind]  # other tests do not know the parts that a document defines


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_options_of_the_documents_exist(path: Path) -> None:
    context = click.Context(cli)
    for _, name, *words in commands(path):
        command = cli.get_command(context, name)
        assert command, f"no command '{name}'"
        known = {option for parameter in command.get_params(context) for option in parameter.opts}
        named = {word.partition("=")[0] for word in words if word.startswith("--")}
        assert named <= known, f"laconic {name} has no {', '.join(sorted(named - known))}"


def test_commands_are_found() -> None:
    """Guards the test above against finding nothing to check."""
    assert len(list(commands(ROOT / "docs/cli.md"))) >= 9
    assert {words[1] for words in commands(ROOT / "docs/cli.md")} >= set(cli.list_commands(click.Context(cli)))


def test_files_named_in_architecture_exist() -> None:
    named = re.findall(r"`([\w/]+\.py)`", (ROOT / "docs/architecture.md").read_text(encoding="utf-8"))
    assert len(named) > 50
    missing = [name for name in named if not (ROOT / "src/laconic" / name).is_file()]
    assert not missing


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_between_documents_lead_somewhere(path: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", path.read_text(encoding="utf-8")):
        if "://" in target:
            continue
        file, _, heading = target.partition("#")
        linked = (path.parent / file).resolve() if file else path
        assert linked.exists(), f"{target} does not exist"
        assert not heading or heading in headings(linked), f"{target}: no such heading"


def headings(path: Path) -> set[str]:
    """The anchors of a document's headings, as GitHub makes them."""
    titles = re.findall(r"^#+ (.*)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}
