"""What a user sees while a run goes on: a live bar on a terminal or in a notebook, a line now and then elsewhere."""

from __future__ import annotations

import html
import sys
import time
from types import TracebackType
from typing import Any

from laconic.figures import at_most, epsilon_text
from laconic.metrics import CLIENTS, MAIN
from laconic.observers.observer import Ended, Observer, Row, Started
from laconic.report.ledger import human_bytes


class PlainProgress(Observer):
    """Lines on stderr: the first round, the last one, and one every few seconds between."""

    def __init__(self, rounds: int, metric: str, *, quiet: bool = False, seconds: float = 5.0) -> None:
        self._rounds, self._quiet, self._seconds = rounds, quiet, seconds
        self._metric = metric.replace("-", "_")
        self._last = 0.0
        self._bytes = 0
        self._seen: dict[str, Any] = {}

    def __enter__(self) -> PlainProgress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    def row(self, row: Row) -> None:
        text = self.text(row)
        now = time.monotonic()
        if not self._quiet and (now - self._last > self._seconds or row["round"] == self._rounds):
            print(f"round {row['round']}/{self._rounds}  {text}", file=sys.stderr, flush=True)
            self._last = now

    def note(self, text: str) -> None:
        print(f"laconic: {text}", file=sys.stderr, flush=True)

    def text(self, row: Row) -> str:
        """Metric, ε and bytes so far; values of unevaluated rounds are the last known ones."""
        self._bytes += row["bytes_up"] + row["bytes_down"]
        self._seen |= row
        wanted = (self._metric, "accuracy", "loss")
        metric = next((name for name in wanted if name in self._seen), "loss")
        parts = [f"{metric.replace('_', ' ')} {self._seen[metric]:.4f}"] if metric in self._seen else []
        parts += [text] if (text := measured_text(self._seen)) else []
        if "epsilon" in self._seen:
            parts.append(
                f"ε {at_most(self._seen['epsilon'])} (server {epsilon_text(self._seen['participant_epsilon'], 2)})"
            )
        parts.append(human_bytes(self._bytes))
        return "  ".join(parts)


def measured_text(row: Row) -> str:
    """What clients measured on their own records, in a few words; empty where they did not, or noise hides it."""
    name = next((name for name in MAIN if f"{CLIENTS}{name}" in row), None)
    if name is None:
        return ""
    noise = f" ± {row['clients_noise']:.3f}" if "clients_noise" in row else ""
    return f"clients' {name} {row[f'clients_{name}']:.3f}{noise}"


class LiveProgress(PlainProgress):
    """A bar on a terminal, with round, metric, ε spent, bytes and the time that is left."""

    def __init__(self, rounds: int, metric: str, *, quiet: bool = False) -> None:
        super().__init__(rounds, metric, quiet=quiet)
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        self._bar = Progress(
            BarColumn(bar_width=12),
            TextColumn("round {task.completed:.0f}/{task.total:.0f}  {task.fields[state]}"),
            TimeRemainingColumn(compact=True),
            console=Console(stderr=True),
        )
        self._task = self._bar.add_task("", total=rounds, state="")

    def __enter__(self) -> LiveProgress:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def row(self, row: Row) -> None:
        self._bar.update(self._task, completed=row["round"], state=self.text(row))

    def note(self, text: str) -> None:
        self._bar.console.print(f"laconic: {text}", markup=False, highlight=False)


class NotebookProgress(PlainProgress):
    """A bar in the output of a notebook's cell. It needs no package besides IPython."""

    def __init__(self, rounds: int, metric: str, *, quiet: bool = False, seconds: float = 0.1) -> None:
        super().__init__(rounds, metric, quiet=quiet, seconds=seconds)
        self._handle: Any = None

    def __enter__(self) -> NotebookProgress:
        from IPython.display import HTML, display

        self._html = HTML
        self._handle = display(HTML(self.page(0, "")), display_id=True)
        return self

    def row(self, row: Row) -> None:
        text, now = self.text(row), time.monotonic()
        if now - self._last > self._seconds or row["round"] == self._rounds:
            self._handle.update(self._html(self.page(row["round"], text)))
            self._last = now

    def page(self, done: int, text: str) -> str:
        bar = f"<progress value='{done}' max='{self._rounds}'></progress>"
        return f"{bar} round {done}/{self._rounds} &ensp; {html.escape(text)}"


class Shown(Observer):
    """A display that is there from the start of a run to its end: `laconic.run(progress=…)`."""

    def __init__(self, kind: type[PlainProgress]) -> None:
        self._kind = kind
        self._display: PlainProgress | None = None

    def start(self, run: Started) -> None:
        self._display = self._kind(run.rounds, run.metric)
        self._display.__enter__()

    def row(self, row: Row) -> None:
        assert self._display is not None
        self._display.row(row)

    def note(self, text: str) -> None:
        assert self._display is not None
        self._display.note(text)

    def end(self, run: Ended) -> None:
        if self._display is not None:
            self._display.__exit__(None, None, None)


def progress_bar(asked: bool | None) -> Observer:
    """A bar where a person can see it: on a terminal and in a notebook. True asks for lines elsewhere, too."""
    if asked is False:
        return Observer()
    if in_notebook():
        return Shown(NotebookProgress)
    if sys.stderr.isatty():
        return Shown(LiveProgress)
    return Shown(PlainProgress) if asked else Observer()


def in_notebook() -> bool:
    """Whether a notebook's kernel runs this. Nothing is imported to find out."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None and hasattr(ipython, "get_ipython") else None
    return shell is not None and hasattr(shell, "kernel")
