"""Several front ends side by side, so that one projection whitens their features together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from laconic.features.base import FrontEnd, num_values
from laconic.features.blocks import in_blocks


class JoinedFrontEnd(FrontEnd):
    """(s₁·f₁(x), s₂·f₂(x), …) as one vector, for front ends f without projections of their own.

    `balance` chooses s so that on public records every part has the same variance in all. Otherwise the principal
    components would be those of the part with the most features.
    """

    scales: Tensor

    def __init__(
        self, parts: Sequence[FrontEnd], about: dict[str, Any] | None = None, projection: nn.Module | None = None
    ) -> None:
        described = {"kind": "joined", "parts": [part.about for part in parts]}
        super().__init__(parts[0].input_shape, projection, described | (about or {}))
        self.parts = nn.ModuleList(parts)
        self.register_buffer("scales", torch.ones(len(parts)))

    def raw(self, inputs: Tensor) -> Tensor:
        found = [part.raw(inputs).flatten(1) for part in self._parts]
        return torch.cat([scale * features for scale, features in zip(self.scales, found, strict=True)], dim=1)

    def balance(self, public: Tensor, device: torch.device | str) -> None:
        """Scale every part so that its features have variance 1 in all on these public records."""
        values = in_blocks(self, public, torch.device(device))
        widths = [num_values(part.raw_shape) for part in self._parts]
        totals = [float(block.var(0, correction=0).sum()) for block in torch.split(values, widths, dim=1)]
        self.scales = torch.tensor([max(total, 1e-12) ** -0.5 for total in totals])
        self.cpu()

    @property
    def _parts(self) -> list[FrontEnd]:
        return list(self.parts)  # type: ignore[arg-type]

    @property
    def for_threads(self) -> bool:
        return all(part.for_threads for part in self._parts)

    @property
    def raw_shape(self) -> tuple[int, ...]:
        return (sum(num_values(part.raw_shape) for part in self._parts),)

    @property
    def what(self) -> str:
        return "side by side: " + "; ".join(part.what for part in self._parts)

    @property
    def tensors(self) -> dict[str, Tensor]:
        own = {name: value for name, value in self.state_dict().items() if not name.startswith("parts.")}
        for number, part in enumerate(self._parts):
            own |= {f"parts.{number}.{name}": value for name, value in part.tensors.items()}
        return own
