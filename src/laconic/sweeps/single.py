"""One run of a sweep in its folder: what `laconic run` would have done with the same configuration."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from laconic.clients.simulated import SimulatedClients
from laconic.errors import LaconicError
from laconic.experiment.cautions import planned_cautions, untested
from laconic.observers.observer import Observer, Together
from laconic.runner.in_folder import run_in
from laconic.runner.run import Run
from laconic.settings.build import Settled, settle
from laconic.settings.config import RunConfig
from laconic.settings.launch import files_of, resumed_config, tracked
from laconic.store.folder import RunFolder
from laconic.train.engines.engine import Engine

Through = Callable[[Engine], Engine]


def same(engine: Engine) -> Engine:
    """A run's own engine, as it is."""
    return engine


def run_in_folder(
    config: RunConfig, path: Path, watch: Observer, threads: int | None = None, through: Through = same
) -> None:
    """Start the run, or go on with it; `threads` are those of a new run whose configuration does not say.

    `through` is that of `SimulatedClients`.
    """
    folder = RunFolder(path)
    if folder.exists:
        config = resumed_config(folder, asked_by(config))
    elif threads is not None and config.run.threads is None:
        config = config.with_values({"run.threads": threads})
    following = tracked(config)  # which may need something that is not installed
    with _threads_put_back():
        settled: Settled = settle(config, stored=path)
        for text in [*planned_cautions(settled.experiment), *untested(settled.experiment)]:
            watch.note(text)
        clients = SimulatedClients(settled.experiment, through=through)
        simulation = Run(settled.experiment, clients=clients, observer=Together(watch, following))
        with run_in(folder, simulation, files_of(settled)) as run:
            run.run()


@contextmanager
def _threads_put_back() -> Iterator[None]:
    """A run may ask for a number of threads; the next one in this process must not inherit it."""
    before = torch.get_num_threads()
    try:
        yield
    finally:
        torch.set_num_threads(before)


def asked_by(config: RunConfig) -> dict[str, Any]:
    """All values of a configuration, by their place."""
    return {f"{section}.{key}": value for section, keys in config.to_dict().items() for key, value in keys.items()}


def failure_of(error: BaseException) -> dict[str, Any]:
    """Why a run failed, as plain values. What no user can mend comes with its trace."""
    if isinstance(error, LaconicError):
        return {"error": str(error), "exit_code": error.exit_code}
    reason = (str(error).splitlines() or [""])[0]
    return {
        "error": f"{type(error).__name__}: {reason}",
        "exit_code": 1,
        "trace": "".join(traceback.format_exception(error)),
    }
