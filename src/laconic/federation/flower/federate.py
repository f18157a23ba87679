"""A federation from its first message to its last: wait for nodes, let them join, run, and leave a run folder."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from logging import INFO, getLogger
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from flwr.serverapp import Grid

from laconic.data.federated import FederatedData
from laconic.errors import ConfigError, PrivacyError, RunFolderError
from laconic.federation.courier import Answers
from laconic.federation.flower.courier import FlowerCourier
from laconic.federation.flower.strategy import SchemeStrategy
from laconic.federation.server.lost_rounds import LostRounds, what_became
from laconic.federation.server.members import Members, invite, make_offer
from laconic.federation.server.notices import Notices
from laconic.federation.server.outcome import outcome
from laconic.federation.server.remote_clients import RemoteClients
from laconic.federation.server.settings import Settings, settle_federated
from laconic.federation.server.watchers import Watchers
from laconic.figures import at_most
from laconic.guard.keys.keyring import server_key
from laconic.guard.keys.secret import Secret
from laconic.observers.observer import Together
from laconic.observers.progress import measured_text
from laconic.runner.outcome import RunResult
from laconic.runner.run import Run, prepare
from laconic.settings.build import Settled
from laconic.settings.config import RunConfig
from laconic.settings.launch import files_of, tracked
from laconic.store.folder import FRONT_END, RunFolder
from laconic.store.front_end import keep_front_end

_LOG = getLogger("flwr")
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
    """Run the configured federation over the nodes that the grid reaches. `secret` opens the server's key."""
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
            settled = settle_federated(config, federation(len(members.nodes)), stored=folder.path)
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
        strategy = SchemeStrategy(simulation, clients, courier, lost, offer, patience=settings.join_timeout)
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
        settled = settle_federated(config, federation(len(nodes)))
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


def _show(row: dict[str, Any]) -> None:
    parts = [f"{name} {row[name]:.4g}" for name in ("accuracy", "loss") if name in row]
    parts += [f"epsilon {at_most(row['epsilon'])}"] if "epsilon" in row else []
    parts += [text] if (text := measured_text(row)) else []
    parts += [f"discarded: {row['discarded']} (the round {what_became(row)})"] if "discarded" in row else []
    _LOG.log(INFO, "round %s: %s", row["round"], ", ".join(parts))
