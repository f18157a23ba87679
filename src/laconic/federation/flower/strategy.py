"""A laconic run as a Flower `Strategy`: `configure_train` plans a round, `aggregate_train` takes the server's step."""

from __future__ import annotations

from collections.abc import Iterable
from logging import INFO, getLogger
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy

from laconic.federation.flower.courier import FlowerCourier
from laconic.federation.offer import Offer
from laconic.federation.requests import Fields
from laconic.federation.server.lost_rounds import LostRounds
from laconic.federation.server.outcome import ATTEMPTS, may_charge
from laconic.federation.server.remote_clients import RemoteClients
from laconic.plan import RoundPlan
from laconic.runner.outcome import RunResult
from laconic.runner.run import Run

_LOG = getLogger("flwr")


class SchemeStrategy(Strategy):
    """Any scheme, secure sums, both ε and the ledger, on Flower's grid.

    `simulation` is the run on the server's side: it plans, charges, steps, evaluates and checkpoints. Its clients are
    `clients`, which `courier` reaches. Before a round is charged, it waits `patience` seconds for nodes that are gone;
    `lost` ends the run if too many rounds in a row were discarded. The run also ends when as many rounds were charged
    as the `offer` said, spare ones included.
    """

    def __init__(
        self,
        simulation: Run,
        clients: RemoteClients,
        courier: FlowerCourier,
        lost: LostRounds,
        offer: Offer,
        *,
        patience: float = 120.0,
    ) -> None:
        self._simulation, self._clients, self._courier, self._patience = simulation, clients, courier, patience
        self._lost, self._offer = lost, offer
        self._requests: dict[int, Fields] = {}
        self._messages: list[Message] = []
        self._plan: RoundPlan | None = None
        self.result: RunResult | None = None

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Plan and charge the round: the cohort, and what each of its nodes is told. Empty if nobody is asked."""
        simulation = self._simulation
        self._plan = simulation.begin_round(server_round)
        self._requests, self._messages = {}, []
        if self._plan is not None and self._plan.viable:
            self._requests = self._clients.requests(self._plan, simulation.state.weights)
            self._messages = self._courier.messages("upload", self._requests, timeout=self._clients.timeout)
        if simulation.folder:
            simulation.folder.sync()  # a charge is on the disk before anything can be opened
        return self._messages

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Open the sum, which asks the nodes once more, and take the server's step."""
        simulation, plan = self._simulation, self._plan
        if plan is None:
            return None, None
        sent = simulation.empty_collection(plan)
        if plan.viable:
            answers = self._courier.answers(self._messages, replies, timeout=self._clients.timeout)
            sent = self._clients.collected(plan, self._requests, answers)
        simulation.finish_round(plan, sent)
        self._lost.after(plan, simulation.history[-1])
        return self._arrays(), MetricRecord(_numbers(simulation.history[-1]))

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Nodes are not asked: what they measured on their own records would not be private."""
        return []

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        return None

    def summary(self) -> None:
        experiment = self._simulation.experiment
        _LOG.log(
            INFO, "\t%s %s, %d nodes", experiment.scheme.name, experiment.scheme.fingerprint, len(self._courier.nodes)
        )

    def start(
        self,
        grid: Grid,
        initial_arrays: ArrayRecord | None = None,
        num_rounds: int | None = None,
        timeout: float | None = None,
        train_config: ConfigRecord | None = None,
        evaluate_config: ConfigRecord | None = None,
        evaluate_fn: object = None,
    ) -> Result:
        """Run until the rounds, the budget or the patience is used up. What Flower could set here is the run's own."""
        self.summary()
        result = Result()

        def one_round(number: int) -> bool:
            self._lost.check()
            if not may_charge(self._simulation, self._offer, number):
                self._simulation.stop_reason = ATTEMPTS
                return False
            self._courier.wait_for(self._clients.needed, timeout=self._patience)
            messages = self.configure_train(number, result.arrays, train_config or ConfigRecord(), grid)
            if self._plan is None:
                return False
            with self._clients.clock("upload"):
                replies = self._courier.deliver(list(messages), timeout=self._clients.timeout)
            arrays, metrics = self.aggregate_train(number, replies)
            if arrays is not None and metrics is not None:
                result.arrays, result.train_metrics_clientapp[number] = arrays, metrics
            return True

        self.result = self._simulation.run(one_round)
        return result

    def _arrays(self) -> ArrayRecord:
        simulation = self._simulation
        values = simulation.model.split(simulation.state.weights.cpu())
        return ArrayRecord({name: v.contiguous() for name, v in zip(simulation.model.names, values, strict=True)})


def _numbers(row: dict[str, Any]) -> dict[str, int | float | list[int] | list[float]]:
    return {name: value for name, value in row.items() if isinstance(value, int | float)}
