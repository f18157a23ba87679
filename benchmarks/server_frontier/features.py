"""The components of everyone's features for one seed, in a file that any number of features and rounds can use.

They are those of the front end that `laconic run` makes with the same seed. The scattering transform looks at no public
image, so its part is computed once for all seeds.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks.frontier.features import load_data
from benchmarks.frontier.settings import TEST_SEEDS
from benchmarks.frontier.settings import World as OldWorld
from benchmarks.server_frontier.worlds import World
from laconic.data.inputs import dense
from laconic.data.population import Records, gather
from laconic.data.sources import load_source
from laconic.data.synthetic import dead_leaves
from laconic.features.base import FrontEnd
from laconic.features.patches import PatchesFrontEnd, learnt
from laconic.features.population import in_blocks
from laconic.features.projection import leading_directions
from laconic.features.scattering import ScatteringFrontEnd

_CPU = torch.device("cpu")


def write_features(world: World, seed: int, folder: Path, data_dir: str | None) -> Path:
    """The file of that seed, made if it is not there."""
    path = folder / f"{world.dataset}-{seed}.pt"
    if path.exists():
        return path
    federation, streams = load_data(
        OldWorld(dataset=world.dataset, clients=world.clients), "dead-leaves", seed, data_dir
    )
    judge = federation.test if seed in TEST_SEEDS else federation.holdout
    assert judge is not None
    everyone = gather(federation.population, list(range(federation.population.num_clients)), _CPU)
    real = torch.arange(everyone.inputs.shape[1]) < torch.from_numpy(everyone.sizes)[:, None]
    clients = Records(everyone.inputs[real], everyone.targets[real])
    leaves = dead_leaves(world.images, federation.input_shape, streams.numpy("front end images"))
    parts = _Parts(world, federation.input_shape, leaves, folder, data_dir)
    mean, values, vectors = leading_directions(parts.raw(leaves), world.most_features)

    def components(records: Records) -> Tensor:
        return torch.cat([(parts.raw(some) - mean) @ vectors for some in dense(records.inputs).split(2048)])

    tensors = {"values": values, "sizes": torch.from_numpy(everyone.sizes)}
    for who, records in (("clients", clients), ("judge", judge)):
        tensors |= {f"{who}_inputs": components(records), f"{who}_targets": records.targets}
    unfinished = path.with_suffix(".new")
    torch.save(tensors, unfinished)
    unfinished.replace(path)
    return path


class _Parts:
    """The front ends of a world side by side, scaled on the dead leaves as `JoinedFrontEnd.balance` does it."""

    def __init__(
        self, world: World, shape: tuple[int, ...], leaves: Tensor, folder: Path, data_dir: str | None
    ) -> None:
        about: dict[str, Any] = {"mirror": world.mirror}
        self._parts: list[FrontEnd] = []
        self._known: dict[bytes, int] = {}
        self._scattered = torch.empty(0)
        for name in world.front_end.split("+"):
            if name == "patches":
                self._parts.append(PatchesFrontEnd(shape, *learnt(leaves, world.patterns), about))
                continue
            self._parts.append(ScatteringFrontEnd(shape, about=about))
            self._remember(world, folder / f"{world.dataset}-scattering.pt", data_dir)
        self._scales = [1.0] * len(self._parts)
        if len(self._parts) > 1:
            found = [self._one(part, leaves) for part in self._parts]
            self._scales = [float(values.var(0, correction=0).sum()) ** -0.5 for values in found]

    def raw(self, images: Tensor) -> Tensor:
        found = [scale * self._one(part, images) for scale, part in zip(self._scales, self._parts, strict=True)]
        return torch.cat(found, dim=1)

    def _one(self, part: FrontEnd, images: Tensor) -> Tensor:
        if isinstance(part, ScatteringFrontEnd):
            places = [self._known.get(image.numpy().tobytes()) for image in images]
            if None not in places:
                return self._scattered[torch.tensor(places)]
        return in_blocks(part, images, _CPU).flatten(1)

    def _remember(self, world: World, path: Path, data_dir: str | None) -> None:
        source = load_source(world.dataset, data_dir)
        images = torch.cat([dense(source.train.inputs), dense(source.test.inputs)])
        if not path.exists():
            torch.save(in_blocks(self._parts[-1], images, _CPU).flatten(1), path)
        self._scattered = torch.load(path, mmap=True, weights_only=True)
        self._known = {image.numpy().tobytes(): place for place, image in enumerate(images)}
