"""Where a data set's files are: the folder the user named, LACONIC_DATA, the cache, or the system's data sets."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from laconic.errors import DataError

SYSTEM_DATASETS = Path("/usr/share/datasets")  # where Debian's dataset-* packages put their files


def cache_dir() -> Path:
    """Where downloads are kept: LACONIC_CACHE, or laconic/ in the user's cache folder."""
    if own := os.environ.get("LACONIC_CACHE"):
        return Path(own).expanduser()
    xdg = Path(os.environ.get("XDG_CACHE_HOME", ""))
    # The XDG rules say that a relative path is to be ignored.
    return (xdg if xdg.is_absolute() else Path.home() / ".cache") / "laconic"


def search_dirs(dataset: str) -> list[Path]:
    """The folders looked into when the user named none, in order."""
    named = [Path(part).expanduser() for part in os.environ.get("LACONIC_DATA", "").split(os.pathsep) if part]
    return [parent / dataset for parent in (*named, cache_dir(), SYSTEM_DATASETS)]


def locate(
    dataset: str, files: Sequence[str], data_dir: str | Path | None = None, *, also: Sequence[str] = ()
) -> list[Path] | None:
    """The paths of all the files, from the first folder that has every one; `None` if no folder has.

    The folder is named after the data set, or as in `also`, which may lie inside it: archives are often unpacked there.
    A name that ends in `.gz` is also met by the unpacked file
    without it. A `data_dir` is a promise by the user: if the files are not there that is an error, never a reason to
    take other files from elsewhere.
    """
    if data_dir is None:
        folders = [folder for name in _names(dataset, also) for folder in search_dirs(name)]
        return next((found for folder in folders if (found := _all_in(folder, files))), None)
    given = Path(data_dir).expanduser()
    tried = [*(given / name for name in _names(dataset, also)), given]
    for folder in tried:
        if found := _all_in(folder, files):
            return found
    raise DataError(_not_there(dataset, files, given, tried))


def _names(dataset: str, also: Sequence[str]) -> list[str]:
    return [dataset, *also, *(f"{dataset}/{name}" for name in also)]


def _all_in(folder: Path, files: Sequence[str]) -> list[Path] | None:
    found = [_either(folder, name) for name in files]
    complete = [path for path in found if path is not None]
    return complete if len(complete) == len(files) else None


def _either(folder: Path, name: str) -> Path | None:
    """The file under its own name or, unpacked, without `.gz`."""
    candidates = (folder / name, folder / name.removesuffix(".gz"))
    return next((path for path in candidates if path.is_file()), None)


def _not_there(dataset: str, files: Sequence[str], given: Path, tried: Sequence[Path]) -> str:
    if not given.is_dir():
        return f"--data-dir {given}: {given} is not a folder; name the one that has {', '.join(files)}"
    where = " or ".join(str(folder) for folder in tried)
    message = f"--data-dir {given}: no complete {dataset} there; expected {', '.join(files)} in {where}"
    for folder in tried:
        missing = [name for name in files if _either(folder, name) is None]
        if len(missing) < len(files):
            return f"{message}; {folder} lacks {', '.join(missing)}"
    return message
