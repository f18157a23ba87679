"""Frozen modules as users write them, and some that are no front ends: named as `own_front_ends:NAME`."""

from __future__ import annotations

import threading
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

NOT_A_FUNCTION = 3


def net(input_shape: tuple[int, ...], width: int = 12) -> nn.Module:
    """A random network with dropout and batch normalisation, which are harmless in evaluation mode."""
    size = int(torch.tensor(input_shape).prod())
    return nn.Sequential(nn.Flatten(), nn.Linear(size, width), nn.BatchNorm1d(width), nn.Dropout(0.5), nn.ReLU())


def batch_dependent(input_shape: tuple[int, ...]) -> nn.Module:
    """Normalised by the batch that a record happens to be in."""
    size = int(torch.tensor(input_shape).prod())
    return nn.Sequential(nn.Flatten(), nn.BatchNorm1d(size, track_running_stats=False))


class Stubborn(nn.Sequential):
    """Stays in training mode whatever it is told."""

    def train(self, mode: bool = True) -> Stubborn:
        return super().train(True)


def always_training(input_shape: tuple[int, ...]) -> nn.Module:
    return Stubborn(nn.Flatten(), nn.BatchNorm1d(int(torch.tensor(input_shape).prod())))


class Custom(nn.Module):
    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind, self.calls = kind, 0

    def forward(self, inputs: Tensor) -> Any:
        self.calls += 1
        flat = inputs.flatten(1).float()
        made: dict[str, Any] = {
            "random": lambda: functional.dropout(flat, training=True),
            "remembers": lambda: flat * (1 if self.calls < 5 else 2),
            "not finite": lambda: (flat - 10).log(),
            "a tuple": lambda: (flat, flat),
            "one number": lambda: flat.mean(),
            "fails": lambda: flat @ torch.zeros(1, 1),
        }
        return made[self.kind]()


def custom(kind: str) -> nn.Module:
    return Custom(kind)


def only_big_pixels(input_shape: tuple[int, ...]) -> nn.Module:
    """Finite on made records, not on all real ones."""

    class Inverse(nn.Module):
        def forward(self, inputs: Tensor) -> Tensor:
            return 1 / inputs.flatten(1)

    return Inverse()


def not_to_be_copied() -> nn.Module:
    module = nn.Flatten()
    module.lock = threading.Lock()  # type: ignore[assignment]
    return module


def no_module() -> list[int]:
    return [1]


def fails() -> nn.Module:
    raise OSError("no weights here\nand a second line")
