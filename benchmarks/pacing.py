"""How a contender's process runs exactly the rounds that it is asked for. Standard library only: peers import it too.

The process warms up, says that it is ready, and waits. Every line on its standard input is a number of rounds to run;
it answers with the seconds that one took. The end of its input ends it. So contenders take turns, and the others wait.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable

MARK = "@bench "  # libraries print to standard output as well; only lines with this mark are answers


class Pacer:
    """For a loop of someone else's, which calls `round_done` after each round and goes on while it returns True.

    `synchronize` waits for a device before the clock is read. `extra` is asked for further values of an answer.
    """

    def __init__(
        self,
        *,
        warmups: int = 1,
        synchronize: Callable[[], None] = lambda: None,
        extra: Callable[[], dict[str, float]] = dict,
    ) -> None:
        self._left, self._asked, self._started = warmups, 0, 0.0
        self._synchronize, self._extra = synchronize, extra

    def round_done(self) -> bool:
        self._left -= 1
        if self._left > 0:
            return True
        self._synchronize()
        seconds = (time.perf_counter() - self._started) / self._asked if self._asked else None
        print(MARK + json.dumps({"seconds": seconds, **self._extra()}), flush=True)
        line = sys.stdin.readline()
        if not line.strip():
            return False
        self._left = self._asked = int(line)
        self._started = time.perf_counter()
        return True


def serve(one_round: Callable[[], object], pacer: Pacer | None = None) -> None:
    """Pace a plain function."""
    pacer = pacer or Pacer()
    one_round()
    while pacer.round_done():
        one_round()
