"""Who watches a run: something with `start`, `row`, `note` and `end`, or a plain function that gets every row."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from laconic.privacy.released import Row, Summary

__all__ = ["Ended", "Observer", "Row", "Started", "Together", "as_observer"]


@dataclass(frozen=True, kw_only=True)
class Started:
    """What is known of a run when it starts or is resumed; `finished` is how many rounds it has already.

    `settings` are the plain values that describe it, by name. `folder` is None for a run in memory.
    """

    scheme: str
    fingerprint: str
    private: bool
    rounds: int
    finished: int
    metric: str
    settings: dict[str, Any]
    folder: Path | None


@dataclass(frozen=True, kw_only=True)
class Ended:
    """How a run ended: 'finished', with its summary and rows, 'interrupted' or 'failed'."""

    status: str
    summary: Summary | None = None
    history: tuple[Row, ...] = ()


class Observer:
    """Watches a run. Every method does nothing unless a subclass says otherwise.

    Examples:
        >>> class Loud(laconic.Observer):
        ...     def row(self, row):
        ...         print("round", row["round"])
        >>> import torch
        >>> clients = [(torch.randn(4, 8), torch.randint(0, 2, (4,))) for _ in range(10)]
        >>> _ = laconic.run(laconic.schemes.fl_std(local_lr=0.1, local_steps=1), model=torch.nn.Linear(8, 2),
        ...                 clients=clients, sampling_rate=1.0, rounds=2, observer=Loud())
        round 1
        round 2
    """

    def start(self, run: Started) -> None:
        """The run begins, or goes on after `run.finished` rounds."""

    def row(self, row: Row) -> None:
        """A round is finished: its row, as in `rounds.jsonl`."""

    def note(self, text: str) -> None:
        """Something else that a reader of the run should know."""

    def end(self, run: Ended) -> None:
        """The run has ended; no further method is called."""


class _Function(Observer):
    def __init__(self, function: Callable[[Row], None]) -> None:
        self._function = function

    def row(self, row: Row) -> None:
        self._function(row)


class Together(Observer):
    """Several observers, told one after the other."""

    def __init__(self, *observers: Observer | Callable[[Row], None]) -> None:
        self._observers = [as_observer(one) for one in observers]

    def start(self, run: Started) -> None:
        for one in self._observers:
            one.start(run)

    def row(self, row: Row) -> None:
        for one in self._observers:
            one.row(row)

    def note(self, text: str) -> None:
        for one in self._observers:
            one.note(text)

    def end(self, run: Ended) -> None:
        for one in self._observers:
            one.end(run)


def as_observer(given: Observer | Callable[[Row], None]) -> Observer:
    """The observer itself, or one around a plain function of the row."""
    return given if isinstance(given, Observer) else _Function(given)
