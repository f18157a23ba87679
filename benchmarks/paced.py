"""What contenders of rounds share: a clock for a device, a run that ends when no more rounds are asked for, and the
plain loop that anyone would write first."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

import laconic
from benchmarks.pacing import Pacer
from laconic.privacy.accounting.sampling import AsPublished

_ROUNDS = 500  # more than anyone times; the accountant plans for them


class _Enough(Exception):
    """No more rounds are asked for."""


def pacer_for(device: str, warmups: int) -> Pacer:
    """It waits for a GPU before it reads the clock, and says how much of its memory was used."""
    on_gpu = device != "cpu"
    return Pacer(
        warmups=warmups,
        synchronize=torch.cuda.synchronize if on_gpu else lambda: None,
        extra=lambda: {"gpu_mb": torch.cuda.max_memory_allocated() / 1e6} if on_gpu else {},
    )


def run_while(round_done: Callable[[], bool], scheme: laconic.Scheme, *, cohort: int, **options: Any) -> None:
    """`laconic.run` with a run folder, until `round_done` says no."""

    def observer(row: dict[str, Any]) -> None:
        if not round_done():
            raise _Enough

    with tempfile.TemporaryDirectory() as folder:
        try:
            laconic.run(
                scheme,
                sampler=AsPublished(cohort_size=cohort),
                rounds=_ROUNDS,
                eval_every=_ROUNDS,
                observer=observer,
                out=f"{folder}/run",
                checkpoint_seconds=3600,
                **options,
            )
        except _Enough:
            return
    raise RuntimeError(f"more than {_ROUNDS} rounds were asked for")


def plain_round(
    model: nn.Module,
    loss: Callable[[Tensor, Tensor], Tensor],
    optimizer: Callable[[], torch.optim.Optimizer],
    inputs: Sequence[Tensor],
    targets: Sequence[Tensor],
    steps: int,
) -> None:
    """One client after another takes its steps from the same weights; the model gets the mean of their changes."""
    start = [p.detach().clone() for p in model.parameters()]
    total = [torch.zeros_like(p) for p in start]
    for x, y in zip(inputs, targets, strict=True):
        with torch.no_grad():
            torch._foreach_copy_(list(model.parameters()), start)
        stepping = optimizer()
        for _ in range(steps):
            stepping.zero_grad()
            loss(x, y).backward()
            stepping.step()
        with torch.no_grad():
            torch._foreach_add_(total, torch._foreach_sub(list(model.parameters()), start))
    with torch.no_grad():
        torch._foreach_add_(start, total, alpha=1 / len(inputs))
        torch._foreach_copy_(list(model.parameters()), start)
