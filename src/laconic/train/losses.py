"""Losses per record, and the metrics that go with them."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

from laconic.errors import ConfigError, unknown

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


LOSSES: dict[str, Loss] = {
    "cross-entropy": cross_entropy,
    "binary-cross-entropy": binary_cross_entropy,
    "mean-squared-error": mean_squared_error,
}


def choose_loss(loss: str | Loss, outputs: Tensor, targets: Tensor) -> Loss:
    """The named loss; 'auto' picks by the shape of the outputs and the type of the targets."""
    if callable(loss):
        return loss
    if loss != "auto":
        if loss not in LOSSES:
            raise ConfigError(unknown("loss", loss, ["auto", *LOSSES]))
        return LOSSES[loss]
    if outputs.ndim == 2 and not targets.is_floating_point():
        return cross_entropy
    if outputs.ndim == 1 and not targets.is_floating_point():
        return binary_cross_entropy
    if outputs.shape == targets.shape:
        return mean_squared_error
    raise ConfigError(
        f"no loss fits outputs of shape {tuple(outputs.shape)} and targets of shape {tuple(targets.shape)}"
        f" ({targets.dtype}): name one with --loss ({', '.join(LOSSES)}) or pass your own"
    )


def correct(outputs: Tensor, targets: Tensor) -> Tensor | None:
    """Which records are classified correctly; None where the targets are not classes."""
    if targets.is_floating_point():
        return None
    if outputs.ndim == 1:
        return (outputs > 0).to(torch.int64) == targets
    return outputs.argmax(1) == targets
