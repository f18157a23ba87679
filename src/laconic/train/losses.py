"""Losses per record, and metrics of a model's outputs; for two classes also those that a rare class needs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from laconic.errors import ConfigError
from laconic.metrics import METRICS
from laconic.registry import Registry

Loss = Callable[[Tensor, Tensor], Tensor]
"""(outputs, targets) → one loss per record, (batch,)."""


def cross_entropy(outputs: Tensor, targets: Tensor) -> Tensor:
    """Softmax cross-entropy of logits (batch, classes) and class numbers (batch,)."""
    return functional.cross_entropy(outputs, targets, reduction="none")


def cross_entropy_for_many(outputs: Tensor, targets: Tensor) -> Tensor:
    """`cross_entropy`, bit for bit, in operations that `torch.func.vmap` knows: the fused one it takes apart in Python,
    in every step."""
    return functional.log_softmax(outputs, 1).gather(1, targets.unsqueeze(1)).squeeze(1).neg()


def binary_cross_entropy(outputs: Tensor, targets: Tensor) -> Tensor:
    """Sigmoid cross-entropy of one logit per record."""
    return functional.binary_cross_entropy_with_logits(outputs, targets.to(outputs.dtype), reduction="none")


def mean_squared_error(outputs: Tensor, targets: Tensor) -> Tensor:
    """Squared error of real-valued targets, averaged over a record's outputs."""
    return (outputs - targets.to(outputs.dtype)).square().reshape(len(outputs), -1).mean(1)


HUBER = 0.2
"""Up to which error `huber` is squared. Targets of a schema are scaled to [-1, 1], so it is a tenth of their range."""


def huber(outputs: Tensor, targets: Tensor) -> Tensor:
    """Squared error e² up to |e| = δ, and 2δ|e| − δ² beyond: one record pulls with 2δ at most (Huber 1964).

    Averaged over a record's outputs.
    """
    errors = functional.huber_loss(outputs, targets.to(outputs.dtype), reduction="none", delta=HUBER)
    return errors.mul(2).reshape(len(outputs), -1).mean(1)


LOSSES = Registry[Loss](
    "loss",
    {
        "cross-entropy": cross_entropy,
        "binary-cross-entropy": binary_cross_entropy,
        "mean-squared-error": mean_squared_error,
        "huber": huber,
    },
)


def choose_loss(loss: str | Loss, outputs: Tensor, targets: Tensor) -> Loss:
    """The named loss; 'auto' picks by the shape of the outputs and the type of the targets."""
    if callable(loss):
        return loss
    if loss != "auto":
        return LOSSES.find(loss, also=("auto",))
    if outputs.ndim == 2 and not targets.is_floating_point():
        return cross_entropy
    if outputs.ndim == 1 and not targets.is_floating_point():
        return binary_cross_entropy
    if outputs.shape == targets.shape:
        return mean_squared_error
    raise ConfigError(
        f"no loss fits outputs of shape {tuple(outputs.shape)} and targets of shape {tuple(targets.shape)}"
        f" ({targets.dtype}): name one with ⟨loss⟩ ({', '.join(LOSSES)}) or pass your own"
    )


def correct(outputs: Tensor, targets: Tensor) -> Tensor | None:
    """Which records are classified correctly; None where the targets are not classes."""
    if targets.is_floating_point():
        return None
    if outputs.ndim == 1:
        return (outputs > 0).to(torch.int64) == targets
    return outputs.argmax(1) == targets


QUANTILES = (0.0, 0.25, 0.5, 0.75, 1.0)


def two_class_scores(outputs: Sequence[Tensor], targets: Tensor) -> np.ndarray | None:
    """How much each record's output speaks for class 1 (0: undecided); None where there are not two classes."""
    if targets.is_floating_point() or targets.ndim != 1 or not outputs:
        return None
    if outputs[0].ndim == 1:
        parts = list(outputs)
    elif outputs[0].ndim == 2 and outputs[0].shape[1] == 2:
        parts = [o[:, 1] - o[:, 0] for o in outputs]
    else:
        return None
    return np.concatenate([part.double().cpu().numpy() for part in parts])


def two_class_metrics(scores: np.ndarray, targets: np.ndarray) -> dict[str, float]:
    """Balanced accuracy, the area under the ROC curve and what else is registered; nothing where a class is missing."""
    if len(np.unique(targets)) != 2 or not np.isfinite(scores).all():
        return {}
    found = ((metric.name, metric.of_scores) for metric in METRICS.values())
    return {name: of_scores(scores, targets) for name, of_scores in found if of_scores is not None}


def value_metrics(outputs: Sequence[Tensor], targets: Tensor) -> dict[str, float]:
    """What is registered for quantities; nothing where the model does not give one finite number for each record."""
    if not targets.is_floating_point() or targets.ndim != 1 or not outputs or outputs[0].ndim != 1:
        return {}
    predicted = np.concatenate([part.double().cpu().numpy() for part in outputs])
    if not np.isfinite(predicted).all():
        return {}
    known = targets.double().cpu().numpy()
    found = {metric.name: metric.of_values(predicted, known) for metric in METRICS.values() if metric.of_values}
    return {name: value for name, value in found.items() if np.isfinite(value)}


def by_client(scores: np.ndarray, targets: np.ndarray, clients: np.ndarray) -> dict[str, list[float]]:
    """The `QUANTILES` of the metrics over clients that have records of both classes; nothing where none has."""
    order = np.argsort(clients, kind="stable")
    borders = np.flatnonzero(np.diff(clients[order])) + 1
    found = [two_class_metrics(scores[rows], targets[rows]) for rows in np.split(order, borders)]
    both = [metrics for metrics in found if metrics]
    if not both:
        return {}
    return {f"{name}_by_client": np.quantile([m[name] for m in both], QUANTILES).tolist() for name in both[0]}
