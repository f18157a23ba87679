"""The principal components of everyone's features, computed once and shared by all runs through a file.

They are not whitened yet, so that a file serves any number of them and any ridge.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.frontier.settings import HOLDOUT, TEST_SEEDS, World
from laconic.data.federated import FederatedData
from laconic.data.inputs import dense
from laconic.data.population import PooledPopulation, Records, gather
from laconic.data.synthetic import dead_leaves
from laconic.features.population import in_blocks
from laconic.features.projection import leading_directions, scales
from laconic.features.scattering import ScatteringFrontEnd
from laconic.options.sections import DataSection
from laconic.settings.data.datasets import load_federation
from laconic.settings.data.divide import public_images
from laconic.streams import Streams

_BLOCK = 8192


def load_data(world: World, public: str, seed: int, data_dir: str | None) -> tuple[FederatedData, Streams]:
    """The clients of a seed. While settings are chosen, a tenth of the pictures belongs to no client."""
    held = 0.0 if seed in TEST_SEEDS else HOLDOUT
    clients = round(world.clients * (1 - held))
    section = DataSection(dataset=world.dataset, data_dir=data_dir, num_clients=clients, public_dataset=public)
    streams = Streams(seed)
    return load_federation(section, holdout=held, streams=streams), streams


def leaves_of(world: World, seed: int, shape: tuple[int, ...]) -> np.ndarray:
    """The same dead leaves that a run with that seed looks at, for processes that make those of many seeds at once."""
    return dead_leaves(world.images, shape, Streams(seed).numpy("front end images")).numpy()


def write_features(
    path: Path,
    world: World,
    *,
    public: str,
    mirror: bool,
    seed: int,
    data_dir: str | None,
    device: torch.device,
    images: Tensor | None = None,
) -> None:
    """`images` are the public ones, if they are at hand already."""
    federation, streams = load_data(world, public, seed, data_dir)
    if images is None:
        section = DataSection(dataset=world.dataset, data_dir=data_dir, public_dataset=public)
        images, _ = public_images(section, federation, world.images, streams)
    judge = federation.test if seed in TEST_SEEDS else federation.holdout
    assert images is not None and judge is not None and federation.public is not None
    front_end = ScatteringFrontEnd(federation.input_shape, about={"mirror": mirror})
    mean, values, vectors = leading_directions(in_blocks(front_end, images, device).flatten(1), world.most_features)

    def components(inputs: Tensor) -> Tensor:
        parts = [(in_blocks(front_end, some, device).flatten(1) - mean) @ vectors for some in inputs.split(_BLOCK)]
        return torch.cat(parts).cpu()

    everyone = gather(federation.population, list(range(federation.population.num_clients)), torch.device("cpu"))
    real = torch.arange(everyone.inputs.shape[1]) < torch.from_numpy(everyone.sizes)[:, None]
    clients = Records(everyone.inputs[real], everyone.targets[real])
    tensors = {"values": values.cpu(), "sizes": torch.from_numpy(everyone.sizes)}
    for who, records in (("clients", clients), ("judge", judge), ("public", federation.public)):
        tensors |= {f"{who}_inputs": components(dense(records.inputs)), f"{who}_targets": records.targets}
    unfinished = path.with_suffix(".new")
    torch.save(tensors, unfinished)
    unfinished.replace(path)


class Features:
    """The contents of such a file, as a head with K features sees them."""

    def __init__(self, path: Path, count: int, ridge: float) -> None:
        self._data: dict[str, Any] = torch.load(path, mmap=True, weights_only=True)
        self._count = count
        self._divisors = scales(self._data["values"], ridge)[:count]

    def records(self, who: str) -> Records:
        """Whitened and scaled to length √K, as `laconic.features.projection.Whitening` does it."""
        components = self._data[f"{who}_inputs"][:, : self._count] / self._divisors
        lengths = torch.linalg.vector_norm(components, dim=1, keepdim=True).clamp(min=1e-12)
        return Records(components.mul_(self._count**0.5 / lengths), self._data[f"{who}_targets"])

    def clients(self) -> PooledPopulation:
        ends = np.cumsum(self._data["sizes"].numpy())
        return PooledPopulation(self.records("clients"), np.split(np.arange(ends[-1]), ends[:-1]))
