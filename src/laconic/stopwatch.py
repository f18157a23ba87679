"""Where the time of a round went."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field


@dataclass
class Stopwatch:
    """Seconds by name. Sections may be nested: a moment counts for the innermost one only.

    `wait` is called at the borders of sections (a GPU works on while Python has gone ahead). Off, it costs nothing.
    """

    on: bool = False
    wait: Callable[[], None] = lambda: None
    seconds: dict[str, float] = field(default_factory=dict)
    _open: list[str] = field(default_factory=list)
    _since: float = 0.0

    @contextlib.contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        if not self.on:
            yield
            return
        self._book()
        self._open.append(name)
        try:
            yield
        finally:
            self._book()
            self._open.pop()

    def _book(self) -> None:
        """Give the time since the last border to the section that was open."""
        self.wait()
        now = time.perf_counter()
        if self._open:
            name = self._open[-1]
            self.seconds[name] = self.seconds.get(name, 0.0) + now - self._since
        self._since = now
