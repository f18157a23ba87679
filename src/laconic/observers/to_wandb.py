"""Weights & Biases, offline unless WANDB_MODE says otherwise: nothing is sent until the user runs `wandb sync`."""

from __future__ import annotations

import os
import secrets
import shutil
from pathlib import Path
from typing import Any, cast

os.environ.setdefault("WANDB_ERROR_REPORTING", "false")  # else its own errors are sent to its makers

import wandb

from laconic.observers.observer import Started
from laconic.observers.tracker import Tracker

PROJECT = "laconic"


class WeightsAndBiases(Tracker):
    """A run in Weights & Biases, with its files in the run folder or the current one; facts of the machine are off.

    The library notes the time of every row.
    """

    name, shows_arrival = "wandb", True

    def open(self, run: Started, parameters: dict[str, Any], known: dict[str, Any]) -> dict[str, Any]:
        identity = known.get("id") if isinstance(known.get("id"), str) else secrets.token_hex(4)
        self._session = wandb.init(
            project=PROJECT,
            id=identity,
            resume="allow" if known else None,
            name=run.scheme,
            tags=[run.fingerprint],
            config=parameters,
            dir=str(run.folder) if run.folder is not None else None,
            mode=cast(Any, os.environ.get("WANDB_MODE", "offline")),
            settings=_quiet(),
        )
        return {"id": identity}

    def log(self, step: int, values: dict[str, float]) -> None:
        self._session.log({"round": step, **values}, step=step)

    def keep(self, file: Path) -> None:
        """Copy the file into the run: the temporary one is removed before it would be uploaded."""
        target = Path(self._session.dir) / file.name
        shutil.copyfile(file, target)
        self._session.save(str(target), base_path=self._session.dir, policy="now")

    def close(self, status: str) -> None:
        self._session.finish(exit_code=0 if status == "finished" else 1)


def _quiet() -> wandb.Settings:
    """Settings without host, user, paths, code, packages, output and load of the machine."""
    return wandb.Settings(
        console="off",
        disable_code=True,
        disable_git=True,
        disable_job_creation=True,
        host="unknown",
        save_code=False,
        silent=True,
        x_disable_machine_info=True,
        x_disable_meta=True,
        x_disable_stats=True,
        x_save_requirements=False,
    )


TRACKER = WeightsAndBiases
