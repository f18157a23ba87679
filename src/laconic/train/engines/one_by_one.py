"""One client after another, on flat weights and gradients."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from laconic.train.engines.engine import Client, Crew, Task, Updates, make_optimizer
from laconic.train.flat import FlatModel
from laconic.train.layers.dense import Factors, factor_large_layers, worth_factoring
from laconic.train.layers.replacement import pool_before_relu


class OneByOne(Crew[Client]):
    """Each client on its own, for any module."""

    name = "one-by-one"

    def __init__(self, model: FlatModel, device: torch.device, example: Tensor | None = None, workers: int = 1) -> None:
        super().__init__([_Worker(model, device, example) for _ in range(workers)], chunk=1)
        self._model, self._device = model, device

    def prepare(self, task: Task, clients: np.ndarray) -> Client:
        client = task.client(int(clients[0]), self._device)
        self._model.check_words(client.inputs)
        return client


class _Worker:
    """A module of its own, whose weights and gradients are views of two flat vectors."""

    def __init__(self, model: FlatModel, device: torch.device, example: Tensor | None) -> None:
        self._model, self._device = model.copy(), device
        module = self._model.module
        pool_before_relu(module)
        inputs = None if example is None else example.to(device)
        self._factored = {} if inputs is None else factor_large_layers(module, inputs)
        self._images = any(isinstance(layer, nn.Conv2d) for layer in module.modules())
        self._flat = model.initial.clone()
        self._gradient = torch.zeros_like(self._flat)
        named = dict(module.named_parameters())
        params = [named[name] for name in self._model.names]
        views = zip(params, self._model.split(self._flat), self._model.split(self._gradient), strict=True)
        for param, value, gradient in views:
            param.data, param.grad = value, gradient

    def train(self, task: Task, client: Client) -> Updates:
        """The client's update after its local steps."""
        if self._model.deterministic:
            return self._train(task, client)
        with torch.random.fork_rng(devices=[self._device] if self._device.type == "cuda" else []):
            torch.manual_seed(int(client.dropout[0]) & (2**63 - 1))  # for a model that draws numbers on its own
            return self._train(task, client)

    def _train(self, task: Task, client: Client) -> Updates:
        inputs, targets = client.inputs, client.targets
        factored = self._begin_factored(task, sum(len(batch) for batch in client.batches))
        runs = self._model.runs_without(factored)
        flat, gradient = [self._flat[run] for run in runs], [self._gradient[run] for run in runs]
        for part, run in zip(flat, runs, strict=True):
            part.copy_(task.weights[run])
        moving = flat if task.trained is None else [self._flat[task.trained]]
        optimizer = make_optimizer(task.train.optimizer, moving, task.train.local_lr)
        module = self._model.module.train()
        for step, batch in enumerate(client.batches):
            self._model.set_dropout_key(client.dropout[step])
            torch._foreach_zero_(gradient)
            outputs = module(self._laid_out(inputs[batch]))
            losses = self._model.loss(outputs, targets[batch])
            loss = losses.mean() if client.shares is None else (losses * client.shares[step]).sum()
            loss.backward()  # type: ignore[no-untyped-call]
            if task.trained is None:
                optimizer.step(flat, gradient)
            else:
                optimizer.step(moving, [self._gradient[task.trained]])
                self._flat[task.trained] = moving[0]
        self._model.check_constants()
        update = torch.empty_like(self._flat)
        for run in runs:
            torch.sub(self._flat[run], task.weights[run], out=update[run])
        for name, factors in factored.items():
            factors.write_change(update[None, self._model.places[name]], task.train.local_lr)
            self._factored[name].end()
        return Updates(np.array([client.number]), update[None], np.array([len(targets)]))

    def _begin_factored(self, task: Task, num_records: int) -> dict[str, Factors]:
        """Start the dense layers that are cheaper to keep as factors this time."""
        started = {}
        for name, layer in worth_factoring(self._factored, task.train, task.trained, num_records).items():
            started[name] = layer.factors(1, num_records)
            shared = task.weights[self._model.places[name]].view(layer.weight.shape)
            layer.begin(shared, task.train.local_lr, started[name])
        return started

    def _laid_out(self, inputs: Tensor) -> Tensor:
        """Images with their channels last in memory: pooling and its way back are several times faster on a CPU."""
        return inputs.to(memory_format=torch.channels_last) if self._images and inputs.ndim == 4 else inputs
