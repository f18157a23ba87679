"""What users choose by name: models, losses, trackers, …"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Generic, TypeVar

from laconic.errors import ConfigError, unknown

Entry = TypeVar("Entry")


class Registry(Mapping[str, Entry], Generic[Entry]):
    """Entries of one kind by their names, in the order in which they are shown.

    Args:
        kind: what the entries are, as an error calls them: "model".
        entries: those that come with Laconic.
        own: how users name one of their own: "package.module:factory"; empty where they cannot.

    Examples:
        >>> from laconic.registry import Registry
        >>> Registry("colour", {"red": 1, "green": 2}).find("gren")
        Traceback (most recent call last):
        ...
        laconic.errors.ConfigError: unknown colour 'gren': did you mean 'green'? Known: green, red
    """

    def __init__(self, kind: str, entries: Mapping[str, Entry], *, own: str = "") -> None:
        self.kind, self._entries, self._own = kind, dict(entries), own

    def __getitem__(self, name: str) -> Entry:
        return self._entries[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def register(self, name: str, entry: Entry) -> Entry:
        """Make an entry known by its name; the same name again replaces it."""
        self._entries[name] = entry
        return entry

    def find(self, name: str, *, also: Iterable[str] = ()) -> Entry:
        """The entry of that name; an error lists the known names, and those of `also`."""
        if name not in self._entries:
            own = f", or your own as {self._own}" if self._own else ""
            raise ConfigError(unknown(self.kind, name, [*also, *self._entries]) + own)
        return self._entries[name]
