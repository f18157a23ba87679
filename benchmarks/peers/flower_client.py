"""W1's client for Flower: in a module of its own, since Ray's actors import it by name."""

from __future__ import annotations

import functools

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from torch import Tensor
from torch.nn import functional

from benchmarks import workload as w1

app = ClientApp()


@functools.cache
def records() -> list[tuple[Tensor, Tensor]]:
    """The clients' records, made once per actor."""
    torch.set_num_threads(1)
    return w1.clients(w1.CLIENTS)


@app.train()
def train(message: Message, context: Context) -> Message:
    inputs, targets = records()[int(context.node_config["partition-id"])]
    model = w1.cnn()
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    optimizer = torch.optim.SGD(model.parameters(), lr=w1.LEARNING_RATE)
    for _ in range(w1.STEPS):
        optimizer.zero_grad()
        functional.cross_entropy(model(inputs), targets).backward()
        optimizer.step()
    reply = {"arrays": ArrayRecord(model.state_dict()), "metrics": MetricRecord({"num-examples": len(targets)})}
    return Message(content=RecordDict(reply), reply_to=message)
