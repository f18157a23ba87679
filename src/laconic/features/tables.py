"""Front ends for rows of numbers: random Fourier features, and principal components of public rows.

Neither looks at private records. The frequencies follow from a public seed, and the bandwidth is given or measured on
public rows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from laconic.errors import ConfigError
from laconic.features.base import FrontEnd, size_text
from laconic.features.projection import Whitening
from laconic.parts import positive, positive_int

_MOST_ROWS = 2000
"""Of public rows, whose distances are measured."""


class FourierFrontEnd(FrontEnd):
    """z_k = √2·cos(w_k·x + b_k) with w_k ~ N(0, I/ℓ²) and b_k uniform on [0, 2π): K random Fourier features.

    Their inner products are K·exp(−‖x − y‖²/2ℓ²) in expectation (Rahimi and Recht, NeurIPS 2007), so a linear head on
    them is a kernel machine with bandwidth ℓ. ‖z‖₂ is about √K.
    """

    frequencies: Tensor
    phases: Tensor

    def __init__(
        self,
        input_shape: Sequence[int],
        frequencies: Tensor,
        phases: Tensor,
        about: dict[str, Any],
        projection: nn.Module | None = None,
    ) -> None:
        super().__init__(input_shape, projection, about)
        self.register_buffer("frequencies", frequencies)
        self.register_buffer("phases", phases)

    def raw(self, inputs: Tensor) -> Tensor:
        return math.sqrt(2) * torch.cos(inputs.flatten(1).float() @ self.frequencies + self.phases)

    @property
    def raw_shape(self) -> tuple[int, ...]:
        return (len(self.phases),)

    @property
    def what(self) -> str:
        about = self.about
        return (
            f"{about['features']} random Fourier features of {size_text(self.input_shape)} records, drawn from a public"
            f" seed, bandwidth {about['bandwidth']:.6g} ({about['source']})"
        )


class ComponentsFrontEnd(FrontEnd):
    """The record itself, for a projection on principal components of public records.

    Records keep their lengths: a long row, of a patient with many diagnoses say, is no brighter picture of the same.
    Only files that older versions wrote scale them all to one length.
    """

    def forward(self, inputs: Tensor) -> Tensor:
        if self.about.get("lengths") == "kept" and isinstance(self.projection, Whitening):
            return self.projection.components(self.raw(inputs))
        return super().forward(inputs)

    def raw(self, inputs: Tensor) -> Tensor:
        return inputs.flatten(1).float()

    @property
    def raw_shape(self) -> tuple[int, ...]:
        return (math.prod(self.input_shape),)

    @property
    def what(self) -> str:
        return f"the {size_text(self.input_shape)} records themselves"


def fourier_front_end(
    input_shape: Sequence[int],
    *,
    features: int,
    bandwidth: float | None = None,
    public: Tensor | None = None,
    source: str = "",
    rng: np.random.Generator | None = None,
) -> FourierFrontEnd:
    """K random Fourier features of records of that shape.

    The bandwidth ℓ is given, or the median distance between two `public` records, which `source` names in the privacy
    statement. Frequencies and phases are drawn with `rng` (seed 0 unless given).

    Args:
        input_shape: the shape of a record.
        features: how many features.
        bandwidth: ℓ, or None to measure it.
        public: public records to measure it on.
        source: how the privacy statement names them.
        rng: a numpy generator.

    Returns:
        A fixed module.

    Examples:
        >>> import torch
        >>> laconic.fourier_front_end((3,), features=8, bandwidth=1.0)(torch.zeros(2, 3)).shape
        torch.Size([2, 8])

    References:
        Rahimi and Recht (NeurIPS 2007).
    """
    positive_int(features=features)
    if bandwidth is None:
        if public is None:
            raise ConfigError(BANDWIDTH_NEEDS)
        bandwidth, source = median_distance(public), f"the median distance in {source or 'public records'}"
    positive(bandwidth=bandwidth)
    rng = rng or np.random.default_rng(0)
    frequencies = torch.from_numpy(rng.standard_normal((math.prod(input_shape), features)) / bandwidth).float()
    phases = torch.from_numpy(rng.uniform(0, 2 * math.pi, features)).float()
    about = {"kind": "fourier", "features": features, "bandwidth": float(bandwidth)}
    about["source"] = source or "as given"
    return FourierFrontEnd(input_shape, frequencies, phases, about)


BANDWIDTH_NEEDS = (
    "⟨front-end⟩ fourier needs a bandwidth that is not taken from the clients' records: give ⟨front-end-bandwidth⟩, or"
    " public records to measure it on (⟨public-dataset⟩ NAME, or ⟨public-records⟩ N to set some training records aside)"
)


def median_distance(public: Tensor) -> float:
    """The median distance between two different public rows; of the first 2,000, if there are more."""
    rows = public[:_MOST_ROWS].flatten(1).double()
    distances = torch.pdist(rows) if len(rows) > 1 else rows.new_zeros(0)
    distances = distances[distances > 0]
    if not len(distances):
        raise ConfigError("the public records are all alike, so no bandwidth follows: give ⟨front-end-bandwidth⟩")
    return float(distances.median())
