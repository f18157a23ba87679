"""From many features to a few, by public means only: principal components of public images, or a random choice."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor, nn

from laconic.errors import ConfigError

RIDGE = 1e-3
_WHOLE = 4096
"""Features up to which all directions are computed."""


class Whitening(nn.Module):
    """z = Λ^(−½)·Vᵀ·(f − μ), scaled to ‖z‖₂ = √K: K whitened components of equal weight, and records of equal length.

    μ, V and Λ come from public images, see `principal_components`.
    """

    mean: Tensor
    matrix: Tensor

    def __init__(self, mean: Tensor, matrix: Tensor) -> None:
        super().__init__()
        self.register_buffer("mean", mean)
        self.register_buffer("matrix", matrix)

    def components(self, features: Tensor) -> Tensor:
        """z before it is scaled: records keep their lengths."""
        return (features.flatten(1) - self.mean) @ self.matrix.T

    def forward(self, features: Tensor) -> Tensor:
        components = self.components(features)
        length = torch.linalg.vector_norm(components, dim=1, keepdim=True)
        return components.mul(math.sqrt(len(self.matrix)) / length.clamp(min=1e-12))


class Selection(nn.Module):
    """K of the features, as they are."""

    chosen: Tensor

    def __init__(self, chosen: Tensor) -> None:
        super().__init__()
        self.register_buffer("chosen", chosen)

    def forward(self, features: Tensor) -> Tensor:
        return features.flatten(1)[:, self.chosen]


def principal_components(features: Tensor, count: int, *, ridge: float = RIDGE) -> Whitening:
    """The K leading principal components of public features (images, d), with eigenvalues λ_k + ridge·λ₁ in Λ.

    The ridge keeps directions that hardly vary on the public images from being blown up on other ones.
    """
    mean, values, vectors = leading_directions(features, count)
    return Whitening(mean, (vectors / scales(values, ridge)).T.contiguous())


def scales(values: Tensor, ridge: float) -> Tensor:
    """√(λ_k + ridge·λ₁): what each component is divided by."""
    return (values + ridge * values[0]).sqrt()


def leading_directions(features: Tensor, count: int) -> tuple[Tensor, Tensor, Tensor]:
    """(μ (d,), the K largest eigenvalues of the covariance, their eigenvectors (d, K))."""
    images, available = features.shape
    check_count(count, available)
    if images <= count:
        raise ConfigError(
            f"{count} principal components need more than {count} public images, and there are {images}:"
            " ask for fewer with ⟨front-end-features⟩, or name a ⟨public-dataset⟩"
        )
    mean = features.mean(0)
    centred = features - mean
    values, vectors = _largest(centred.T @ centred / images, count)
    return mean, values.flip(0)[:count].clamp(min=0), vectors.flip(1)[:, :count]


def _largest(covariance: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Its largest eigenvalues at least, in ascending order, and their eigenvectors."""
    size = len(covariance)
    if covariance.is_cuda or size <= _WHOLE:
        values, vectors = torch.linalg.eigh(covariance)
        return values, vectors
    from scipy.linalg import eigh  # a few vectors of a large matrix take a fraction of the time that all take

    some = eigh(covariance.numpy(), subset_by_index=(size - count, size - 1))
    return torch.from_numpy(some[0]), torch.from_numpy(some[1])


def random_selection(available: int, count: int, rng: np.random.Generator) -> Selection:
    """K of the features, drawn without replacement."""
    check_count(count, available)
    return Selection(torch.from_numpy(np.sort(rng.choice(available, count, replace=False))))


def check_count(count: int, available: int) -> None:
    if count > available:
        raise ConfigError(f"⟨front-end-features⟩ {count}: the transform of these images has only {available} features")
