"""A laconic run on Flower: the grid as a courier, and a `Strategy` whose rounds are those of the run."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from logging import INFO, getLogger

from flwr.app import ArrayRecord, ConfigRecord, Error, Message, MetricRecord
from flwr.common.constant import ErrorCode
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy

from laconic.errors import TrainingError, WireError, one_line
from laconic.federation.flower.messages import TYPES, fields_of, overhead, to_message
from laconic.federation.offer import Offer
from laconic.federation.requests import REFUSED, Answers, Fields
from laconic.federation.server.outcome import ATTEMPTS, LostRounds, may_charge
from laconic.federation.server.remote_clients import RemoteClients
from laconic.plan import RoundPlan
from laconic.privacy.released import Row
from laconic.runner.outcome import RunResult
from laconic.runner.run import Run

_LONGEST = 300
"""Of a reason that a node gives: it goes into the server's log and into its errors."""
_POLL = 0.3  # Flower's own waiting looks every three seconds, which is most of a round


class FlowerCourier:
    """`nodes` are Flower's numbers of the clients 0, 1, …"""

    def __init__(self, grid: Grid, nodes: Sequence[int]) -> None:
        self._grid, self.nodes = grid, list(nodes)
        self._clients = {node: client for client, node in enumerate(nodes)}

    def ask(self, kind: str, requests: Mapping[int, Fields], *, timeout: float, enough: int | None = None) -> Answers:
        messages = self.messages(kind, requests, timeout=timeout)
        return self.answers(messages, self.deliver(messages, timeout=timeout, enough=enough), timeout=timeout)

    def wait_for(self, needed: int, *, timeout: float) -> None:
        """Return when so many of the nodes are there; an error after so many seconds."""
        end = time.monotonic() + timeout
        while (there := len(set(self.nodes) & set(self._grid.get_node_ids()))) < needed:
            if time.monotonic() > end:
                raise TrainingError(
                    f"{there} of {len(self.nodes)} nodes are there, but a round needs {needed}: nothing was charged;"
                    " resume the run when they are back"
                )
            time.sleep(_POLL)

    def messages(self, kind: str, requests: Mapping[int, Fields], *, timeout: float) -> list[Message]:
        """The requests as messages, which are void after the timeout."""
        return [
            to_message(kind, self.nodes[client], fields, group=str(fields.get("round", "")), ttl=timeout)
            for client, fields in requests.items()
        ]

    def deliver(self, messages: Sequence[Message], *, timeout: float, enough: int | None = None) -> list[Message]:
        """Send the messages; wait for all replies, for enough that bring something, or for so many seconds."""
        waiting = {name for name in self._grid.push_messages(messages) if name} if messages else set()
        replies: list[Message] = []
        end = time.monotonic() + timeout
        while waiting and time.monotonic() < end:
            for reply in self._grid.pull_messages(waiting):
                replies.append(reply)
                waiting.discard(reply.metadata.reply_to_message_id)
            if enough is not None and sum(_brings(reply) for reply in replies) >= enough:
                break
            if waiting:
                time.sleep(min(_POLL, max(0.0, end - time.monotonic())))
        return replies

    def answers(self, messages: Sequence[Message], replies: Iterable[Message], *, timeout: float) -> Answers:
        """The replies by client, and for every other client that was asked the reason why there is none."""
        asked = {m.metadata.message_id: self._clients[m.metadata.dst_node_id] for m in messages}
        answers = Answers(overhead_down=sum(map(overhead, messages)))
        late = f"gave no answer within {timeout:g} s ({_timeout_option(messages)})"
        for reply in replies:
            client = asked.get(reply.metadata.reply_to_message_id)
            if (fields := _fields(reply)) is not None:
                answers.overhead_up += overhead(reply)
            if client is None:
                continue
            if reply.has_error():  # it may come from the SuperLink, on behalf of a node that is gone
                answers.missing[client] = _why(reply.error, late)
            elif reply.metadata.src_node_id != self.nodes[client]:
                continue
            elif fields is None:
                answers.missing[client] = "sent an answer that cannot be read"
            else:
                answers.add(client, fields)
        for client in asked.values():
            if client not in answers.given and client not in answers.missing:
                answers.missing[client] = late
        return answers


def _timeout_option(messages: Sequence[Message]) -> str:
    """Which option says how long these are waited for."""
    joining = any(message.metadata.message_type == TYPES["keys"] for message in messages)
    return "federation.join_timeout" if joining else "federation.round_timeout"


def _why(error: Error, late: str) -> str:
    """Flower's reason in our words. A message is void when its "TTL" is over, which is our timeout."""
    if error.code in (ErrorCode.MESSAGE_UNAVAILABLE, ErrorCode.REPLY_MESSAGE_UNAVAILABLE):
        return late
    if error.code == ErrorCode.NODE_UNAVAILABLE:
        return "is gone: its SuperNode no longer reports to the SuperLink"
    return f"failed: {one_line(error.reason, _LONGEST)}"


def _fields(reply: Message) -> Fields | None:
    """What the reply says, nothing for an error; None if a node sent what cannot be read, which must not end the run.

    Then it has one node less.
    """
    try:
        return fields_of(reply) if reply.has_content() else {}
    except WireError:
        return None


def _brings(reply: Message) -> bool:
    fields = _fields(reply)
    return fields is not None and reply.has_content() and REFUSED not in fields


_LOG = getLogger("flwr")


class SchemeStrategy(Strategy):
    """Any scheme, secure sums, both ε and the ledger, on Flower's grid.

    `simulation` is the run on the server's side: it plans, charges, steps, evaluates and checkpoints. Its clients are
    `clients`, which `courier` reaches. Before a round is charged, it waits `join_timeout` seconds for absent nodes;
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
        join_timeout: float = 120.0,
    ) -> None:
        self._simulation, self._clients, self._courier, self._join_timeout = simulation, clients, courier, join_timeout
        self._lost, self._offer = lost, offer
        self._requests: dict[int, Fields] = {}
        self._messages: list[Message] = []
        self._plan: RoundPlan | None = None
        self.result: RunResult | None = None

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Plan and charge the round: the cohort, and what each of its nodes is told. Empty if no node is asked."""
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
            self._courier.wait_for(self._clients.needed, timeout=self._join_timeout)
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


def _numbers(row: Row) -> dict[str, int | float | list[int] | list[float]]:
    return {name: value for name, value in row.items() if isinstance(value, int | float)}
