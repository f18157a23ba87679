"""Refusals whose reasons stay on the node."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from laconic.errors import ConfigError, LaconicError, RunFolderError

WITHHELD = "this node cannot do that now; its own log says why"


class Withheld(LaconicError):
    """A refusal whose reason stays on the node: its records, or what other servers were given, may have decided it."""

    def __init__(self, detail: str, past: str | None = None) -> None:
        super().__init__(WITHHELD)
        self.detail, self.past = detail, past
        """What is logged; and who was refused, if what others were given may have decided it."""


class RecordsFailed(Withheld):
    """This node's own records could not be used."""


@contextmanager
def on_records() -> Iterator[None]:
    try:
        yield
    except Exception as error:  # records and engines may raise anything
        raise RecordsFailed(f"{type(error).__name__}: {error}") from error


@contextmanager
def on_own_keys() -> Iterator[None]:
    """How this node keeps its keys (permissions, passphrase) is not told to servers."""
    try:
        yield
    except (ConfigError, RunFolderError) as error:
        raise Withheld(str(error)) from None
