"""What a user sees while a run goes on: a live bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Any

from laconic.experiment.experiment import Experiment
from laconic.report.ledger import human_bytes


class PlainProgress:
    """Lines on stderr: the first round, the last one, and one every few seconds between."""

    def __init__(self, experiment: Experiment, *, quiet: bool = False, seconds: float = 5.0) -> None:
        self._rounds, self._quiet, self._seconds = experiment.rounds, quiet, seconds
        self._metric = experiment.best_by.replace("-", "_")
        self._last = 0.0
        self._bytes = 0
        self._seen: dict[str, Any] = {}

    def __enter__(self) -> PlainProgress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    def row(self, row: dict[str, Any]) -> None:
        text = self.text(row)
        now = time.monotonic()
        if not self._quiet and (now - self._last > self._seconds or row["round"] == self._rounds):
            print(f"round {row['round']}/{self._rounds}  {text}", file=sys.stderr, flush=True)
            self._last = now

    def note(self, text: str) -> None:
        """Something that happened besides."""
        print(f"laconic: {text}", file=sys.stderr, flush=True)

    def text(self, row: dict[str, Any]) -> str:
        """Metric, ε and bytes so far; values of unevaluated rounds are the last known ones."""
        self._bytes += row["bytes_up"] + row["bytes_down"]
        self._seen |= row
        wanted = (self._metric, "accuracy", "loss")
        metric = next((name for name in wanted if name in self._seen), "loss")
        parts = [f"{metric.replace('_', ' ')} {self._seen[metric]:.4f}"] if metric in self._seen else []
        if "epsilon" in self._seen:
            parts.append(f"ε {self._seen['epsilon']:.3f} (server {self._seen['participant_epsilon']:.2f})")
        parts.append(human_bytes(self._bytes))
        return "  ".join(parts)


class LiveProgress(PlainProgress):
    """A bar with round, metric, ε spent, bytes and the time that is left."""

    def __init__(self, experiment: Experiment, *, quiet: bool = False) -> None:
        super().__init__(experiment, quiet=quiet)
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        self._bar = Progress(
            BarColumn(bar_width=12),
            TextColumn("round {task.completed:.0f}/{task.total:.0f}  {task.fields[state]}"),
            TimeRemainingColumn(compact=True),
            console=Console(stderr=True),
        )
        self._task = self._bar.add_task("", total=experiment.rounds, state="")

    def __enter__(self) -> LiveProgress:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def row(self, row: dict[str, Any]) -> None:
        self._bar.update(self._task, completed=row["round"], state=self.text(row))

    def note(self, text: str) -> None:
        self._bar.console.print(f"laconic: {text}", markup=False, highlight=False)
