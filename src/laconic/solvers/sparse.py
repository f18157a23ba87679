"""Sparse reconstruction: min ½‖y − Θs‖² + λ‖s‖₁ for many chunks at once, where the rows of Θ are orthonormal."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

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

    s ← soft(z − Θᵀ(Θz − y), λ),  z ← s + (t_prev − 1)/t·(s − s_prev)

    The step is 1, since ‖Θ‖ = 1. It stops when the duality gap is below `tolerance` of the objective, or after
    `max_iterations`. λ = `l1_weight`.
    """

    l1_weight: float
    max_iterations: int = 300
    tolerance: float = 1e-3

    def __post_init__(self) -> None:
        non_negative(l1_weight=self.l1_weight, tolerance=self.tolerance)
        positive_int(max_iterations=self.max_iterations)

    def solve(self, code: Tensor, *, forward: Operator, adjoint: Operator) -> Tensor:
        back = adjoint(code)
        signal = soft_threshold(back, self.l1_weight)
        ahead, momentum = signal, 1.0
        for iteration in range(1, self.max_iterations):
            step = ahead - adjoint(forward(ahead)) + back
            new = soft_threshold(step, self.l1_weight)
            if float(((ahead - new) * (new - signal)).sum()) > 0:  # going uphill: forget the momentum
                momentum = 1.0
            following = (1 + (1 + 4 * momentum**2) ** 0.5) / 2
            ahead = new + (momentum - 1) / following * (new - signal)
            signal, momentum = new, following
            if iteration % 10 == 0 and self._converged(code, signal, forward, adjoint):
                break
        return signal

    def _converged(self, code: Tensor, signal: Tensor, forward: Operator, adjoint: Operator) -> bool:
        value, gap = objective_and_gap(code, signal, self.l1_weight, forward, adjoint)
        return gap <= self.tolerance * value


def soft_threshold(values: Tensor, threshold: float) -> Tensor:
    """sign(v)·max(|v| − t, 0), the proximal map of t‖·‖₁."""
    return values - values.clamp(-threshold, threshold)


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
