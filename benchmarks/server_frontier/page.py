"""The page and its pictures, from the results."""

from pathlib import Path


def write_page(out: Path) -> None: ...
