"""The engine of record-level privacy: clients that run DP-SGD on their own records (CHIL'21 Alg. 6)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from laconic.data.population import gather_rows
from laconic.errors import ConfigError
from laconic.privacy.mechanism.record_noise import noisy_sum
from laconic.streams import hashed
from laconic.train.engines.engine import Task, Updates
from laconic.train.engines.precision import products_in
from laconic.train.flat import FlatModel
from laconic.train.layers.clipped_gradients import clipped_gradients
from laconic.train.local import LocalDPSGD
from laconic.train.optimizers import make_optimizer


class PerRecord:
    """One client after another; within a step, many records at once."""

    name = "per-record"
    at_once = 1

    def __init__(self, model: FlatModel, device: torch.device) -> None:
        self._model, self._device = model, device
        try:
            self._gradients = clipped_gradients(model)
        except RuntimeError as error:
            raise ConfigError(
                "the gradients of single records, which record-level privacy needs, cannot be computed for this model"
                f" ({(str(error).splitlines() or ['RuntimeError'])[0]}): use a client-level scheme (fl-std-dp)"
            ) from None

    def updates(self, task: Task) -> Iterator[Updates]:
        assert isinstance(task.train, LocalDPSGD) and task.trained is None
        for (client,) in task.own(task.clients[:, None]):
            # Always float32: rounding to TF32 could make a clipped gradient longer than S.
            with products_in("float32", self._device):
                trained = self._client(task, task.train, int(client))
            yield task.then(trained)

    def _client(self, task: Task, train: LocalDPSGD, client: int) -> Updates:
        with task.clock("data"):
            (inputs, targets), _ = gather_rows(task.population, [client], self._device)
            self._model.check_words(inputs)
        labels, weights = targets.cpu().numpy(), task.weights.clone()
        optimizer = make_optimizer(train.optimizer, [weights], train.local_lr)
        draws = task.streams.numpy(*task.path, client, "records")
        dtype = torch.float64 if train.noise == "integer" else torch.float32
        for step in range(train.local_steps):
            drawn = train.records.draw(labels, draws)
            divisor = train.records.divisor
            if divisor is None:  # batches as published, which may be empty
                if not len(drawn):
                    continue
                divisor = float(len(drawn))
            rows = torch.from_numpy(drawn).to(self._device)
            total = torch.zeros_like(weights, dtype=dtype)
            if len(drawn):  # an empty sample is noise alone: that it was empty must not show
                keys = self._dropout_keys(task, client, step, drawn)
                total = self._gradients.total(weights, inputs[rows], targets[rows], keys, train.clip_norm, dtype)
            optimizer.step([weights], [self._noisy(total, task, train, client, step) / divisor])
        self._model.check_constants()
        return Updates(np.array([client]), (weights - task.weights)[None], np.array([len(targets)]))

    def _noisy(self, total: Tensor, task: Task, train: LocalDPSGD, client: int, step: int) -> Tensor:
        """The sum with the step's noise, of its own stream."""
        stream = task.streams.stream(*task.path, client, "record noise", step)
        if train.noise == "integer":
            return noisy_sum(total, clip_norm=train.clip_norm, noise_multiplier=train.sigma, stream=stream)
        noise = stream.normal(total.shape, self._device)
        noise *= train.clip_norm * train.sigma
        return noise.add_(total)

    def _dropout_keys(self, task: Task, client: int, step: int, drawn: np.ndarray) -> Tensor:
        """A key for every record, whoever else is in the batch."""
        base = np.uint64(task.streams.key(*task.path, client, "dropout", step) & (2**64 - 1))
        with np.errstate(over="ignore"):
            keys = hashed(base + hashed(drawn.astype(np.uint64)))
        return torch.from_numpy(keys.view(np.int64)).to(self._device)
