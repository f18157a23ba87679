"""Sparse reconstruction: min ½‖y − Θs‖² + λ‖s‖₁ for many chunks at once, where the rows of Θ are orthonormal."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional

from laconic.graphs import Replayed
from laconic.parts import Part, non_negative, positive_int

_LOOK_EVERY = 24
"""Iterations between two looks at the duality gap. Even, since signal and next signal change places in each."""


class Operator(Protocol):
    """Θ; hashable, so that what was recorded for it is found again."""

    def __hash__(self) -> int: ...

    def forward(self, signal: Tensor) -> Tensor:
        """Signals (chunks, L) → codes (chunks, m)."""

    def adjoint(self, code: Tensor) -> Tensor:
        """Codes (chunks, m) → signals (chunks, L)."""


@dataclass(frozen=True, kw_only=True)
class Solver(Part):
    """Base of the solvers."""

    def solve(self, code: Tensor, theta: Operator) -> Tensor:
        """Codes (chunks, m) → signals (chunks, L)."""
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class Adjoint(Solver):
    """Θᵀy: the low-pass filtered signal."""

    def solve(self, code: Tensor, theta: Operator) -> Tensor:
        return theta.adjoint(code)


@dataclass(frozen=True, kw_only=True)
class Fista(Solver):
    """Accelerated proximal gradient (Beck & Teboulle 2009) with restarts (O'Donoghue & Candès 2015).

    s ← soft(z + Θᵀ(y − Θz), λ),  z ← s + (t_prev − 1)/t·(s − s_prev)

    The step is 1, since ‖Θ‖ = 1; each chunk restarts on its own. It stops when the duality gap is below `tolerance` of
    the objective (looked at every 24 iterations; never, if the tolerance is 0), or after `max_iterations`.
    λ = `l1_weight`.
    """

    l1_weight: float
    max_iterations: int = 300
    tolerance: float = 1e-3

    def __post_init__(self) -> None:
        non_negative(l1_weight=self.l1_weight, tolerance=self.tolerance)
        positive_int(max_iterations=self.max_iterations)

    def solve(self, code: Tensor, theta: Operator) -> Tensor:
        make = _kept_descent if code.is_cuda else _Descent
        descent = make(self, theta, code.shape, code.dtype, code.device)
        descent.begin(code)
        for _ in range((self.max_iterations - 1) // _LOOK_EVERY):
            descent.block()
            if self.tolerance and self._converged(code, descent.signal, theta):
                return descent.signal.clone()
        for _ in range((self.max_iterations - 1) % _LOOK_EVERY):
            descent.iterate()
        return descent.signal.clone()

    def _converged(self, code: Tensor, signal: Tensor, theta: Operator) -> bool:
        value, gap = objective_and_gap(code, signal, self.l1_weight, theta)
        return gap <= self.tolerance * value


class _Descent:
    """Iterations in fixed memory: new pages cost a processor time, and a GPU can replay what is recorded.

    Nothing here waits for a GPU.
    """

    def __init__(
        self, solver: Fista, theta: Operator, shape: torch.Size, dtype: torch.dtype, device: torch.device
    ) -> None:
        self._theta, self._weight = theta, solver.l1_weight
        self._code = torch.empty(shape, dtype=dtype, device=device)
        first = theta.adjoint(self._code).contiguous()
        self._signals = first, torch.empty_like(first)
        self.signal, self._new = self._signals
        self._ahead, self._step, self._moved = (torch.empty_like(first) for _ in range(3))
        self._pushes = torch.tensor(_pushes(solver.max_iterations), device=device, dtype=dtype)
        # Iterations since the restart.
        self._age = torch.zeros(*shape[:-1], 1, device=device, dtype=torch.int64)
        self.block = Replayed(self._block, device, "decoding")

    def begin(self, code: Tensor) -> None:
        self._code.copy_(code)
        self.signal, self._new = self._signals  # in the places that were recorded
        self.signal.copy_(soft_threshold(self._theta.adjoint(code), self._weight))
        self._ahead.copy_(self.signal)
        self._age.zero_()

    def _block(self) -> None:
        for _ in range(_LOOK_EVERY):
            self.iterate()

    def iterate(self) -> None:
        new, step, moved, weight = self._new, self._step, self._moved, self._weight
        torch.add(self._ahead, self._theta.adjoint(self._code - self._theta.forward(self._ahead)), out=step)
        torch.sub(step, torch.clamp(step, -weight, weight, out=new), out=new)  # soft_threshold
        torch.sub(new, self.signal, out=moved)
        uphill = torch.sub(self._ahead, new, out=step).mul_(moved).sum(-1, keepdim=True) > 0
        self._age.masked_fill_(uphill, 0)  # going uphill: that chunk forgets its momentum
        torch.addcmul(new, self._pushes[self._age], moved, out=self._ahead)
        self._age += 1
        self.signal, self._new = new, self.signal


_kept_descent = functools.lru_cache(maxsize=1)(_Descent)


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


def objective_and_gap(code: Tensor, signal: Tensor, l1_weight: float, theta: Operator) -> tuple[float, float]:
    """(½‖y − Θs‖² + λ‖s‖₁, its distance from a feasible dual value), summed over chunks."""
    residual = code - theta.forward(signal)
    square = residual.double().square().sum(-1)
    value = square / 2 + l1_weight * signal.double().abs().sum(-1)
    largest = theta.adjoint(residual).abs().amax(-1).double()
    scale = torch.where(largest > l1_weight, l1_weight / largest.clamp(min=1e-300), torch.ones_like(largest))
    product = (residual.double() * code.double()).sum(-1)
    dual = scale * product - scale.square() * square / 2
    return float(value.sum()), float((value - dual).sum())
