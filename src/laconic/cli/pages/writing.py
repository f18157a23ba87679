"""Writing a page where the user said, and nowhere else."""

from __future__ import annotations

from pathlib import Path

_BEGINNING = b"<!doctype html"


def write_page(path: Path, page: str, flag: str) -> None:
    """Write the page. A file that is there and is no page stays: a slip must not cost a run its files."""
    from laconic.errors import ConfigError

    try:
        if path.is_file():
            with open(path, "rb") as stream:
                begins = stream.read(len(_BEGINNING)).lower()
            if begins not in (b"", _BEGINNING):
                raise ConfigError(f"{flag} {path}: this file is there and is not a page; choose another name")
        path.write_text(page, encoding="utf-8")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(f"cannot write {path}: {reason}; say where with {flag}") from None
