"""Sparse reconstruction: min ½‖y − Θs‖² + λ‖s‖₁ for many chunks at once, where the rows of Θ are orthonormal."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from laconic.parts import Part, non_negative, positive_int

Operator = Callable[[Tensor], Tensor]


@dataclass(frozen=True, kw_only=True)
class Solver(Part):
    """Base of the solvers."""

    def solve(self, code: Tensor, *, forward: Operator, adjoint: Operator) -> Tensor:
        """Codes (chunks, m) → signals (chunks, L)."""
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class Adjoint(Solver):
    """Θᵀy: the low-pass filtered signal."""

    def solve(self, code: Tensor, *, forward: Operator, adjoint: Operator) -> Tensor:
        return adjoint(code)


@dataclass(frozen=True, kw_only=True)
class Fista(Solver):
    """Accelerated proximal gradient (Beck & Teboulle 2009) with restarts (O'Donoghue & Candès 2015).

    s ← soft(z + Θᵀ(y − Θz), λ),  z ← s + (t_prev − 1)/t·(s − s_prev)

    The step is 1, since ‖Θ‖ = 1; each chunk restarts on its own. It stops when the duality gap is below `tolerance` of
    the objective (looked at every 25 iterations; never, if the tolerance is 0), or after `max_iterations`.
    λ = `l1_weight`.
    """

    l1_weight: float
    max_iterations: int = 300
    tolerance: float = 1e-3

    def __post_init__(self) -> None:
        non_negative(l1_weight=self.l1_weight, tolerance=self.tolerance)
        positive_int(max_iterations=self.max_iterations)

    def solve(self, code: Tensor, *, forward: Operator, adjoint: Operator) -> Tensor:
        signal = soft_threshold(adjoint(code), self.l1_weight)
        ahead, new, step, moved = signal.clone(), *(torch.empty_like(signal) for _ in range(3))
        pushes = torch.tensor(_pushes(self.max_iterations), device=code.device, dtype=code.dtype)
        age = torch.zeros(*code.shape[:-1], 1, device=code.device, dtype=torch.int64)  # iterations since the restart
        # Always the same memory, since new pages cost a processor time; and nothing here waits for a GPU.
        for iteration in range(1, self.max_iterations):
            torch.add(ahead, adjoint(code - forward(ahead)), out=step)
            torch.sub(step, torch.clamp(step, -self.l1_weight, self.l1_weight, out=new), out=new)  # soft_threshold
            torch.sub(new, signal, out=moved)
            uphill = torch.sub(ahead, new, out=step).mul_(moved).sum(-1, keepdim=True) > 0
            age.masked_fill_(uphill, 0)  # going uphill: that chunk forgets its momentum
            torch.addcmul(new, pushes[age], moved, out=ahead)
            signal, new = new, signal
            age += 1
            if self.tolerance and iteration % 25 == 0 and self._converged(code, signal, forward, adjoint):
                break
        return signal

    def _converged(self, code: Tensor, signal: Tensor, forward: Operator, adjoint: Operator) -> bool:
        value, gap = objective_and_gap(code, signal, self.l1_weight, forward, adjoint)
        return gap <= self.tolerance * value


@functools.lru_cache(maxsize=8)
def _pushes(count: int) -> list[float]:
    """(t_k − 1)/t_{k+1}, t_0 = 1, t_{k+1} = (1 + √(1 + 4t_k²))/2: how far to go on in the last direction."""
    pushes, t = [], 1.0
    for _ in range(count + 1):
        following = (1 + (1 + 4 * t**2) ** 0.5) / 2
        pushes.append((t - 1) / following)
        t = following
    return pushes


def soft_threshold(values: Tensor, threshold: float) -> Tensor:
    """sign(v)·max(|v| − t, 0), the proximal map of t‖·‖₁."""
    return functional.softshrink(values, threshold)


def objective_and_gap(
    code: Tensor, signal: Tensor, l1_weight: float, forward: Operator, adjoint: Operator
) -> tuple[float, float]:
    """(½‖y − Θs‖² + λ‖s‖₁, its distance from a feasible dual value), summed over chunks."""
    residual = code - forward(signal)
    square = residual.double().square().sum(-1)
    value = square / 2 + l1_weight * signal.double().abs().sum(-1)
    largest = adjoint(residual).abs().amax(-1).double()
    scale = torch.where(largest > l1_weight, l1_weight / largest.clamp(min=1e-300), torch.ones_like(largest))
    product = (residual.double() * code.double()).sum(-1)
    dual = scale * product - scale.square() * square / 2
    return float(value.sum()), float((value - dual).sum())
