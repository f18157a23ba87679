"""The engine of record-level privacy: clients that run DP-SGD on their own records (CHIL'21 Alg. 6).

Each step needs the sum of the clipped gradients of single records, Σ_r ∇f(r; w) / max(1, ‖∇f(r; w)‖₂/S). Gradients of
single records are those of batches of one, vectorised (`torch.func.vmap`). The dense layer that takes the inputs is
left out of that where it can be: with the input x and the gradient δ by the layer's output, a record's gradient by its
weights is the outer product δ·xᵀ, whose norm is ‖δ‖·‖x‖. So it is never written down, and for sparse records the cost
follows their non-zeros (ghost clipping; Goodfellow 2015, Li et al. 2022).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import numpy as np
import torch
from torch import Tensor
from torch.func import grad, vmap

from laconic.data.inputs import Inputs, SparseRows, dense
from laconic.data.population import gather_rows
from laconic.errors import ConfigError
from laconic.guard.noise import SAFE
from laconic.privacy.mechanism.discrete_gaussian import noisy_sum
from laconic.streams import hashed
from laconic.train.engines.engine import Task, Updates, make_optimizer, products_in
from laconic.train.flat import FlatModel
from laconic.train.layers.first_linear import FirstLinear, loss_of
from laconic.train.local import LocalDPSGD

_MOST_NUMBERS = 1 << 24
"""Numbers in the gradients of the records that are looked at together, at most (64 MiB)."""


class ClippedGradients(Protocol):
    def total(
        self, weights: Tensor, inputs: Inputs, targets: Tensor, keys: Tensor, clip_norm: float, dtype: torch.dtype = ...
    ) -> Tensor:
        """(n,): the sum over the records of their gradients at the weights, each clipped.

        Args:
            weights: (n,), where the gradients are taken.
            inputs: of the records.
            targets: of the records.
            keys: (records,), one for the dropout of each.
            clip_norm: S, the largest norm of a record's gradient.
            dtype: in which it is added up. In float32 the sums of neighbours can differ by more than S: where a sum
                passes a power of two, small gradients that moved it before are rounded away. In float64 N records move
                it by N²·S/2^52 at most.
        """


def clipped_gradients(model: FlatModel) -> ClippedGradients:
    """With the first layer apart where the model allows that; raises what the model raises under vmap."""
    first = model.first_linear
    chosen = WholeGradients(model) if isinstance(first, str) else FirstApart(model, first)
    inputs, targets = model.example
    keys = torch.zeros(len(targets), dtype=torch.int64, device=targets.device)
    chosen.total(model.initial, inputs, targets, keys, 1.0)
    return chosen


class WholeGradients:
    """For any model: the gradient of every record by every weight, some records at a time."""

    def __init__(self, model: FlatModel) -> None:
        self._model = model
        # randomness="error": what a model draws on its own could not be repeated.
        self._gradient = vmap(grad(loss_of(model)), in_dims=(None, 0, 0, 0, 0), randomness="error")
        self._at_once = max(1, _MOST_NUMBERS // model.size)

    def total(
        self,
        weights: Tensor,
        inputs: Inputs,
        targets: Tensor,
        keys: Tensor,
        clip_norm: float,
        dtype: torch.dtype = torch.float32,
    ) -> Tensor:
        self._model.module.train()
        params, total = self._model.split(weights), torch.zeros_like(weights, dtype=dtype)
        for some in _pieces(len(targets), self._at_once):
            x, y = dense(inputs[some]), targets[some]
            ones = torch.ones(len(y), 1, device=weights.device)
            gradients = self._gradient(params, x[:, None], y[:, None], ones, keys[some])
            factors = _Factors(torch.stack([_squares(s) for s in gradients]).sum(0), clip_norm)
            total += self._model.join([factors.sum(s, dtype) for s in gradients])
        return total


class FirstApart:
    """For models that begin with a dense layer: of its weights, only the columns that the records have are touched."""

    def __init__(self, model: FlatModel, first: FirstLinear) -> None:
        self._model, self._first = model, first
        gradients = grad(loss_of(first.rest), argnums=(0, 1))
        self._gradient = vmap(gradients, in_dims=(None, 0, 0, 0, 0), randomness="error")
        self._at_once = max(1, _MOST_NUMBERS // max(model.shapes[first.position][1], first.rest.size))

    def total(
        self,
        weights: Tensor,
        inputs: Inputs,
        targets: Tensor,
        keys: Tensor,
        clip_norm: float,
        dtype: torch.dtype = torch.float32,
    ) -> Tensor:
        self._first.rest.module.train()
        weight, others = self._first.apart(self._model.split(weights))
        total = torch.zeros_like(weights, dtype=dtype)
        total_weight, total_others = self._first.apart(self._model.split(total))
        for some in _pieces(len(targets), self._at_once):
            columns, x = _narrow(inputs[some])
            y = targets[some]
            ones = torch.ones(len(y), 1, device=weights.device)
            hidden = x @ weight[:, columns].t()
            gradients, by_hidden = self._gradient(others, hidden[:, None], y[:, None], ones, keys[some])
            by_hidden = by_hidden[:, 0]
            squares = torch.stack([_squares(by_hidden) * _squares(x), *(_squares(s) for s in gradients)]).sum(0)
            factors = _Factors(squares, clip_norm)
            total_weight[:, columns] += factors.scaled(by_hidden).to(dtype).t() @ x.to(dtype)
            for place, gradient in zip(total_others, gradients, strict=True):
                place += factors.sum(gradient, dtype)
        return total


class _Factors:
    """By what each record's gradient is multiplied: min(1, S/‖gradient‖), or 0 where the gradient is not finite.

    In two equal steps: one factor alone could be so small that float32 holds only a few bits of it.
    """

    def __init__(self, squares: Tensor, clip_norm: float) -> None:
        norm = squares.sqrt()
        target = clip_norm * SAFE
        self._finite = norm.isfinite()
        self._root = (target / norm.clamp(min=target)).sqrt().where(self._finite, 0.0).to(torch.float32)

    def scaled(self, gradients: Tensor) -> Tensor:
        """Every record's gradients, clipped."""
        lead = (-1, *[1] * (gradients.ndim - 1))
        root = self._root.reshape(lead)
        # where(), not a product: 0 × NaN would stay NaN.
        return (gradients * root * root).where(self._finite.reshape(lead), 0.0)

    def sum(self, gradients: Tensor, dtype: torch.dtype) -> Tensor:
        return self.scaled(gradients).sum(0, dtype=dtype)


def _squares(gradients: Tensor) -> Tensor:
    """Every record's squared norm, (records,)."""
    return gradients.flatten(1).double().square().sum(1)


def _narrow(rows: Inputs) -> tuple[Tensor | slice, Tensor]:
    """(the columns that the rows have, the rows there as a dense table)."""
    if not isinstance(rows, SparseRows):
        return slice(None), dense(rows)
    columns, places = torch.unique(rows.indices, return_inverse=True)
    few = SparseRows(rows.indptr, places.to(rows.indices.dtype), max(1, len(columns)), rows.values)
    return (columns if len(columns) else torch.zeros(1, dtype=torch.int64, device=rows.device)), few.dense()


def _pieces(count: int, size: int) -> Iterator[slice]:
    return (slice(start, min(start + size, count)) for start in range(0, count, size))


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
        draws = task.streams.numpy(*task.streams.of_run(*task.path, client, "records"))
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
        stream = task.streams.stream(*task.streams.of_run(*task.path, client, "record noise", step))
        if train.noise == "integer":
            return noisy_sum(total, clip_norm=train.clip_norm, noise_multiplier=train.sigma, stream=stream)
        noise = stream.normal(total.shape, self._device)
        noise *= train.clip_norm * train.sigma
        return noise.add_(total)

    def _dropout_keys(self, task: Task, client: int, step: int, drawn: np.ndarray) -> Tensor:
        """A key for every record, which does not depend on the batch."""
        base = np.uint64(task.streams.key(*task.path, client, "dropout", step) & (2**64 - 1))
        with np.errstate(over="ignore"):
            keys = hashed(base + hashed(drawn.astype(np.uint64)))
        return torch.from_numpy(keys.view(np.int64)).to(self._device)
