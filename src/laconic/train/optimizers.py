"""SGD and Adam on lists of tensors whose leading axis may be clients. State is explicit and lives one round."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


class SGD:
    """w ← w − η·g."""

    def __init__(self, params: Sequence[Tensor], lr: float) -> None:
        self._lr = lr

    def step(self, params: Sequence[Tensor], grads: Sequence[Tensor], gates: Sequence[Tensor] | None = None) -> None:
        """One step in place. `gates` (0 or 1, for every parameter) say what moves; None means that all does."""
        if gates is None:
            torch._foreach_add_(list(params), list(grads), alpha=-self._lr)
            return
        for param, grad, gate in zip(params, grads, gates, strict=True):
            param.addcmul_(grad, gate, value=-self._lr)


class Adam:
    """Adam with Keras' and PyTorch's defaults (β₁ = 0.9, β₂ = 0.999) and ε = 1e-7 as in Keras."""

    def __init__(self, params: Sequence[Tensor], lr: float) -> None:
        self._lr, self._beta1, self._beta2, self._eps = lr, 0.9, 0.999, 1e-7
        self._first = [torch.zeros_like(p) for p in params]
        self._second = [torch.zeros_like(p) for p in params]
        self._count = 0

    def step(self, params: Sequence[Tensor], grads: Sequence[Tensor], gates: Sequence[Tensor] | None = None) -> None:
        self._count += 1
        correction1, correction2 = 1 - self._beta1**self._count, 1 - self._beta2**self._count
        for which, (param, grad) in enumerate(zip(params, grads, strict=True)):
            first, second = self._first[which], self._second[which]
            first.lerp_(grad, 1 - self._beta1)
            second.mul_(self._beta2).addcmul_(grad, grad, value=1 - self._beta2)
            direction = (first / correction1) / ((second / correction2).sqrt_() + self._eps)
            if gates is not None:
                direction *= gates[which]
            param.add_(direction, alpha=-self._lr)


def make_optimizer(name: str, params: Sequence[Tensor], lr: float) -> SGD | Adam:
    return Adam(params, lr) if name == "adam" else SGD(params, lr)
