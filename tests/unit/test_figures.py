"""Figures of privacy are claims: none is printed smaller than it is, and every place asks the same functions."""

from __future__ import annotations

import ast
import json
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from e2e_tools import call
from hypothesis import given
from hypothesis import strategies as st
from page_tools import small_run

from laconic.figures import as_flag, at_least, at_most, epsilon_text, rounded_up
from laconic.observers.progress import PlainProgress
from laconic.privacy.released import released_statement
from laconic.privacy.statement import statement_lines
from laconic.report.model_card import model_card
from laconic.report.summary_lines import as_text, metric_text, result_lines, result_rows
from laconic.store.finished import digests_of
from laconic.store.folder import RunFolder
from laconic.store.journal import Journal
from laconic.store.saves import ROUNDS, rows_digest
from laconic.sweeps.progress import SweepLines

Capture = pytest.CaptureFixture[str]
SOURCES = sorted((Path(__file__).parents[2] / "src").rglob("*.py"))
FIGURES = st.floats(min_value=0, max_value=1e12, allow_nan=False)


@given(FIGURES, st.integers(0, 6))
def test_an_upper_bound_is_never_printed_smaller_than_it_is(figure: float, decimals: int) -> None:
    assert float(at_most(figure, decimals)) >= figure
    assert float(at_least(figure, decimals)) <= figure
    assert float(epsilon_text(figure, decimals)) >= figure


@given(st.floats(min_value=1e-300, max_value=1e12), st.integers(1, 10))
def test_a_delta_is_never_printed_smaller_than_it_is(figure: float, digits: int) -> None:
    printed = float(rounded_up(figure, digits))
    assert figure <= printed <= figure * (1 + 10.0 ** (1 - digits) * 1.01)


@given(FIGURES)
def test_a_flag_is_read_back_as_the_same_number(figure: float) -> None:
    assert float(as_flag(figure)) == figure


def test_what_can_be_written_in_full_is_not_changed() -> None:
    assert at_most(1.5) == at_least(1.5) == "1.500"
    assert at_most(0.0) == "0.000"
    assert at_most(-1e-9) == "0.000"
    assert [rounded_up(d) for d in (1e-5, 1e-6, 0.1, 3e-9)] == ["1e-05", "1e-06", "0.1", "3e-09"]


def test_what_is_not_finite_is_not_a_number() -> None:
    assert [at_most(f) for f in (None, math.inf, math.nan)] == ["∞"] * 3
    assert rounded_up(math.inf) == "∞"
    assert epsilon_text(None) == epsilon_text(math.inf) == "none (∞)"


ABOUT_PRIVACY = re.compile(r"epsilon|delta|released|participant|claimed|\blower\b|against_server|\balone\b|slack", re.I)
SAID_BEFORE = re.compile(r"[εδ](?: of [^{}=]{0,20})?(?: (?:=|≥|≤|is|would be|against the \w+))?\s*$")
OTHERWISE = {"1 / delta": "a number of clients", "LARGE_EPSILON": "a threshold, written in full"}
"""Expressions with the name of a figure that are none."""


def printed(tree: ast.AST) -> Iterator[str]:
    """The expressions about ε or δ that are formatted or rounded as ordinary numbers."""
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            before = ""
            for value in node.values:
                if isinstance(value, ast.Constant):
                    before += str(value.value)
                elif isinstance(value, ast.FormattedValue):
                    spec = value.format_spec and ast.unparse(value.format_spec)[2:-1]
                    about = _about(value.value) or SAID_BEFORE.search(before)
                    if spec and re.search("[fge%]", re.sub(r"\{.*?\}", "", spec)) and about:
                        yield ast.unparse(value.value)
                    before = ""
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in ("round", "format") and _about(node.args[0]):
            yield ast.unparse(node.args[0])


def _about(expression: ast.expr) -> bool:
    words = [
        n.id if isinstance(n, ast.Name) else n.attr if isinstance(n, ast.Attribute) else str(n.value)
        for n in ast.walk(expression)
        if isinstance(n, ast.Name | ast.Attribute | ast.Constant)
    ]
    return any(ABOUT_PRIVACY.search(word) for word in words)


def test_no_module_rounds_a_figure_of_privacy_by_itself() -> None:
    found = [(path.name, one) for path in SOURCES for one in printed(ast.parse(path.read_text(encoding="utf-8")))]
    assert [f for f in found if f[1] not in OTHERWISE] == []


@pytest.mark.parametrize(
    "source",
    [
        'f"{epsilon:.3f}"',
        "f\"{row['participant_epsilon']:.4g}\"",
        'f"ε = {value:.3f}"',
        'f"δ = {x:g}"',
        'f"ε of a record would be {value:.{digits}f}"',
        "round(result.epsilon, 4)",
        'f"{b.lower:.3f}"',
    ],
)
def test_a_new_one_is_found(source: str) -> None:
    assert list(printed(ast.parse(source)))


OUTSIDER, SERVER, DELTA = 1.2340001, 5.6780001, 1.00000049e-05
TOO_SMALL = re.compile(r"(?<![\d.])(?:1\.234|1\.23|5\.678|1e-05)(?!\d)")
"""What rounding to the nearest would print, which is less."""


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run whose figures lie a little above what rounding to the nearest would print."""
    path = small_run(tmp_path_factory.mktemp("planted") / "run")

    def replaced(value: Any, key: str = "", part: str = "") -> Any:
        if isinstance(value, list):
            return [replaced(one) for one in value]
        if isinstance(value, dict):
            inside = key if key in ("released", "participant") else part
            return {name: replaced(one, name, inside) for name, one in value.items()}
        if key == "delta":
            return DELTA
        if key == "summary":
            return "as it was written then"
        if not isinstance(value, float):
            return value
        if part:
            return OUTSIDER if part == "released" else SERVER
        return {"epsilon": OUTSIDER, "participant_epsilon": SERVER}.get(key, value)

    for file in ("privacy.json", "summary.json"):
        (path / file).write_text(json.dumps(replaced(json.loads((path / file).read_text()))))
    rows = [replaced(json.loads(line)) for line in (path / "rounds.jsonl").read_text().splitlines()]
    (path / "rounds.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    saved_anew(path)
    return path


def saved_anew(path: Path) -> None:
    """As if the run itself had ended with what its files now hold: an edited run is not shown."""
    folder = RunFolder(path)
    journal = Journal(folder, "")
    assert journal.chain is not None and journal.saves.confirmed is not None
    journal.chain.open()
    saves, last = journal.saves, journal.saves.confirmed
    saves.announce(replace(last, rows=rows_digest(folder.lines(ROUNDS))))
    saves.confirm()
    saves.end(digests_of(folder))
    folder.close()


def read(path: Path) -> dict[str, Any]:
    summary: dict[str, Any] = json.loads((path / "summary.json").read_text())
    return summary


def page_of_run(path: Path, capsys: Capture) -> str:
    call(capsys, "report", path, "--out", path / "again.html")
    return re.sub(r"<style>.*?</style>", "", (path / "again.html").read_text(), flags=re.S)


def page_of_two(path: Path, capsys: Capture) -> str:
    call(capsys, "compare", path, path, "--html", path / "both.html")
    return re.sub(r"<style>.*?</style>", "", (path / "both.html").read_text(), flags=re.S)


def progress_text(path: Path, _: Capture) -> str:
    rows = [json.loads(line) for line in (path / "rounds.jsonl").read_text().splitlines()]
    return " ".join([PlainProgress(6, "accuracy").text(rows[-1]), metric_text(rows[-1])])


def sweep_text(path: Path, _: Capture) -> str:
    lines = SweepLines(1, 0)
    lines._seen["a"] = json.loads((path / "rounds.jsonl").read_text().splitlines()[-1])
    return lines.text("a")


SURFACES: dict[str, Callable[[Path, Capture], str]] = {
    "statement": lambda path, _: str(statement_lines(read(path)["statement"])),
    "statement, one figure": lambda path, _: str(statement_lines(read(path)["statement"], papers=False)),
    "released statement": lambda path, _: str(released_statement(read(path)["statement"])["summary"]),
    "result table": lambda path, _: as_text(result_rows("fl-std-dp", read(path))),
    "result lines": lambda path, _: str(result_lines(read(path))),
    "progress": progress_text,
    "progress of a sweep": sweep_text,
    "model card": lambda path, _: model_card(read(path), {}),
    "released model card": lambda path, _: model_card(read(path), {}, released_only=True),
    "report": page_of_run,
    "compare": lambda path, capsys: call(capsys, "compare", path, path).out,
    "compare page": page_of_two,
}


@pytest.mark.parametrize("surface", SURFACES)
def test_no_surface_prints_less(planted: Path, surface: str, capsys: Capture) -> None:
    text = SURFACES[surface](planted, capsys)
    assert "1.235" in text
    assert TOO_SMALL.findall(text) == []
