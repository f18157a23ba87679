"""Where the weights that FL-TOP keeps are, and how large they become (thesis Fig. 5.1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

BEFORE = "before training"
"""Stands among the schemes for the initial weights."""


@dataclass(frozen=True, kw_only=True)
class Layer:
    """The kept weights of one layer, by the scheme that trained them."""

    name: str
    shape: tuple[int, ...]
    values: Mapping[str, np.ndarray]


@dataclass(frozen=True)
class KeptByLayer:
    """The kept weights of a model, layer by layer."""

    layers: Sequence[Layer]

    def values(self) -> dict[str, np.ndarray]:
        """All kept weights, by scheme."""
        return {name: np.concatenate([layer.values[name] for layer in self.layers]) for name in self.layers[0].values}

    def markdown(self) -> str:
        """How many of each layer are kept, and their mean size under each scheme."""
        schemes = list(self.layers[0].values)
        head = ["layer", "shape", "weights", "kept", *(f"mean size, {scheme}" for scheme in schemes)]
        lines = ["| " + " | ".join(head) + " |", "| " + " | ".join("---" for _ in head) + " |"]
        whole = Layer(name="all", shape=(), values=self.values())
        total = sum(int(np.prod(layer.shape)) for layer in self.layers)
        for layer in [*self.layers, whole]:
            size = int(np.prod(layer.shape)) if layer.shape else total
            kept = len(layer.values[schemes[0]])
            sizes = [f"{np.abs(layer.values[s]).mean():.4f}" if kept else "–" for s in schemes]
            shape = "×".join(map(str, layer.shape))
            lines.append(f"| {layer.name} | {shape} | {size:,} | {kept:,} | " + " | ".join(sizes) + " |")
        norms = ", ".join(f"{name} {np.linalg.norm(values):.2f}" for name, values in self.values().items())
        return "\n".join([*lines, "", f"Euclidean norm of all kept weights: {norms}.", ""])
