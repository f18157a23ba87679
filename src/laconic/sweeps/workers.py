"""Several runs at the same time: in processes of this machine (`--jobs`), or on a Ray cluster.

A process that dies fails one run only. A process runs one job after another: jobs are lines on its stdin, and what
becomes of them lines on its stdout. When stdin is closed, by the parent or by its death, the run saves its state and
the process ends.

Every machine of a Ray cluster must have Laconic, the data, and the folder of the sweep (a shared one). A task of the
cluster is one run in its folder; it goes on from what is there. Jobs and answers travel as JSON.
"""

from __future__ import annotations

import _thread
import contextlib
import hashlib
import importlib.util
import json
import os
import platform
import queue
import signal
import subprocess
import sys
import threading
import warnings
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

from laconic.data.sources import sources_kept
from laconic.errors import ConfigError, Failure, RunFolderError, how_to_install, on_command_line, speak, worded
from laconic.observers.observer import Observer, Row
from laconic.report.page.reading import read_run
from laconic.store.folder import json_text
from laconic.sweeps.jobs import GRID, Job, Reporting, Watch


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

    def ended(self, name: str, failure: Failure | None) -> None:
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


_WORKER = (sys.executable, "-m", "laconic.sweeps.workers")


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


def _death(code: int) -> Failure:
    """Why a run failed whose process is gone."""
    if code < 0:
        how = f"was killed ({signal.Signals(-code).name})"
        hint = "; if memory ran out, fewer ⟨jobs⟩ or a smaller ⟨chunk⟩ help" if -code == signal.SIGKILL else ""
    else:
        how, hint = f"ended with exit code {code}", ""
    return {"error": worded(f"the process of the run {how}{hint}; the run can be gone on with"), "exit_code": 1}


_TIMEOUT = 60.0
"""Seconds that interrupted runs have to save their state."""


def on_ray(jobs: Sequence[Job], watch: Watch, *, out: Path, most: int | None = None) -> None:
    """Hand the runs to the cluster that is there (RAY_ADDRESS, or one on this machine), else to one that is started.

    At most so many go at once; by themselves as many as there are CPUs. A run has the threads of its configuration, or
    one, and a GPU if the cluster has any and the run does not say otherwise.
    """
    if not jobs:
        return
    import ray

    started = _connect(most)
    try:
        _hand_out(ray, jobs, watch, out.resolve(), most)
    finally:
        if started:
            ray.shutdown()


def check_installed() -> None:
    if importlib.util.find_spec("ray") is None:
        raise ConfigError(f"⟨on⟩ ray needs ray: {how_to_install('ray')}")


def _connect(most: int | None) -> bool:
    """Connect to Ray; whether this process did, and so has to disconnect again."""
    import ray

    if ray.is_initialized():
        return False
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # else a cluster that is started here tells its makers
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # on what later versions of Ray will do
        try:
            ray.init(address="auto", log_to_driver=False, logging_level="warning")
        except ConnectionError:
            ray.init(num_cpus=most, include_dashboard=False, log_to_driver=False, logging_level="warning")
    return True


def _hand_out(ray: Any, jobs: Sequence[Job], watch: Watch, out: Path, most: int | None) -> None:
    grid = (out / GRID).read_bytes()
    gpus = bool(ray.cluster_resources().get("GPU"))
    task = ray.remote(max_retries=0)(run_job)
    waiting = deque(jobs)
    going: dict[Any, Job] = {}
    try:
        while waiting or going:
            while waiting and (most is None or len(going) < most):
                job = waiting.popleft()
                threads = job.config.run.threads or 1
                job = replace(job, path=job.path.resolve(), threads=threads)
                wants = {"num_cpus": threads, "num_gpus": int(gpus and job.config.run.device != "cpu")}
                going[task.options(**wants).remote(job.to_json(), str(out), digest_of(grid))] = job
            done, _ = ray.wait(list(going), num_returns=1)
            for one in done:
                _tell(watch, going.pop(one), _answer(ray, one))
    except KeyboardInterrupt:
        for one in going:
            ray.cancel(one)  # which interrupts the run: it saves its state
        ray.wait(list(going), num_returns=len(going), timeout=_TIMEOUT)
        raise


def _tell(watch: Watch, job: Job, failure: Failure | None) -> None:
    """Report the end of a run on another machine; its rows are in its folder."""
    rows = read_run(job.path).rows
    if rows:
        watch.started(job.name, job.config.run.rounds, 0)
        watch.row(job.name, rows[-1])
    watch.ended(job.name, failure)


def _answer(ray: Any, one: Any) -> Failure | None:
    """What became of a run: None, or why it failed. A machine that is lost fails only its own runs."""
    try:
        found: Failure | None = json.loads(ray.get(one))
    except (ray.exceptions.RayError, ray.exceptions.TaskCancelledError) as error:
        reason = (str(error).splitlines() or [""])[0]
        return {"error": f"Ray lost the run ({type(error).__name__}: {reason}); it can be gone on with", "exit_code": 1}
    return found


def run_job(text: str, out: str, grid: str) -> str:
    """On a machine of the cluster: run the job, if this machine sees the folder of the sweep."""
    try:
        seen = digest_of((Path(out) / GRID).read_bytes())
    except OSError:
        seen = ""
    if seen != grid:
        error = RunFolderError(
            f"{platform.node()}, a machine of the Ray cluster, does not see {out}: choose an --out that all machines"
            " share"
        )
        return json_text({"error": str(error), "exit_code": error.exit_code})
    return json_text(Job.from_json(text).run(Observer()))


def digest_of(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=16).hexdigest()
