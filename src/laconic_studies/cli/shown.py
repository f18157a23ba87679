"""What subcommands of `laconic infer` have in common: lines of progress, files, tables."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click


@dataclass
class Said:
    """What a command says while it works, and the files of what it found: NAME.csv, NAME.json and NAME.png in a folder.

    The first two are written after every scheme, so an interrupt leaves what is done.
    """

    out: Path
    name: str
    quiet: bool
    _last: float = field(default=0.0, init=False)
    _content: dict[str, Any] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        check_folder(self.out)

    def progress(self, text: str) -> None:
        """A line on stderr, every two seconds at most."""
        if not self.quiet and time.monotonic() - self._last > 2:
            self._last = time.monotonic()
            print(text, file=sys.stderr, flush=True)

    def write(self, rows: list[dict[str, Any]], settings: dict[str, Any]) -> None:
        from laconic.store.folder import RunFolder, json_text
        from laconic_studies.inference.pictures import write_rows

        self._content = {"settings": settings, "rows": rows}
        folder = RunFolder(self.out)
        folder.make()
        folder.write(f"{self.name}.json", json_text(self._content, indent=1) + "\n")
        write_rows(rows, self.out / f"{self.name}.csv")

    def draw(self) -> None:
        """The picture, if matplotlib is there."""
        from laconic.report.plots import plots_available
        from laconic_studies.inference.pictures import draw

        if plots_available():
            draw(self.name, self._content["rows"], self.out / f"{self.name}.png")

    def print_json(self) -> None:
        from laconic.store.folder import json_text

        click.echo(json_text(self._content))


def check_folder(out: Path) -> None:
    """Refuse a folder that cannot be made, before the work that it is for."""
    from laconic.errors import ConfigError

    there = next((path for path in (out, *out.parents) if path.exists()), Path())
    if not there.is_dir():
        raise ConfigError(f"--out {out}: {there} is a file, and a folder is needed")


def words(option: str, text: str) -> tuple[str, ...]:
    """The words of a list with commas, each once."""
    from laconic.errors import ConfigError

    found = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    if not found:
        raise ConfigError(f"--{option} names nothing: give one or more, with commas")
    return found


def table(heads: Sequence[str], lines: Sequence[Sequence[str]]) -> None:
    """Columns of the width of what is in them: a terminal may wrap them, but nothing is cut off."""
    widths = [max(len(line[place]) for line in (heads, *lines)) for place in range(len(heads))]
    for line in (heads, *lines):
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())
