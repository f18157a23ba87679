"""What a user sees while a sweep goes on: bars on a terminal, a line for every run elsewhere."""

from __future__ import annotations

import sys
import time
from typing import Any

from laconic.errors import Failure
from laconic.figures import at_most
from laconic.metrics import titles
from laconic.observers.observer import Row
from laconic.observers.progress import measured_text
from laconic.sweeps.jobs import Watch


class SweepLines(Watch):
    """Lines on stderr: one when a run ends, and one every few seconds. A note that all runs have is said once."""

    def __init__(self, count: int, finished: int, *, quiet: bool = False, seconds: float = 10.0) -> None:
        self.count, self.done, self._quiet, self._seconds = count, finished, quiet, seconds
        self._began: dict[str, float] = {}
        self._seen: dict[str, dict[str, Any]] = {}
        self._rounds: dict[str, int] = {}
        self._said: set[str] = set()
        self.failed: dict[str, str] = {}
        self._last = time.monotonic()

    def __enter__(self) -> SweepLines:
        if self.done and not self._quiet:
            self.say(f"{self.done} of {self.count} runs are finished already")
        return self

    def __exit__(self, *error: object) -> None:
        return None

    def started(self, name: str, rounds: int, finished: int) -> None:
        self._began[name], self._rounds[name], self._seen[name] = time.monotonic(), rounds, {"round": finished}

    def row(self, name: str, row: Row) -> None:
        self._seen.setdefault(name, {}).update(row)
        now = time.monotonic()
        if not self._quiet and now - self._last > self._seconds:
            self._last = now
            self.say(f"{name}  {self.text(name)}")

    def note(self, name: str, text: str) -> None:
        if text not in self._said:
            self._said.add(text)
            self.say(f"laconic: warning: {text}")

    def ended(self, name: str, failure: Failure | None) -> None:
        self.done += 1
        now = time.monotonic()
        took = now - self._began.get(name, now)
        if failure is not None:
            self.failed[name] = failure["error"]
            self.say(f"[{self.done}/{self.count}] {name}  failed: {failure['error']}")
        elif not self._quiet:
            self.say(f"[{self.done}/{self.count}] {name}  {self.text(name)}  {took:.1f} s")
        self._seen.pop(name, None)

    def text(self, name: str) -> str:
        """How a run stands: round, metric, ε."""
        seen = self._seen.get(name, {})
        parts = [f"round {seen.get('round', 0)}/{self._rounds.get(name, 0)}"]
        metric = next((key for key in titles() if isinstance(seen.get(key), float)), None)
        parts += [f"{titles()[metric]} {seen[metric]:.4f}"] if metric else []
        parts += [text] if (text := measured_text(seen)) else []
        parts += [f"ε {at_most(seen['epsilon'])}"] if isinstance(seen.get("epsilon"), float) else []
        return "  ".join(parts)

    def say(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)


class SweepBars(SweepLines):
    """A bar for all runs, and one for each that goes on now."""

    def __init__(self, count: int, finished: int) -> None:
        super().__init__(count, finished)
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        self._bars = Progress(
            BarColumn(bar_width=12),
            TextColumn("{task.description}"),
            TimeRemainingColumn(compact=True),
            console=Console(stderr=True),
        )
        self._all = self._bars.add_task(self._title, total=count, completed=finished)
        self._each: dict[str, Any] = {}

    @property
    def _title(self) -> str:
        return f"{self.done} of {self.count} runs"

    def __enter__(self) -> SweepBars:
        self._bars.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._bars.stop()

    def started(self, name: str, rounds: int, finished: int) -> None:
        super().started(name, rounds, finished)
        self._each[name] = self._bars.add_task(name, total=rounds, completed=finished)

    def row(self, name: str, row: Row) -> None:
        self._seen.setdefault(name, {}).update(row)
        if name in self._each:
            self._bars.update(self._each[name], completed=row["round"], description=f"{name}  {self.text(name)}")

    def ended(self, name: str, failure: Failure | None) -> None:
        super().ended(name, failure)
        if name in self._each:
            self._bars.remove_task(self._each.pop(name))
        self._bars.update(self._all, completed=self.done, description=self._title)

    def say(self, text: str) -> None:
        self._bars.console.print(text, markup=False, highlight=False)
