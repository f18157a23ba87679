"""Runs on a Ray cluster. Every machine of it must have Laconic, the data, and the folder of the sweep (a shared one).

A task of the cluster is one run in its folder; it goes on from what is there. Jobs and answers travel as JSON.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import platform
import warnings
from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from laconic.errors import ConfigError, RunFolderError, how_to_install
from laconic.observers.observer import Observer
from laconic.report.page.reading import read_run
from laconic.store.folder import json_text
from laconic.sweeps.jobs import GRID, Job, Watch

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


def _tell(watch: Watch, job: Job, failure: dict[str, Any] | None) -> None:
    """Report the end of a run on another machine; its rows are in its folder."""
    rows = read_run(job.path).rows
    if rows:
        watch.started(job.name, job.config.run.rounds, 0)
        watch.row(job.name, rows[-1])
    watch.ended(job.name, failure)


def _answer(ray: Any, one: Any) -> dict[str, Any] | None:
    """What became of a run: None, or why it failed. A machine that is lost fails only its own runs."""
    try:
        found: dict[str, Any] | None = json.loads(ray.get(one))
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
