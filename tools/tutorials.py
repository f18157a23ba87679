"""Execute the tutorials and write each down twice: as a notebook and as a page of the site.

    python -m tools.tutorials            # all of them; `make tutorials`
    python -m tools.tutorials digits     # one

The source of a tutorial is a script, `docs/tutorials/NAME.py`, whose cells begin with `# %%` (code) or
`# %% [markdown]` (text, as comments). A code cell whose lines are comments with `!` in front of the first is a command
line, as notebooks have it. Beside the script are written `NAME.ipynb`, with the outputs, and `NAME.md`, with the same.
"""

from __future__ import annotations

import ast
import base64
import contextlib
import io
import json
import linecache
import os
import re
import shlex
import signal
import sys
import tempfile
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import matplotlib

FOLDER = Path(__file__).parents[1] / "docs" / "tutorials"
WIDTH = "110"
"""Columns of what a command prints: its lines must fit on a page."""


@dataclass(frozen=True, kw_only=True)
class Cell:
    """A cell as a notebook shows it; of a tutorial that was executed, with its outputs."""

    kind: str
    source: str
    texts: tuple[str, ...] = ()
    pictures: tuple[bytes, ...] = ()

    @property
    def command(self) -> list[str] | None:
        """The words of a command line, or nothing."""
        if self.kind != "code" or not self.source.startswith("!"):
            return None
        return shlex.split(self.source[1:].replace("\\\n", " "))


def names() -> list[str]:
    return sorted(path.stem for path in FOLDER.glob("*.py"))


def cells(text: str) -> list[Cell]:
    """The cells of a script, without outputs."""
    found = []
    for kind, body in re.findall(r"^# %%( \[markdown\])?\n(.*?)(?=^# %%|\Z)", text, re.MULTILINE | re.DOTALL):
        lines = body.strip().splitlines()
        uncommented = [re.sub(r"^# ?", "", line) for line in lines]
        if kind:
            found.append(Cell(kind="markdown", source="\n".join(uncommented)))
        elif lines[0].startswith("# !"):
            found.append(Cell(kind="code", source="\n".join(uncommented)))
        else:
            found.append(Cell(kind="code", source="\n".join(lines)))
    return found


def execute(name: str, folder: Path) -> tuple[list[Cell], dict[str, Any]]:
    """The tutorial's cells with their outputs, and the names that it leaves; files are written to the folder."""
    matplotlib.use("agg")
    _pictures()  # figures that somebody else left open are not the tutorial's
    namespace: dict[str, Any] = {"__name__": name}
    done = []
    with contextlib.chdir(folder), mock.patch.dict(os.environ, {"COLUMNS": WIDTH, "NO_COLOR": "1"}):
        for number, cell in enumerate(cells((FOLDER / f"{name}.py").read_text(encoding="utf-8"))):
            if cell.kind == "markdown":
                done.append(cell)
                continue
            out = io.StringIO()
            with contextlib.redirect_stdout(out), warnings.catch_warnings():
                warnings.filterwarnings("ignore", message=".*non-interactive.*")  # what plt.show() says where it cannot
                if cell.command is None:
                    _run_code(cell.source, f"{name}[{number}]", namespace)
                else:
                    _run_command(cell.command)
            printed = re.sub(r"[ \t]+$", "", out.getvalue().replace(f"{folder}/", ""), flags=re.MULTILINE)
            texts = (printed,) if printed else ()
            done.append(Cell(kind="code", source=cell.source, texts=texts, pictures=_pictures()))
    return done, namespace


def _run_code(source: str, name: str, namespace: dict[str, Any]) -> None:
    """As a notebook does: the value of a last expression is printed."""
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)  # for readable tracebacks
    tree = ast.parse(source)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, name, "exec"), namespace)
    if isinstance(last, ast.Expr):
        value = eval(compile(ast.Expression(last.value), name, "eval"), namespace)
        if value is not None:
            print(repr(value))


def _run_command(words: list[str]) -> None:
    """A `laconic` command, in this process, because starting another one costs seconds."""
    from laconic.cli.main import main

    if words[0] != "laconic":
        raise ValueError(f"a tutorial runs 'laconic' and nothing else, not '{words[0]}'")
    handler, path, code = signal.getsignal(signal.SIGTERM), list(sys.path), 0
    try:
        with mock.patch.object(sys, "argv", words):
            main()
    except SystemExit as stop:
        code = int(stop.code or 0)
    finally:
        signal.signal(signal.SIGTERM, handler)
        sys.path[:] = path
    if code:
        raise RuntimeError(f"'{' '.join(words)}' ended with exit code {code}")


def _pictures() -> tuple[bytes, ...]:
    """The figures that a cell drew, which are then closed."""
    if "matplotlib.pyplot" not in sys.modules:
        return ()
    from matplotlib import pyplot

    found = []
    for number in pyplot.get_fignums():
        stream = io.BytesIO()
        pyplot.figure(number).savefig(stream, format="png", dpi=80, metadata={"Software": None})
        found.append(stream.getvalue())
    pyplot.close("all")
    return tuple(found)


def as_notebook(done: list[Cell]) -> str:
    """The notebook in its JSON format, version 4.5."""
    written, number = [], 0
    for index, cell in enumerate(done):
        entry: dict[str, Any] = {"cell_type": cell.kind, "id": f"cell-{index:02d}", "metadata": {}}
        entry["source"] = cell.source.splitlines(keepends=True)
        if cell.kind == "code":
            number += 1
            texts = [
                {"output_type": "stream", "name": "stdout", "text": text.splitlines(keepends=True)}
                for text in cell.texts
            ]
            pictures = [
                {
                    "output_type": "display_data",
                    "data": {"image/png": base64.b64encode(picture).decode()},
                    "metadata": {},
                }
                for picture in cell.pictures
            ]
            entry |= {"execution_count": number, "outputs": texts + pictures}
        written.append(entry)
    about = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    whole = {"cells": written, "metadata": about, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(whole, ensure_ascii=False, indent=1) + "\n"


def as_page(name: str, done: list[Cell]) -> tuple[str, dict[str, bytes]]:
    """The page in Markdown, and the pictures that go beside it by file name."""
    parts, pictures = [], {}
    for index, cell in enumerate(done):
        if cell.kind == "markdown":
            parts.append(cell.source)
            if index == 0:
                parts.append(
                    f"*`make tutorials` made this page from [{name}.py]({name}.py). Run it yourself: it is also "
                    f"[a notebook]({name}.ipynb).*"
                )
            continue
        language, source = ("python", cell.source) if cell.command is None else ("", cell.source[1:])
        parts.append(f"```{language}\n{source}\n```")
        parts += [f"```\n{text.rstrip()}\n```" for text in cell.texts]
        for picture in cell.pictures:
            file = f"{name}-{len(pictures) + 1}.png"
            pictures[file] = picture
            parts.append(f"![The picture that this code draws]({file})")
    return "\n\n".join(parts) + "\n", pictures


def write(name: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        done, _ = execute(name, Path(folder))
    page, pictures = as_page(name, done)
    for old in FOLDER.glob(f"{name}-*.png"):
        old.unlink()
    for file, picture in pictures.items():
        (FOLDER / file).write_bytes(picture)
    (FOLDER / f"{name}.ipynb").write_text(as_notebook(done), encoding="utf-8")
    (FOLDER / f"{name}.md").write_text(page, encoding="utf-8")


if __name__ == "__main__":
    if strange := set(sys.argv[1:]) - set(names()):
        sys.exit(f"no tutorial {', '.join(sorted(strange))}: there are {', '.join(names())}")
    for each in sys.argv[1:] or names():
        print(each)
        write(each)
