"""Files of data sets: checked against their published sums, and downloaded into the cache.

A truncated, renamed or altered file is refused by its name. A download is checked before it gets its name, so the
cache never holds half a file.
"""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import os
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

from laconic.data.registry import SourceInfo
from laconic.errors import DataError

REMEDY = "delete it to have it downloaded again, or point ⟨data-dir⟩ at the original files"


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


Advance = Callable[[int, int | None], None]
"""Told how many bytes have arrived and how many there will be, if known."""

_CHUNK = 1 << 16
_TIMEOUT_S = 30.0


class _MirrorError(Exception):
    """This mirror did not work out; the next one may."""


def offline() -> bool:
    """Whether the user forbade downloads with LACONIC_OFFLINE."""
    return os.environ.get("LACONIC_OFFLINE", "") not in ("", "0")


def download(urls: Sequence[str], target: Path, check: Callable[[Path], object]) -> Path:
    """Fetch `target` from the first URL that delivers it.

    `check` is given the finished temporary file and raises a `ValueError` with the reason if it is not what it
    should be; then the next URL is tried. Only a file that passed is moved, in one step, to `target`.
    """
    if offline():
        raise DataError(_way_out(f"{target.name} is not on this machine and LACONIC_OFFLINE forbids downloads", urls))
    failures = []
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        for url in urls:
            try:
                _fetch(url, target, check)
                return target
            except _MirrorError as error:
                failures.append(f"{url} ({error})")
    except OSError as error:
        reason = error.strerror or error
        raise DataError(f"cannot write to {target.parent} ({reason}); set LACONIC_CACHE to another folder") from None
    raise DataError(_way_out(f"cannot download {target.name}", failures))


def _fetch(url: str, target: Path, check: Callable[[Path], object]) -> None:
    handle, name = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".part", dir=target.parent)
    part = Path(name)
    try:
        with os.fdopen(handle, "wb") as out, _progress(target.name) as advance:
            _stream(url, out, advance)
        try:
            check(part)
        except ValueError as error:
            raise _MirrorError(error) from None
        os.replace(part, target)
    finally:
        part.unlink(missing_ok=True)


def _stream(url: str, out: BinaryIO, advance: Advance) -> None:
    """Copy the URL's content. Only what the network does is the mirror's fault; a full disk is not."""
    with contextlib.ExitStack() as stack:
        with _network():
            response = stack.enter_context(urllib.request.urlopen(url, timeout=_TIMEOUT_S))
        length = response.headers.get("Content-Length")
        total = int(length) if length and length.isdigit() else None
        done = 0
        while True:
            with _network():
                chunk = response.read(_CHUNK)
            if not chunk:
                break
            out.write(chunk)
            done += len(chunk)
            advance(done, total)
    # Reading in chunks, urllib takes a connection that closed early for the end of the file.
    if total is not None and done != total:
        raise _MirrorError(f"truncated: {done} of {total} bytes arrived")


@contextlib.contextmanager
def _network() -> Iterator[None]:
    try:
        yield
    except urllib.error.HTTPError as error:
        error.close()
        raise _MirrorError(error) from None
    except urllib.error.URLError as error:
        raise _MirrorError(error.reason) from None
    except (OSError, http.client.HTTPException) as error:
        raise _MirrorError(error) from None


@contextlib.contextmanager
def _progress(name: str) -> Iterator[Advance]:
    """A progress bar on stderr if a person is looking at it, otherwise nothing."""
    if not sys.stderr.isatty():
        yield lambda done, total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(name, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def _way_out(problem: str, urls: Sequence[str]) -> str:
    return (
        f"{problem}: {', '.join(urls)}; fetch the data set's files elsewhere and name their folder "
        "with ⟨data-dir⟩, or with LACONIC_DATA the folder above it"
    )
