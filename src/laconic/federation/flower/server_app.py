"""The server's side as a Flower `ServerApp`.

The app's run configuration says what is run; see `app_config`. Its own records, if it has any, are for evaluation and
for what schemes choose with public data: no node's records ever come here.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from logging import ERROR, getLogger
from pathlib import Path
from typing import Any, Protocol

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from laconic.data.federated import FederatedData
from laconic.data.meaning import Meaning
from laconic.data.population import Records, as_records
from laconic.errors import Incomplete, LaconicError
from laconic.federation.flower.app_config import config_of
from laconic.federation.flower.federate import run_federation
from laconic.federation.flower.orphan import end_if_orphaned
from laconic.federation.populations import FarRecords
from laconic.guard.keys.secret import found_secret
from laconic.store.folder import RunFolder, json_text

_LOG = getLogger("flwr")


@dataclass(frozen=True)
class ServerData:
    """What the server has of its own.

    `example` are a few records of the nodes' shape, made up if need be; `test` is evaluated on after every round;
    `public` records belong to nobody. Each is a pair (inputs, targets). `meaning` is what the nodes' records must mean:
    of a schema, a vocabulary or pictures; None for plain numbers.
    """

    example: Any
    num_classes: int
    test: Any = None
    public: Any = None
    notes: tuple[str, ...] = ()
    meaning: Meaning | None = None

    def federation(self, num_clients: int) -> FederatedData:
        """The federation as the server sees it: so many clients elsewhere."""
        example = as_records(self.example, "example")
        return FederatedData(
            population=FarRecords(num_clients, example),
            test=_records(self.test, "test"),
            holdout=None,
            public=_records(self.public, "public"),
            num_classes=self.num_classes,
            input_shape=tuple(example.inputs.shape[1:]),
            notes=self.notes,
            meaning=self.meaning,
        )


class Data(Protocol):
    """`ServerData`, or whatever else can say what the server sees of a federation of so many clients."""

    def federation(self, num_clients: int) -> FederatedData: ...


def server_app(data: Callable[[Context], Data]) -> ServerApp:
    """A `ServerApp` that runs the configured federation into a run folder."""
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        end_if_orphaned()
        settings = context.run_config
        folder = RunFolder(Path(str(settings.get("out") or "runs/federation")).expanduser())
        try:
            folder.make()
            folder.write("process.json", json_text({"pid": os.getpid()}) + "\n")
            config = config_of(settings)
            own = data(context)
            key = Path(str(settings.get("server-key") or folder.path / "server.key")).expanduser()
            result = run_federation(
                grid,
                config,
                own.federation,
                folder=folder,
                key=key,
                resume=bool(settings.get("resume", False)),
                secret=found_secret(_file(settings, "key-file"), _file(settings, "passphrase-file")),
            )
            missing = (result.federation or {}).get("incomplete")
            if missing:
                raise Incomplete(missing)  # so that Flower does not count it among the runs that went well
        except LaconicError as error:
            _LOG.log(ERROR, "laconic: error: %s", error)
            folder.write("failure.json", json_text({"error": str(error), "exit_code": error.exit_code}) + "\n")
            raise

    return app


def _file(settings: Mapping[str, Any], name: str) -> Path | None:
    value = settings.get(name)
    return None if not value else Path(str(value)).expanduser()


def _records(data: Any, what: str) -> Records | None:
    return None if data is None else as_records(data, what)
