"""W1 with Flower: FedAvg over its simulation runtime with the Ray backend, one actor per core.

    python -m benchmarks.peers.flower_rounds ACTORS NODES

100 of its nodes take part in each round.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterable

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation

from benchmarks import workload as w1
from benchmarks.pacing import Pacer
from benchmarks.peers.flower_client import app as client_app

server_app = ServerApp()
ACTORS, NODES = (int(word) for word in sys.argv[1:3])


class Finished(Exception):
    """No more rounds are asked for."""


class EveryClient(FedAvg):
    """FedAvg goes on when clients fail, which would be fast; here that is an error."""

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        replies = list(replies)
        failed = [reply for reply in replies if reply.has_error()]
        if failed or len(replies) != w1.COHORT:
            raise RuntimeError(f"{len(failed)} of {len(replies)} clients failed")
        return super().aggregate_train(server_round, replies)


@server_app.main()
def serve(grid: Grid, context: Context) -> None:
    pacer = Pacer()

    def after_round(number: int, arrays: ArrayRecord) -> None:
        if number and not pacer.round_done():
            raise Finished

    torch.manual_seed(0)
    strategy = EveryClient(
        fraction_train=1e-9,  # of the nodes, but not less than:
        min_train_nodes=w1.COHORT,
        min_available_nodes=NODES,
        fraction_evaluate=0.0,
    )
    start = ArrayRecord(w1.cnn().state_dict())
    strategy.start(grid=grid, initial_arrays=start, num_rounds=10**6, evaluate_fn=after_round)


if __name__ == "__main__":
    with contextlib.suppress(Finished):
        run_simulation(
            server_app=server_app,
            client_app=client_app,
            num_supernodes=NODES,
            backend_config={
                "init_args": {"num_cpus": ACTORS},
                "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
            },
        )
