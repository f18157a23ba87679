"""The documents keep their word: their Python runs, what they name exists, and what exists is named."""

from __future__ import annotations

import ast
import csv
import re
import runpy
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
import torch
from e2e_tools import call

from laconic.catalogue import SCHEMES
from laconic.cli.lists import as_markdown
from laconic.cli.main import cli
from laconic.data.sources import SOURCES
from laconic.parts import Part
from laconic.settings.config import every_option
from tools import commands as commands_page

ROOT = Path(__file__).parents[2]
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md", *sorted((ROOT / "docs").rglob("*.md"))]


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
@pytest.mark.parametrize(
    "name",
    [
        "docs/index.md",
        "docs/python.md",
        "docs/datasets.md",
        "docs/front-end.md",
        "docs/extending.md",
        "docs/attacks.md",
        "docs/protocol.md",
    ],
)
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
        SOURCES.pop("mine", None)


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_options_of_the_documents_exist(path: Path) -> None:
    context = click.Context(cli)
    for _, name, *words in commands(path):
        command = cli.get_command(context, name)
        assert command, f"no command '{name}'"
        if isinstance(command, click.Group) and words:
            command = command.get_command(context, words[0]) or command
        known = {option for parameter in command.get_params(context) for option in parameter.opts}
        named = {word.partition("=")[0] for word in words if word.startswith("--")}
        assert named <= known, f"laconic {name} has no {', '.join(sorted(named - known))}"


@pytest.mark.slow
def test_the_commands_to_start_with_reach_what_their_table_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    page = ROOT / "docs/which-scheme.md"
    rows = re.findall(
        r"^\| `(fl-[\w-]+)`.*? \| (0\.\d{3}) \| [^|]* \| ([\d,]+) \|$", page.read_text(encoding="utf-8"), re.M
    )
    lines = list(commands(page))
    assert len(rows) == len(lines) == 5
    for (scheme, accuracy, sent), words in zip(rows, lines, strict=True):
        ended = call(capsys, *words[1:], "--json")
        assert words[2] == scheme
        assert ended.json["last"]["accuracy"] == pytest.approx(float(accuracy), abs=0.02)
        assert ended.json["ledger"]["bytes_up_per_client_and_round"] == pytest.approx(
            float(sent.replace(",", "")), rel=0.02
        )


def test_commands_are_found() -> None:
    """Guards the test above against finding nothing to check."""
    assert len(list(commands(ROOT / "docs/cli.md"))) >= 9
    assert {words[1] for words in commands(ROOT / "docs/cli.md")} >= set(cli.list_commands(click.Context(cli)))


def test_files_named_in_architecture_exist() -> None:
    named = re.findall(r"`([\w/]+\.py)`", (ROOT / "docs/architecture.md").read_text(encoding="utf-8"))
    assert len(named) > 20
    missing = [name for name in named if not any((root / name).is_file() for root in (ROOT / "src/laconic", ROOT))]
    assert not missing


def test_every_module_is_explained() -> None:
    """In its package's docstring, or on the page if it belongs to no package; and every package is in the tree."""
    page = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    for source in (ROOT / "src/laconic", ROOT / "src/laconic_studies"):
        for path in source.rglob("*.py"):
            if path.parent == source:
                assert f"`{path.name}`" in page, path
            elif path.stem != "__init__":
                named = ast.get_docstring(ast.parse((path.parent / "__init__.py").read_text(encoding="utf-8"))) or ""
                assert re.search(rf"^{path.stem}  +\S", named, flags=re.M), path
            elif path.parent.parent == source:
                assert f"{path.parent.name}/" in page, path


def test_what_federations_refuse_is_what_their_page_says() -> None:
    """Each option that the settings of a federation refuse is among its limits."""
    source = (ROOT / "src/laconic/federation/server/members.py").read_text(encoding="utf-8")
    refused = set(re.findall(r'"⟨([a-z-]+)⟩ [^"]*(?:is for simulations|is measured on the clients)', source))
    assert len(refused) >= 8
    limits = (ROOT / "docs/federation.md").read_text(encoding="utf-8").partition("\n## Limits\n")[2]
    assert not {name for name in refused if f"`--{name}" not in limits}


def test_every_scheme_is_explained() -> None:
    maths = (ROOT / "docs/maths.md").read_text(encoding="utf-8")
    written = maths.lower().replace("signsgd", "sign-sgd").replace("fl-bas-2 to 4", "fl-bas-2 fl-bas-3 fl-bas-4")
    assert not [name for name in SCHEMES if name.removesuffix("-dp") not in written and name != "centralized"]


def test_every_key_of_the_configuration_is_explained() -> None:
    """The page is what the declarations say; and every option of every scheme is declared, with a flag and a help."""
    every = every_option()
    assert (ROOT / "docs/options.md").read_text(encoding="utf-8") == as_markdown(every)
    declared = {one.name for one in every if one.section == "scheme"}
    assert {option for entry in SCHEMES.values() for option in entry.options} <= declared


def test_every_command_is_in_the_reference() -> None:
    page = commands_page.PAGE.read_text(encoding="utf-8")
    assert page == commands_page.as_markdown(), "python -m tools.commands"
    context = click.Context(cli)
    assert {f"## laconic {name}" for name in cli.list_commands(context)} <= set(page.splitlines())


def test_accuracies_are_those_of_the_recorded_rounds() -> None:
    """Every figure "0.858 (198)" in the table of schemes is the best round of a run in the recorded rounds."""
    runs: dict[str, list[tuple[float, int]]] = {}
    for path in (ROOT / "docs/results").glob("*/rounds.csv"):
        with path.open(newline="") as stream:
            for row in csv.DictReader(stream):
                if row["accuracy"]:  # not every round is evaluated in every run
                    runs.setdefault(row["run"], []).append((float(row["accuracy"]), -int(row["round"])))
    best = [max(rounds) for rounds in runs.values()]
    text = (ROOT / "docs/results/schemes/README.md").read_text(encoding="utf-8")
    figures = re.findall(r"(0\.\d{3,4}) \((\d+)\)", text)
    assert len(figures) == 35
    for accuracy, number in figures:
        assert any(abs(a - float(accuracy)) < 0.00051 and -r == int(number) for a, r in best), (accuracy, number)


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
