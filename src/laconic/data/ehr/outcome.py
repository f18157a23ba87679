"""What a schema predicts of its label: yes or no, one of several classes, or a quantity between public bounds.

A quantity y is learnt as t = (y − m)/h with the middle m = (low + high)/2 and half the range h = (high − low)/2. So t
lies in [−1, 1], a model that starts at 0 starts in the middle, and an error of 1 is half the range, whatever the unit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from laconic.errors import ConfigError, one_line

Numbers = TypeVar("Numbers", np.ndarray, Tensor)


@dataclass(frozen=True)
class Quantity:
    """Public bounds of a quantity, in the unit of the table."""

    low: float
    high: float

    def __post_init__(self) -> None:
        if not self.low < self.high:
            raise ConfigError(f"low {self.low:g} must be below high {self.high:g}")

    @property
    def middle(self) -> float:
        return (self.low + self.high) / 2

    @property
    def half(self) -> float:
        """What an error of 1 in training is, in the unit of the table."""
        return (self.high - self.low) / 2

    def scaled(self, values: Numbers) -> Numbers:
        """y → t; what lies outside the bounds lies outside [−1, 1]."""
        return (values - self.middle) / self.half

    def restored(self, values: Numbers) -> Numbers:
        """t → y."""
        return values * self.half + self.middle


@dataclass(frozen=True)
class Outcome:
    """What of the label is predicted. Two classes are `positive` values against all others; one class is a quantity."""

    label: str
    positive: tuple[str, ...] = ()
    classes: tuple[str, ...] = ()
    quantity: Quantity | None = None

    def __post_init__(self) -> None:
        kinds = [bool(self.positive), bool(self.classes), self.quantity is not None]
        if sum(kinds) != 1:
            raise ConfigError(
                f"say what is predicted of '{one_line(self.label, 60)}', one of three: positive = VALUE (yes or no),"
                " classes = [VALUES] (one of several), low and high (a quantity between public bounds)"
            )
        if len(self.classes) == 1:
            raise ConfigError("classes must name two values of the label, or more")

    @property
    def num_classes(self) -> int:
        """1: the label is a quantity."""
        return len(self.classes) or (1 if self.quantity is not None else 2)

    @property
    def names(self) -> tuple[str, ...]:
        """What the classes are called; nothing of a quantity."""
        if not self.positive:
            return self.classes
        positive = one_line(f"{self.label} = {' or '.join(self.positive)}", 60)
        return f"not {positive}", positive

    def targets(self, labels: np.ndarray, cut: np.ndarray | None = None) -> Tensor:
        """Targets of a table's labels. A quantity is cut to its bounds in all rows, or only where `cut` is true."""
        if self.quantity is None:
            return torch.from_numpy(labels.astype(np.int64))
        scaled = self.quantity.scaled(labels.astype(np.float64))
        inside = np.clip(scaled, -1, 1)
        return torch.from_numpy((inside if cut is None else np.where(cut, inside, scaled)).astype(np.float32))

    def to_meaning(self) -> dict[str, object]:
        """What machines must agree on."""
        said: dict[str, object] = {"label": self.label, "positive": sorted(self.positive)}
        if self.classes:
            said["classes"] = list(self.classes)
        if self.quantity is not None:
            said |= {"low": self.quantity.low, "high": self.quantity.high}
        return said
