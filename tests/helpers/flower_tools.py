"""What the Flower tests share: a grid that calls the nodes' apps in this process, and a small federation on it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from flwr.app import Context, Message, RecordDict
from flwr.serverapp import Grid
from flwr.supercore.task_identity import TaskIdentity

from conftest import make_population, make_records
from laconic.clients.simulated import SimulatedClients
from laconic.data.federated import FederatedData
from laconic.data.population import PooledPopulation
from laconic.federation.flower.client_app import courier_app
from laconic.federation.flower.messages import fields_of
from laconic.federation.flower.server_app import ServerData, run_federation
from laconic.federation.flower.strategy import FlowerCourier
from laconic.federation.node.kept import KeptRecords
from laconic.federation.node.own_model import own_model
from laconic.federation.node.serve.served_node import ServedNode, Serving
from laconic.federation.offer import Offer, sign_offer
from laconic.federation.populations import Held
from laconic.federation.requests import REFUSED
from laconic.federation.server.members import make_offer, resolve_federated
from laconic.guard.folder import NodeFolder
from laconic.runner.outcome import RunResult
from laconic.runner.run import Run
from laconic.secagg.attempts import Nonces
from laconic.settings.build import Settled, settle
from laconic.settings.config import RunConfig
from laconic.store.folder import RunFolder
from laconic.streams import Streams

SIZES = [14, 9, 11, 12, 7]
FIRST_NODE = 1000
FACTS = (2, 4)
"""Quantities, and ones in the other columns, as private scaling takes them."""
SEED = 3
PRIVATE = {"scheme.clip_norm": 0.5, "scheme.noise_multiplier": 1.0}
SERVER = Ed25519PrivateKey.generate()
OPEN_POLICY = 'allow_test_seed = true\nsecure_aggregation = "optional"\n'


def config_for(scheme: str, **changes: Any) -> RunConfig:
    """A small run of the scheme; `section__key` stands for section.key."""
    values = {
        "run.seed": SEED,
        "run.rounds": 2,
        "run.engine": "one-by-one",
        "run.workers": 1,
        "run.device": "cpu",
        "model.name": "logistic",
        "scheme.name": scheme,
        "sampler.sampling_rate": 1.0,
        "federation.nodes": len(SIZES),
        "federation.round_timeout": 0.2,
        "federation.join_timeout": 0.2,
    }
    return RunConfig().with_values(values | {name.replace("__", "."): value for name, value in changes.items()})


class LocalGrid(Grid):
    """Nodes in this process: a message is answered when it is pushed.

    `loses(client, message, when)` says whether a "request" or a "reply" gets lost on its way.
    """

    def __init__(self, apps: list[Callable[[Message], Message]]) -> None:
        # In a deployment Flower sets this in every process that runs an app; messages cannot be made without it.
        TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1
        self._apps = apps
        self._replies: dict[str, Message] = {}
        self.offline: set[int] = set()
        self.sent: list[tuple[int, Message]] = []
        self.received: list[tuple[int, Message]] = []
        self.loses: Callable[[int, Message, str], bool] = lambda client, message, when: False

    def set_run(self, run: Any) -> None:
        raise NotImplementedError

    @property
    def run(self) -> Any:
        raise NotImplementedError

    def create_message(self, *arguments: Any, **options: Any) -> Message:
        raise NotImplementedError

    def get_node_ids(self) -> Iterable[int]:
        return [FIRST_NODE + number for number in range(len(self._apps)) if number not in self.offline]

    def get_nodes(self) -> Iterable[Any]:
        return [SimpleNamespace(node_id=node, registered_at="") for node in self.get_node_ids()]

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        names = []
        for message in messages:
            name = message.object_id
            message.metadata.__dict__["_message_id"] = name
            names.append(name)
            client = message.metadata.dst_node_id - FIRST_NODE
            self.sent.append((client, message))
            if self.loses(client, message, "request"):
                continue
            reply = self._apps[client](message)
            if not self.loses(client, message, "reply"):
                self.received.append((client, reply))
                self._replies[name] = reply
        return names

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        return [self._replies.pop(name) for name in list(message_ids) if name in self._replies]

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        return self.pull_messages(self.push_messages(messages))


@dataclass
class LocalFederation:
    """Five nodes with their folders and policies below `path`, and a server that writes to `path/run`."""

    path: Path
    config: RunConfig
    policies: dict[int, str] = field(default_factory=dict)
    policy: str = OPEN_POLICY
    front_end: Path | None = None
    front_end_module: str | None = None
    of_patients: bool | None = None
    shared_patients: bool = False

    def __post_init__(self) -> None:
        told = make_population(SIZES)
        # Two records are of one patient. If patients are shared, they may be at two nodes.
        apart = np.concatenate([100 * client + np.arange(size) // 2 for client, size in enumerate(SIZES)])
        whose = np.arange(sum(SIZES)) // 2 if self.shared_patients else apart
        self.population = PooledPopulation(told.pool, told._rows, patients=whose)
        self.test = make_records(100, seed=5)
        self.public = make_records(20, seed=7)
        self.path.mkdir(exist_ok=True)
        self.processes = [Nonces() for _ in SIZES]
        """What each node's process has in memory; everything else is read from its folder for every message."""
        self.grid = LocalGrid([self._app(number) for number in range(len(SIZES))])
        for number in range(len(SIZES)):
            (self.path / f"policy-{number}.toml").write_text(self.policies.get(number, self.policy))

    def run(self, *, resume: bool = False, config: RunConfig | None = None) -> RunResult:
        shown = self.test.some(np.arange(2))
        data = ServerData(example=shown, num_classes=3, test=self.test, public=self.public, facts=FACTS)
        return run_federation(
            self.grid,
            config or self.config,
            data.federation,
            folder=RunFolder(self.path / "run"),
            key=self.path / "server.key",
            resume=resume,
        )

    def simulated(self, config: RunConfig | None = None) -> RunResult:
        """The same run in the simulator, in which every client draws its share of the noise as a node does."""
        experiment = replace(self.settled(config).experiment, noise_draws="per-client")
        clients = SimulatedClients(experiment)
        clients.streams = Streams(experiment.seed)  # under a test's seed, nodes name their noise by it alone
        return Run(experiment, clients=clients).run()

    def settled(self, config: RunConfig | None = None) -> Settled:
        everything = FederatedData(self.population, self.test, None, self.public, 3, (6,), facts=FACTS)
        return settle(config or self.config, everything)

    def node(self, number: int) -> NodeFolder:
        return NodeFolder(self.path / f"node-{number}")

    def _app(self, number: int) -> Callable[[Message], Message]:
        """A node and its courier."""

        def answer(message: Message) -> Message:
            place = {"folder": self.path / f"node-{number}", "policy": self.path / f"policy-{number}.toml"}
            serving = Serving(**place, front_end=self.front_end, front_end_module=self.front_end_module)
            held, told = (lambda: Held.at(self.population, number)), self.of_patients
            records = KeptRecords(held, None, of_patients=told)
            node = ServedNode(serving, records, own_model)
            node._nonces = self.processes[number]
            context = Context(0, FIRST_NODE + number, {}, RecordDict(), {})
            return courier_app(lambda context: node.answer)(message, context)

        return answer


def run_config(config: RunConfig) -> dict[str, Any]:
    """The configuration as Flower hands it to apps."""
    return {f"{section}.{key}": value for section, keys in config.to_dict().items() for key, value in keys.items()}


def weights_of(result: RunResult) -> torch.Tensor:
    return torch.cat([p.detach().reshape(-1) for p in result.model.parameters()])


def offer_of(some: LocalFederation, **changes: Any) -> Offer:
    """What an honest server would offer, and then what a lying one changes in it."""
    return replace(make_offer(resolve_federated(some.config, some.settled().federation), SERVER), **changes)


def refusal(some: LocalFederation, offer: Offer) -> str:
    """What node 0 answers to the offer, if it refuses it."""
    courier = FlowerCourier(some.grid, list(some.grid.get_node_ids()))
    message = courier.messages("keys", {0: {"offer": sign_offer(offer, 0, SERVER)}}, timeout=1.0)[0]
    return str(fields_of(some._app(0)(message)).get(REFUSED, ""))
