"""The Python reference: every public name says what it takes, with an example that runs."""

from __future__ import annotations

import ast
import doctest
import inspect
import re
from pathlib import Path
from typing import Any

import pytest
import torch

import laconic

ROOT = Path(__file__).parents[2]
SETTLED_ELSEWHERE = "declared in `options/sections.py`"
"""A docstring with these words leaves out what docs/options.md explains."""


def public_names() -> dict[str, Any]:
    names = {name: getattr(laconic, name) for name in laconic.__all__ if name not in ("__version__", "schemes")}
    tree = ast.parse((ROOT / "src/laconic/schemes.py").read_text(encoding="utf-8"))
    declared = [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
    schemes = {name: getattr(laconic.schemes, name) for name in declared if not name.startswith("_")}
    transformed = {"private": laconic.schemes.private, "PrivateScheme": laconic.schemes.PrivateScheme}
    return names | {f"schemes.{name}": found for name, found in (schemes | transformed).items()}


NAMES = public_names()


def explained(text: str) -> set[str]:
    """The arguments that a docstring explains."""
    section = re.search(r"^(?:Args|Attributes):\n((?:    .*\n|\n)+)", text + "\n", re.MULTILINE)
    return set(re.findall(r"^    \*{0,2}(\w+): \S", section[1], re.MULTILINE)) if section else set()


def taken(found: Any) -> set[str]:
    """The arguments that a function or a class takes."""
    if inspect.isclass(found) and (issubclass(found, BaseException) or found is laconic.Population):
        return set()
    return set(inspect.signature(found).parameters) - {"self"}


def test_all_schemes_and_names_are_found() -> None:
    """Guards the tests below against finding nothing to check."""
    assert {"run", "load", "Accountant", "schemes.fl_std", "schemes.private"} <= set(NAMES)
    assert len(NAMES) > 45


@pytest.mark.parametrize("name", NAMES)
def test_every_argument_is_explained(name: str) -> None:
    text = inspect.getdoc(NAMES[name]) or ""
    if SETTLED_ELSEWHERE in text:
        assert len(explained(text)) > 10
        return
    assert taken(NAMES[name]) == explained(text)


@pytest.mark.parametrize("name", [name for name in NAMES if name.startswith("schemes.") and "central" not in name])
def test_every_scheme_says_where_it_comes_from(name: str) -> None:
    assert "References:\n" in (inspect.getdoc(NAMES[name]) or "")


@pytest.mark.parametrize("name", NAMES)
def test_the_example_of_every_name_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        tried, failed = run_examples(NAMES[name], name)
    assert tried > 0
    assert not failed


def run_examples(found: Any, name: str) -> tuple[int, str]:
    """How many lines were tried, and what went wrong."""
    report: list[str] = []
    text = inspect.getdoc(found) or ""
    test = doctest.DocTestParser().get_doctest(text, {"laconic": laconic}, name, None, 0)
    done = doctest.DocTestRunner(verbose=False).run(test, out=report.append)
    return done.attempted, "".join(report)


def test_a_wrong_example_and_a_forgotten_argument_are_seen() -> None:
    def careless(first: int, second: int) -> None:
        """Add.

        Args:
            first: one.

        Examples:
            >>> 1 + 1
            3
        """

    assert taken(careless) - explained(inspect.getdoc(careless) or "") == {"second"}
    assert "Expected:\n    3" in run_examples(careless, "careless")[1]


def test_every_public_name_has_a_place_in_the_reference() -> None:
    pages = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "docs/reference").glob("*.md"))
    placed = re.findall(r"^::: laconic\.((?:schemes\.)?\w+)$", pages, re.MULTILINE)
    assert sorted(placed) == sorted(NAMES)
    assert not [name for name in laconic.__all__ if name != "__version__" and f"`{name}`" not in pages]
