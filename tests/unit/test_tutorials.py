"""The tutorials: their code runs, reaches what they promise, and prints what the pages show."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tools import tutorials
from tools.tutorials import Cell

ROOT = Path(__file__).parents[2]
Names = dict[str, Any]

PROMISES: dict[str, Callable[[Names], bool]] = {
    "digits": lambda n: n["result"].last["accuracy"] > 0.85 and n["outsider"] <= 4,
    "hospital": lambda n: n["auroc"] > 0.8 > n["reachable"] - 0.1 and n["statement"]["released"]["epsilon"]["pld"] <= 4,
    "torch_module": lambda n: (
        n["accuracy"] > 0.85
        and n["small"].last["accuracy"] > 0.8
        and 4 * n["small"].ledger["bytes_up"] < n["dense"].ledger["bytes_up"]
    ),
    "attack": lambda n: (
        max(n[run].last["accuracy"] for run in ("broken", "spoilt")) < 0.4
        and min(n[run].last["accuracy"] for run in ("honest", "robust", "shielded", "defended")) > 0.8
        and set(n["excluded"]) == {3, 77}
    ),
    "federation": lambda n: n["auroc"] > 0.9 and n["statement"]["released"]["epsilon"]["pld"] <= 8,
}
"""What the reader is left with, by the names that a tutorial defines."""

SLOW = {"federation": [pytest.mark.slow, pytest.mark.e2e]}
EXECUTED = [pytest.param(name, marks=SLOW.get(name, [])) for name in PROMISES]


def test_every_tutorial_has_a_promise() -> None:
    assert tutorials.names() == sorted(PROMISES)


@pytest.mark.parametrize("name", EXECUTED)
def test_a_tutorial_keeps_its_promise_and_its_page_shows_what_it_prints(name: str, tmp_path: Path) -> None:
    if name == "federation":
        pytest.importorskip("flwr", reason="flwr is not installed: pip install '.[flower]'")
    with torch.random.fork_rng():
        done, left = tutorials.execute(name, tmp_path)
    assert PROMISES[name](left)
    shown = json.loads((tutorials.FOLDER / f"{name}.ipynb").read_text(encoding="utf-8"))["cells"]
    assert len(shown) == len(done)
    for cell, page in zip(done, shown, strict=True):
        if cell.command is None:  # what a command prints is tested where the command is
            assert alike("".join(cell.texts), "".join(printed(page))), cell.source
        assert len(cell.pictures) == sum("image/png" in output.get("data", {}) for output in page.get("outputs", []))


@pytest.mark.parametrize("name", PROMISES)
def test_notebook_and_page_are_made_from_the_script(name: str) -> None:
    source = tutorials.cells((tutorials.FOLDER / f"{name}.py").read_text(encoding="utf-8"))
    notebook = json.loads((tutorials.FOLDER / f"{name}.ipynb").read_text(encoding="utf-8"))
    assert notebook["nbformat"] == 4
    assert [(cell.kind, cell.source) for cell in source] == [
        (cell["cell_type"], "".join(cell["source"])) for cell in notebook["cells"]
    ], "run make tutorials"
    outputs = [
        Cell(kind=cell.kind, source=cell.source, texts=tuple(printed(shown)), pictures=tuple(drawn(shown)))
        for cell, shown in zip(source, notebook["cells"], strict=True)
    ]
    page, pictures = tutorials.as_page(name, outputs)
    assert (tutorials.FOLDER / f"{name}.md").read_text(encoding="utf-8") == page, "run make tutorials"
    assert {path.name: path.read_bytes() for path in tutorials.FOLDER.glob(f"{name}-*.png")} == pictures
    assert tutorials.as_notebook(outputs) == (tutorials.FOLDER / f"{name}.ipynb").read_text(encoding="utf-8")


def printed(shown: dict[str, Any]) -> list[str]:
    return ["".join(output["text"]) for output in shown.get("outputs", []) if "text" in output]


def drawn(shown: dict[str, Any]) -> list[bytes]:
    import base64

    data = [output["data"]["image/png"] for output in shown.get("outputs", []) if "data" in output]
    return [base64.b64decode(picture) for picture in data]


def alike(one: str, other: str) -> bool:
    """The same words, and about the same numbers: processors round differently. Times are left out."""
    ours, theirs = (re.sub(r"^time .*$", "", text, flags=re.MULTILINE) for text in (one, other))
    number = r"\d+(?:,\d{3})*(?:\.\d+)?(?:e-?\d+)?"
    if re.sub(number, "#", ours) != re.sub(number, "#", theirs):
        return False
    pairs = zip(re.findall(number, ours), re.findall(number, theirs), strict=True)
    values = [(float(a.replace(",", "")), float(b.replace(",", ""))) for a, b in pairs]
    return all(abs(a - b) <= 0.1 * max(1.0, abs(b)) for a, b in values)


def test_other_words_and_other_numbers_are_not_alike() -> None:
    assert alike("accuracy 0.912, 1,198 bytes\ntime 3 s", "accuracy 0.907, 1,196 bytes\ntime 4 s")
    assert not alike("accuracy 0.912", "accuracy 0.412")
    assert not alike("accuracy 0.912", "precision 0.912")


def test_a_notebook_cell_shows_its_last_value_and_its_pictures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tutorials, "FOLDER", tmp_path)
    (tmp_path / "small.py").write_text(
        "# %% [markdown]\n# # Title\n#\n# Text.\n\n# %%\nx = 2\nx + 1\n\n# %%\nimport matplotlib.pyplot as plt\n\n"
        "plt.figure(figsize=(1, 1))\nplt.show()\n\n# %%\n# !laconic epsilon --noise-multiplier 1 \\\n"
        "#     --sampling-rate 0.1 --rounds 5 --delta 1e-5\n"
    )
    done, left = tutorials.execute("small", tmp_path)
    assert left["x"] == 2
    assert [cell.kind for cell in done] == ["markdown", "code", "code", "code"]
    assert done[0].source == "# Title\n\nText."
    assert done[1].texts == ("3\n",)
    assert len(done[2].pictures) == 1
    assert done[3].command is not None and "ε" in done[3].texts[0]
    page, pictures = tutorials.as_page("small", done)
    assert list(pictures) == ["small-1.png"]
    assert "```python\nx = 2\nx + 1\n```\n\n```\n3\n```" in page


def test_a_command_that_fails_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tutorials, "FOLDER", tmp_path)
    (tmp_path / "wrong.py").write_text("# %%\n# !laconic run no-such-scheme\n")
    with pytest.raises(RuntimeError, match="exit code 2"):
        tutorials.execute("wrong", tmp_path)
    (tmp_path / "wrong.py").write_text("# %%\n# !rm -rf here\n")
    with pytest.raises(ValueError, match="'laconic' and nothing else"):
        tutorials.execute("wrong", tmp_path)
