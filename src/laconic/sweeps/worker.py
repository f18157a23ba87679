"""A process that runs one job after another: jobs are lines on stdin, and what becomes of them lines on stdout.

When stdin is closed, by the parent or by its death, the run saves its state and the process ends.
"""

from __future__ import annotations

import _thread
import json
import os
import queue
import signal
import sys
import threading
from typing import IO, Any

from laconic.data.sources import sources_kept
from laconic.observers.observer import Row
from laconic.store.folder import json_text
from laconic.sweeps.ways import Job, Reporting, Watch


class Told(Watch):
    """Writes a line for all that a watch is told."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream

    def started(self, name: str, rounds: int, finished: int) -> None:
        self._tell("started", name, [rounds, finished])

    def row(self, name: str, row: Row) -> None:
        self._tell("row", name, [row])

    def note(self, name: str, text: str) -> None:
        self._tell("note", name, [text])

    def ended(self, name: str, failure: dict[str, Any] | None) -> None:
        self._tell("ended", name, [failure])

    def _tell(self, what: str, name: str, values: list[Any]) -> None:
        self._stream.write(json_text([what, name, *values]) + "\n")
        self._stream.flush()


def pass_on(line: str, watch: Watch) -> tuple[str, str]:
    """Tell the watch what a line says; which method and which run it was."""
    what, name, *values = json.loads(line)
    getattr(watch, {"started": "started", "row": "row", "note": "note", "ended": "ended"}[what])(name, *values)
    return what, name


def main() -> None:
    told = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # whatever else is printed goes to stderr
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    jobs: queue.Queue[str | None] = queue.Queue()
    threading.Thread(target=_read, args=(jobs,), daemon=True).start()
    watch = Told(told)
    try:
        with sources_kept():
            while (line := jobs.get()) is not None:
                job = Job.from_json(line)
                watch.ended(job.name, job.run(Reporting(job.name, watch)))
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        sys.exit(141)


def _read(jobs: queue.Queue[str | None]) -> None:
    for line in sys.stdin:
        jobs.put(line)
    jobs.put(None)
    _thread.interrupt_main()


if __name__ == "__main__":
    main()
