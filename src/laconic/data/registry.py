"""What a data set with a name is, where its files are, the list of all, and one of the user's own.

One `register` makes a data set known to every command. Files are in the folder that the user named, in LACONIC_DATA, in
the cache, or among the system's data sets.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from laconic.data.population import Records, check_records
from laconic.data.text import Wording
from laconic.errors import ConfigError, DataError, LaconicError, one_line, option_named, unknown
from laconic.own_code import imported

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
        return f"⟨data-dir⟩ {given}: {given} is not a folder; name the one that has {', '.join(files)}"
    where = " or ".join(str(folder) for folder in tried)
    message = f"⟨data-dir⟩ {given}: no complete {dataset} there; expected {', '.join(files)} in {where}"
    for folder in tried:
        missing = [name for name in files if _either(folder, name) is None]
        if len(missing) < len(files):
            return f"{message}; {folder} lacks {', '.join(missing)}"
    return message


@dataclass(frozen=True)
class Source:
    """A data set in memory, split into training and test records."""

    name: str
    train: Records
    test: Records
    num_classes: int
    input_shape: tuple[int, ...]
    description: str
    owners: np.ndarray | None = None
    """Whose each training record is (any integers), where the data say it."""
    test_owners: np.ndarray | None = None
    attributes: Mapping[str, np.ndarray] = field(default_factory=dict)
    """Further facts about the training records or their owners, 0, 1 or −1 (unknown): for property inference."""
    notes: tuple[str, ...] = ()
    """What the privacy statement must say about the data."""
    wording: Wording | None = None
    """Of texts: how many numbers words have, and a few texts."""


Loader = Callable[..., Source]
"""Given its own entry, the user's data folder, if any, and what it takes of `options`, returns the data set."""


@dataclass(frozen=True, kw_only=True)
class SourceInfo:
    """What can be said of a data set without loading it, and the loader."""

    name: str
    description: str
    licence: str
    origin: str
    num_train: int
    """All of them, where the split into training and test records is drawn when they are loaded."""
    num_test: int
    input_shape: tuple[int, ...]
    """Of one record; empty where it depends on the settings."""
    classes: tuple[str, ...]
    """Their names, in the order of the targets."""
    client: str
    """What a client is: "a random shard of pictures", "a person"."""
    default_clients: int
    """Among how many the records are dealt; of natural data, how many there are."""
    unit_range: bool = False
    """Whether every value of a record is about within [0, 1], as is publicly known."""
    owner: str = ""
    """Whose records are known to belong together although they are dealt out: the clients with --partition column."""
    natural: bool = False
    """Whether the clients come with the data: records are then divided by their owners."""
    load: Loader | None = field(default=None, repr=False)
    """None for what is not one pool of records: health records and clients that are made on demand."""
    size: str = ""
    """How many records there are, where it takes more words than two numbers."""
    files: tuple[str, ...] = ()
    """Below the folder of the data set."""
    or_files: tuple[tuple[str, ...], ...] = ()
    """Other sets of files, any one of which is enough."""
    folders: tuple[str, ...] = ()
    """Other names of its folder."""
    sums: Mapping[str, str] = field(default_factory=dict)
    """File → "sha256:…" or "md5:…" of its content (of a `.gz`, unpacked), checked on loading."""
    options: tuple[str, ...] = ()
    """Keys of the section [data] that the loader takes, besides those that all data sets have."""
    citation: str = ""
    stand_in_for: str | None = None
    """The data set that cannot be had, where this one takes its place."""
    how_to_get: str = ""
    """In one line, where it cannot be downloaded."""

    @property
    def num_records(self) -> int:
        return self.num_train + self.num_test

    @property
    def records(self) -> str:
        """How many, for people."""
        return self.size or f"{self.num_train:,} + {self.num_test:,} records"

    @property
    def clients(self) -> str:
        """What a client is and how many there are, for people."""
        many = f"{self.default_clients:,} clients"
        if self.natural:
            return f"{many}, each {self.client}"
        owners = f"; with --partition column a client is {self.owner}" if self.owner else ""
        return f"{many} unless you say otherwise, each {self.client}{owners}"

    @property
    def dealt_client(self) -> str:
        """What a client is where records are dealt out."""
        return "a random shard of records" if self.natural else self.client

    def locate(self, data_dir: str | Path | None = None) -> list[Path] | None:
        """The files of the first set that is complete, or None; a `data_dir` without one is an error."""
        if not self.files:
            return None
        missing: DataError | None = None
        for files in (self.files, *self.or_files):
            try:
                if found := locate(self.name, files, data_dir, also=self.folders):
                    return found
            except DataError as error:
                missing = missing or error
        if missing is not None:
            others = " or ".join(", ".join(files) for files in self.or_files)
            raise DataError(f"{missing}{f'; {others} will do as well' if others else ''}") from None
        return None

    def needed(self, data_dir: str | Path | None = None) -> list[Path]:
        """The files of a data set that cannot be downloaded; how to get them if they are not there."""
        try:
            found = self.locate(data_dir)
        except DataError as error:
            raise DataError(f"{error}; to get them, {self.how_to_get}") from None
        if found is None:
            raise DataError(
                f"the files of data set '{self.name}' are not on this machine: {self.how_to_get}; then name that folder"
                " with ⟨data-dir⟩, or with LACONIC_DATA the folder above it"
            )
        return found

    def where(self, data_dir: str | Path | None = None) -> str:
        """Where its files are, or what will happen without them, for people."""
        if not self.files:
            return self.how_to_get or "embedded"
        try:
            paths = self.locate(data_dir)
        except DataError:
            return f"not found in {data_dir}"
        if paths:
            return f"found in {paths[0].parent}"
        return f"not found; {self.how_to_get or 'will be downloaded on first use'}"


SOURCES: dict[str, SourceInfo] = {}
"""All data sets by name, in the order in which they are shown."""


def register(info: SourceInfo) -> SourceInfo:
    """Make a data set known by its name; the same name again replaces it."""
    SOURCES[info.name] = info
    return info


def load_source(source: str | SourceInfo, data_dir: str | Path | None = None, **options: Any) -> Source:
    """The named data set. `data_dir` is for those that come in files; an embedded one does not look at it.

    `options` are those that the data set takes; None is the same as to leave one out.
    """
    if isinstance(source, str):
        if source not in SOURCES:
            raise ConfigError(unknown("data set", source, SOURCES))
        source = SOURCES[source]
    if source.load is None:
        raise ConfigError(f"data set '{source.name}' is not one pool of records, so it cannot be used here")
    options = {name: value for name, value in options.items() if value is not None}
    for name in options:
        if name not in source.options:
            raise ConfigError(f"{option_named(name)} means nothing to the data set '{source.name}': leave it out")
    if _kept is None:
        return source.load(source, data_dir, **options)
    key = (source.name, data_dir, *sorted(options.items()))
    if key not in _kept:
        _kept[key] = source.load(source, data_dir, **options)
    return _kept[key]


_kept: dict[Hashable, Source] | None = None


@contextmanager
def sources_kept() -> Iterator[None]:
    """Inside this block each data set is read once, for many runs; outside nothing stays in memory."""
    global _kept
    before, _kept = _kept, {}
    try:
        yield
    finally:
        _kept = before


def own_source(name: str) -> SourceInfo:
    """What stands behind the name: a `SourceInfo`, or a function that returns one or a whole `Source`.

    The function is called without arguments when the name is first looked at.
    """
    file, _, column = name.rpartition(":")
    if Path(file).is_file():
        way = f"--dataset {file} --target {column}"
        raise ConfigError(f"⟨dataset⟩ {name}: {file} is a file; name its column with {way}")
    made = imported("dataset", name)
    if callable(made):
        made = _called(name, made)
    if isinstance(made, Source):
        return _info_of(name, _checked(name, made))
    if not isinstance(made, SourceInfo):
        raise ConfigError(
            f"⟨dataset⟩ {name} is a {type(made).__name__}: it must be, or return, a SourceInfo or a Source"
            " (laconic.data.sources)"
        )
    load = made.load
    if load is None:
        raise ConfigError(f"⟨dataset⟩ {name}: its SourceInfo has no load function")
    return replace(made, load=lambda info, data_dir: _checked(name, load(made, data_dir)))


def _called(name: str, function: Any) -> Any:
    needed = [p.name for p in inspect.signature(function).parameters.values() if p.default is p.empty]
    if needed:
        raise ConfigError(f"⟨dataset⟩ {name} must work without arguments, but needs {', '.join(needed)}")
    try:
        return function()
    except LaconicError:
        raise
    except Exception as error:  # a user's function may raise anything
        reason = one_line(error, 200) or type(error).__name__
        raise ConfigError(f"⟨dataset⟩ {name} cannot be loaded: {reason}") from None


def _checked(name: str, source: Source) -> Source:
    for what, records in (("training", source.train), ("test", source.test)):
        check_records(records, f"--dataset {name}, {what} records")
    for what, owners, records in (
        ("owners", source.owners, source.train),
        ("test_owners", source.test_owners, source.test),
    ):
        if owners is not None and owners.shape != records.targets.shape[:1]:
            raise DataError(f"⟨dataset⟩ {name}: {what} of shape {owners.shape} for {len(records.targets)} records")
    return source


def _info_of(name: str, source: Source) -> SourceInfo:
    natural = source.owners is not None
    return SourceInfo(
        name=name,
        description=source.description,
        licence="your own",
        origin="your own function",
        num_train=len(source.train.targets),
        num_test=len(source.test.targets),
        input_shape=source.input_shape,
        classes=tuple(str(label) for label in range(source.num_classes)),
        client="an owner of records" if natural else "a random shard of records",
        default_clients=len(set(source.owners.tolist())) if source.owners is not None else 100,
        natural=natural,
        load=lambda info, data_dir: source,
        how_to_get="made by the function",
    )
