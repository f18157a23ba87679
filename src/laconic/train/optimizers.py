"""SGD and Adam on lists of tensors whose leading axis may be clients. State is explicit and lives one round."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


class SGD:
    """w ← w − η·g."""

    def __init__(self, params: Sequence[Tensor], lr: float) -> None:
        self._lr = lr

    def step(self, params: Sequence[Tensor], grads: Sequence[Tensor], active: Tensor | None) -> None:
        """One step in place. `active` (clients,) is 0 for those that have finished; None means that all go on."""
        if active is None:
            torch._foreach_add_(list(params), list(grads), alpha=-self._lr)
            return
        for param, grad in zip(params, grads, strict=True):
            param.addcmul_(grad, _per_client(active, grad), value=-self._lr)


class Adam:
    """Adam with Keras' and PyTorch's defaults (β₁ = 0.9, β₂ = 0.999) and ε = 1e-7 as in Keras."""

    def __init__(self, params: Sequence[Tensor], lr: float) -> None:
        self._lr, self._beta1, self._beta2, self._eps = lr, 0.9, 0.999, 1e-7
        self._first = [torch.zeros_like(p) for p in params]
        self._second = [torch.zeros_like(p) for p in params]
        self._count = 0

    def step(self, params: Sequence[Tensor], grads: Sequence[Tensor], active: Tensor | None) -> None:
        self._count += 1
        correction1, correction2 = 1 - self._beta1**self._count, 1 - self._beta2**self._count
        for param, grad, first, second in zip(params, grads, self._first, self._second, strict=True):
            first.lerp_(grad, 1 - self._beta1)
            second.mul_(self._beta2).addcmul_(grad, grad, value=1 - self._beta2)
            direction = (first / correction1) / ((second / correction2).sqrt_() + self._eps)
            if active is not None:
                direction *= _per_client(active, direction)
            param.add_(direction, alpha=-self._lr)


def make_optimizer(name: str, params: Sequence[Tensor], lr: float) -> SGD | Adam:
    return Adam(params, lr) if name == "adam" else SGD(params, lr)


def _per_client(active: Tensor, like: Tensor) -> Tensor:
    return active.reshape(-1, *[1] * (like.ndim - 1))
