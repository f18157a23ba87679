"""Files are taken only if they have the published sum: a truncated, renamed or altered one is refused by its name."""

from __future__ import annotations

import hashlib
from pathlib import Path

from laconic.data.registry import SourceInfo
from laconic.errors import DataError

REMEDY = "delete it to have it downloaded again, or point --data-dir at the original files"


def read_checked(path: Path, info: SourceInfo, remedy: str = "") -> bytes:
    """The file's bytes; a `DataError` names the file if they are not those that the entry expects."""
    try:
        content = path.read_bytes()
        check_sum(content, info.sums[path.name])
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror or error})") from None
    except ValueError as error:
        raise DataError(f"{path}: {error}; {remedy or info.how_to_get or REMEDY}") from None
    return content


def check_file(path: Path, info: SourceInfo) -> None:
    """As `read_checked`, for a file that is read in pieces afterwards; one without a published sum passes."""
    if path.name not in info.sums:
        return
    kind, _, digest = info.sums[path.name].partition(":")
    try:
        with path.open("rb") as file:
            found = hashlib.file_digest(file, lambda: hashlib.new(kind, usedforsecurity=False)).hexdigest()
        if found != digest.lower():
            raise ValueError(_other(kind, digest, found, path.stat().st_size))
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror or error})") from None
    except ValueError as error:
        raise DataError(f"{path}: {error}; {info.how_to_get or REMEDY}") from None


def check_sum(content: bytes, expected: str) -> None:
    """A `ValueError` unless the content has the sum, written as "sha256:…" or "md5:…"."""
    kind, _, digest = expected.partition(":")
    found = hashlib.new(kind, content, usedforsecurity=False).hexdigest()
    if found != digest.lower():
        raise ValueError(_other(kind, digest, found, len(content)))


def _other(kind: str, digest: str, found: str, size: int) -> str:
    return f"not the expected data: {kind} {digest[:12]}... expected, {found[:12]}... found in {size:,} bytes"
