"""The server's side as a Flower `ServerApp`: a federation from its first message to its last.

The server's own records, if it has any, are for evaluation and for what schemes choose with public data: no node's
records ever come here.

The app's run configuration says what is run: the sections of a laconic configuration, under `[tool.flwr.app.config]`.
Instead of the sections there may be one text, `config`, with all of them as TOML. Beside either, an app may set `out`
(the run folder, on the server), `resume`, `server-key` (a file), and `key-file` or `passphrase-file`, which opens that
file if it is encrypted. Keys under `app` are the app's own.
"""

from __future__ import annotations

import os
import time
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from logging import ERROR, INFO, getLogger
from pathlib import Path
from typing import Any, Protocol

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from laconic.data.federated import FederatedData
from laconic.data.meaning import Meaning
from laconic.data.population import Records, as_records
from laconic.errors import ConfigError, Incomplete, LaconicError, PrivacyError, RunFolderError
from laconic.federation.flower.messages import end_if_orphaned
from laconic.federation.flower.strategy import FlowerCourier, SchemeStrategy
from laconic.federation.populations import FarRecords
from laconic.federation.requests import Answers
from laconic.federation.server.members import Members, Settings, invite, make_offer, resolve_federated
from laconic.federation.server.outcome import LostRounds, outcome, what_became
from laconic.federation.server.remote_clients import RemoteClients
from laconic.federation.server.watchers import Notices, Watchers
from laconic.figures import at_most
from laconic.guard.keys.keyring import server_key
from laconic.guard.keys.secret import Secret, found_secret
from laconic.observers.observer import Together
from laconic.observers.progress import measured_text
from laconic.privacy.released import Row
from laconic.runner.outcome import RunResult
from laconic.runner.run import Run, prepare
from laconic.settings.build import Settled, files_of, tracked
from laconic.settings.config import RunConfig
from laconic.store.checkpoint import keep_front_end
from laconic.store.folder import FRONT_END, RunFolder, json_text

OWN_KEYS = ("out", "resume", "server-key", "key-file", "passphrase-file")


def config_of(run_config: Mapping[str, Any]) -> RunConfig:
    """The sections of a run configuration, which Flower writes as `section.key`."""
    if "config" in run_config:
        return RunConfig.from_dict(tomllib.loads(str(run_config["config"])))
    sections: dict[str, Any] = {}
    for path, value in run_config.items():
        section, dot, key = path.partition(".")
        if path in OWN_KEYS or section == "app":
            continue
        if dot:
            sections.setdefault(section, {})[key] = value
        else:
            sections[section] = value
    return RunConfig.from_dict(sections)


_POLL = 0.5


def run_federation(
    grid: Grid,
    config: RunConfig,
    federation: Callable[[int], FederatedData],
    *,
    folder: RunFolder,
    key: Path,
    resume: bool = False,
    secret: Secret | None = None,
) -> RunResult:
    """Run the configured federation over the nodes that the grid reaches.

    Args:
        grid: Flower's way to the nodes.
        config: what is run.
        federation: the server's own data and what it assumes of the nodes', for so many nodes.
        folder: the run folder.
        key: file with the server's identity.
        resume: go on with the run in the folder.
        secret: opens the key, if it is encrypted.
    """
    if folder.exists and not resume:
        raise RunFolderError(f"{folder.path} holds a run already: set resume=true, or choose another out")
    settings = Settings.of(config.federation)
    config = config.with_values({"run.checkpoint_seconds": 0.0})  # no round can be repeated, so each is kept
    watchers = Watchers(config.federation)
    folder.open()
    try:
        (folder.path / "failure.json").unlink(missing_ok=True)
        notices = Notices(folder, watchers.unanswered)
        members, joined = Members.load(folder), None
        if members is None:
            nodes = wait_for_nodes(grid, settings)
            server = server_key(key, secret)
            settled, members, joined = _joined(grid, nodes, config, federation, server, settings, notices, folder)
            members.save(folder)
        else:
            settled = resolve_federated(config, federation(len(members.nodes)), stored=folder.path)
            if config.run.rounds > members.offer.rounds:
                raise ConfigError(
                    f"run.rounds = {config.run.rounds}, but the nodes have agreed to {members.offer.rounds}:"
                    " start a new run for more"
                )
            if settings.spare_rounds > members.offer.spare_rounds:
                raise ConfigError(
                    f"federation.spare_rounds = {settings.spare_rounds}, but the nodes have agreed to"
                    f" {members.offer.spare_rounds}: start a new run for more"
                )
        courier = FlowerCourier(grid, members.nodes)
        clients = RemoteClients(settled.experiment, members, courier, timeout=settings.round_timeout, joined=joined)
        simulation = Run(settled.experiment, clients=clients)
        lost = LostRounds(settings)

        def notice(client: int, reason: str) -> None:
            number = simulation.state.rounds + 1
            notices.add(number, client, courier.nodes[client], reason)
            lost.hear(number, client, reason)

        clients.notice = notice
        watchers.time(clients.clock)
        simulation.spending.check_first_round()
        prepare(folder, simulation, files_of(settled))
        offer = members.offer
        simulation.about_federation = lambda: outcome(simulation, offer, folder.rows("notices.jsonl"))
        strategy = SchemeStrategy(simulation, clients, courier, lost, offer, join_timeout=settings.join_timeout)
        simulation.observer = Together(_show, tracked(settled.config), watchers.observer)
        strategy.start(grid)
        assert strategy.result is not None
        return strategy.result
    finally:
        watchers.close()
        folder.close()


def _joined(
    grid: Grid,
    nodes: Sequence[int],
    config: RunConfig,
    federation: Callable[[int], FederatedData],
    server: Ed25519PrivateKey,
    settings: Settings,
    notices: Notices,
    folder: RunFolder,
) -> tuple[Settled, Members, Answers]:
    """Offer the run until all nodes that are left accept it. Every offer is a run of its own."""
    while True:
        settled = resolve_federated(config, federation(len(nodes)))
        (folder.path / FRONT_END).unlink(missing_ok=True)
        keep_front_end(folder, settled.experiment.front_end)  # owners may need a copy before they can join
        offer = make_offer(settled, server)
        courier = FlowerCourier(grid, nodes)
        members, answers = invite(offer, nodes, server, courier, settings.join_timeout)
        if members is not None:
            return settled, members, answers
        refused = dict(sorted(answers.missing.items()))
        for client, reason in refused.items():
            notices.add(0, client, nodes[client], reason)
        reasons = "; ".join(f"node {client} ({nodes[client]}) {reason}" for client, reason in refused.items())
        nodes = [node for client, node in enumerate(nodes) if client not in refused]
        if len(nodes) < settings.min_nodes:
            raise PrivacyError(f"{len(nodes)} nodes take part, but min_nodes is {settings.min_nodes}: {reasons}")


def wait_for_nodes(grid: Grid, settings: Settings) -> list[int]:
    """The nodes that are there, in the order in which they were registered, once there are enough."""
    end = time.monotonic() + settings.join_timeout
    while True:
        found = sorted(grid.get_nodes(), key=lambda node: (node.registered_at, node.node_id))
        late = time.monotonic() > end
        if len(found) >= (settings.min_nodes if late else settings.nodes):
            return [node.node_id for node in found]
        if late:
            raise ConfigError(
                f"{len(found)} nodes are there after {settings.join_timeout:g} s, but it takes {settings.min_nodes}:"
                " start more, or lower federation.min_nodes"
            )
        time.sleep(_POLL)


def _show(row: Row) -> None:
    parts = [f"{name} {row[name]:.4g}" for name in ("accuracy", "loss") if name in row]
    parts += [f"epsilon {at_most(row['epsilon'])}"] if "epsilon" in row else []
    parts += [text] if (text := measured_text(row)) else []
    parts += [f"discarded: {row['discarded']} (the round {what_became(row)})"] if "discarded" in row else []
    _LOG.log(INFO, "round %s: %s", row["round"], ", ".join(parts))


_LOG = getLogger("flwr")


@dataclass(frozen=True)
class ServerData:
    """What the server has of its own.

    `example` are a few records of the nodes' shape, made up if need be; `test` is evaluated on after every round;
    `public` records are no client's. Each is a pair (inputs, targets). `meaning` is what the nodes' records must mean:
    of a schema, a vocabulary or pictures; None for plain numbers. `facts` say how many columns, the first ones, are
    quantities within [0, 1], and about how many ones a record has in the others: private scaling asks for them.
    """

    example: Any
    num_classes: int
    test: Any = None
    public: Any = None
    notes: tuple[str, ...] = ()
    meaning: Meaning | None = None
    facts: tuple[int, int] | None = None

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
            facts=self.facts,
        )


class Data(Protocol):
    """`ServerData`, or another object that says what the server sees of a federation of so many clients."""

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
            missing = "" if result.federation is None else result.federation["incomplete"]
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
