"""A settled configuration becomes a simulation that writes into a folder: the same way for every command."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from laconic.runner.run import Run
from laconic.settings.build import Settled
from laconic.settings.config import write_toml
from laconic.store.folder import RunFolder


@contextmanager
def simulation_in(folder: RunFolder, settled: Settled) -> Iterator[Run]:
    """The simulation, new or at the point where the folder says it stopped. The folder is locked inside the block."""
    simulation = Run(settled.experiment)
    simulation.check_budget()
    folder.open()
    try:
        prepare(simulation, folder, settled)
        yield simulation
    finally:
        folder.close()


def prepare(simulation: Run, folder: RunFolder, settled: Settled) -> None:
    """Let the simulation write into the open folder, from where the last one there stopped."""
    simulation.folder = folder
    if folder.exists:
        simulation.begin()  # what may refuse to go on comes before anything is changed
    folder.write("config.toml", write_toml(settled.config.to_dict()))
    if settled.preprocessing is not None:
        folder.write("preprocessing.toml", settled.preprocessing.schema.to_toml())
