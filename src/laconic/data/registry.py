"""What a data set with a name is, and the list of them: one `register` makes it known to every command."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from laconic.data.locate import locate
from laconic.data.population import Records
from laconic.data.text.encode import Wording
from laconic.errors import ConfigError, DataError, unknown


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
                " with --data-dir, or with LACONIC_DATA the folder above it"
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
            raise ConfigError(f"--{name.replace('_', '-')} means nothing to the data set '{source.name}': leave it out")
    if _kept is None:
        return source.load(source, data_dir, **options)
    key = (source.name, data_dir, *sorted(options.items()))
    if key not in _kept:
        _kept[key] = source.load(source, data_dir, **options)
    return _kept[key]


_kept: dict[Hashable, Source] | None = None


@contextmanager
def sources_kept() -> Iterator[None]:
    """Inside this block each data set is read once, for whoever starts many runs; outside nothing stays in memory."""
    global _kept
    before, _kept = _kept, {}
    try:
        yield
    finally:
        _kept = before
