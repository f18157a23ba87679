"""MLflow: a run in the experiment 'laconic', in ./mlflow.db unless MLFLOW_TRACKING_URI says where."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # else importing it reports to its makers

from mlflow import MlflowClient
from mlflow.entities import Metric, Param
from mlflow.exceptions import MlflowException

from laconic.observers.observer import Started
from laconic.observers.tracker import Tracker

EXPERIMENT = "laconic"
_STATUS = {"finished": "FINISHED", "interrupted": "KILLED", "failed": "FAILED"}
_MOST = 90
"""Parameters at once; MLflow takes a hundred."""


class MLflow(Tracker):
    """By the client alone: MLflow's own `start_run` would note user, script and path."""

    name = "mlflow"

    def open(self, run: Started, parameters: dict[str, Any], known: dict[str, Any]) -> dict[str, Any]:
        store = os.environ.get("MLFLOW_TRACKING_URI") or "sqlite:///mlflow.db"
        self.shows_arrival = not _here(store)
        self._client = MlflowClient(store)
        self._id = self._known(known.get("run"))
        if self._id:
            self._client.update_run(self._id, status="RUNNING")
        else:
            experiment = self._client.get_experiment_by_name(EXPERIMENT)
            number = self._client.create_experiment(EXPERIMENT) if experiment is None else experiment.experiment_id
            tags = {"fingerprint": run.fingerprint, "scheme": run.scheme}
            self._id = self._client.create_run(number, tags=tags, run_name=run.scheme).info.run_id
            named = [Param(name, str(value)) for name, value in sorted(parameters.items())]
            for start in range(0, len(named), _MOST):
                self._client.log_batch(self._id, params=named[start : start + _MOST])
        return {"run": self._id}

    def _known(self, run: Any) -> str:
        """The run of before, if the store still has it."""
        try:
            return self._client.get_run(run).info.run_id if isinstance(run, str) else ""
        except MlflowException:
            return ""

    def log(self, step: int, values: dict[str, float]) -> None:
        now = int(1000 * self.clock(step))
        self._client.log_batch(self._id, metrics=[Metric(name, value, now, step) for name, value in values.items()])

    def keep(self, file: Path) -> None:
        self._client.log_artifact(self._id, str(file))

    def close(self, status: str) -> None:
        self._client.set_terminated(self._id, _STATUS[status], end_time=int(1000 * self.closed_at))


def _here(store: str) -> bool:
    """Whether the store is files of this machine, so that no other machine sees when a row is written."""
    return store.partition(":")[0] in ("sqlite", "file") or (":" not in store and store != "databricks")


TRACKER = MLflow
