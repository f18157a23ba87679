"""Several runs at the same time, each in a process of this machine (`--jobs`). A process that dies fails one run only.

A process runs one job after another: jobs are lines on its stdin, and what becomes of them lines on its stdout. When
stdin is closed, by the parent or by its death, the run saves its state and the process ends.
"""

from __future__ import annotations

import _thread
import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import IO, Any

from laconic.data.sources import sources_kept
from laconic.errors import on_command_line, speak, worded
from laconic.observers.observer import Row
from laconic.store.folder import json_text
from laconic.sweeps.jobs import Job, Reporting, Watch


class Told(Watch):
    """Writes a line for each call, which the parent process repeats with `pass_on`."""

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
    """Call the method of the watch that a line names; returns its name and that of the run."""
    what, name, *values = json.loads(line)
    getattr(watch, {"started": "started", "row": "row", "note": "note", "ended": "ended"}[what])(name, *values)
    return what, name


def main() -> None:
    told = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # everything else that is printed goes to stderr
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
    speak(on_command_line)
    main()


_WORKER = (sys.executable, "-m", "laconic.sweeps.processes")


@dataclass
class _Worker:
    """A process, and the job that it has."""

    process: subprocess.Popen[str]
    listener: threading.Thread
    job: Job | None = None

    def give(self, job: Job) -> None:
        self.job = job
        assert self.process.stdin is not None
        with contextlib.suppress(OSError):  # a dead process is noticed by the end of its lines
            self.process.stdin.write(job.to_json() + "\n")
            self.process.stdin.flush()

    def let_go(self) -> None:
        """Close its stdin: the run saves its state, and the process ends."""
        assert self.process.stdin is not None
        with contextlib.suppress(OSError):
            self.process.stdin.close()


_Heard = tuple[_Worker, str | None]
"""A line of a worker; None when it has ended."""


def in_processes(jobs: Sequence[Job], watch: Watch, *, count: int, threads: int) -> None:
    """As many runs at once as `count`, each with so many threads unless its configuration says otherwise."""
    waiting = deque(replace(job, threads=threads) for job in jobs)
    heard: queue.Queue[_Heard] = queue.Queue()
    workers = [_start(heard) for _ in range(min(count, len(waiting)))]
    try:
        for worker in workers:
            worker.give(waiting.popleft())
        while any(worker.job is not None for worker in workers):
            worker, line = heard.get()
            if line is not None:
                if pass_on(line, watch)[0] == "ended":
                    worker.job = None
            elif worker.job is not None:
                watch.ended(worker.job.name, _death(worker.process.wait()))
                worker.job = None
                worker.let_go()
                workers.remove(worker)
                if waiting:
                    worker = _start(heard)
                    workers.append(worker)
            if worker.job is None and waiting and worker in workers:
                worker.give(waiting.popleft())
    finally:
        for worker in workers:
            worker.let_go()
        for worker in workers:
            worker.process.wait()
            worker.listener.join()


def _start(heard: queue.Queue[_Heard]) -> _Worker:
    # A session of its own: a Ctrl-C at the terminal reaches the parent alone, which then lets all workers go.
    process = subprocess.Popen(
        _WORKER, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8", start_new_session=True
    )

    def listen() -> None:
        assert process.stdout is not None
        with process.stdout:
            for line in process.stdout:
                heard.put((worker, line))
        heard.put((worker, None))

    worker = _Worker(process, threading.Thread(target=listen, daemon=True))
    worker.listener.start()
    return worker


def _death(code: int) -> dict[str, object]:
    """Why a run failed whose process is gone."""
    if code < 0:
        how = f"was killed ({signal.Signals(-code).name})"
        hint = "; if memory ran out, fewer ⟨jobs⟩ or a smaller ⟨chunk⟩ help" if -code == signal.SIGKILL else ""
    else:
        how, hint = f"ended with exit code {code}", ""
    return {"error": worded(f"the process of the run {how}{hint}; the run can be gone on with"), "exit_code": 1}
