"""Records that follow from a seed: clients of Gaussian classes, made when they are asked for, and public images.

The images are dead leaves: simple shapes that fall on each other. They have the edges, occlusions and scales of
pictures of things (Lee, Mumford and Huang 2001). So a front end can learn from them what images vary in, where no
public data set is at hand.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from laconic.data.population import FunctionPopulation, Records
from laconic.data.registry import SourceInfo
from laconic.errors import ConfigError
from laconic.parts import non_negative_int, positive_int

# The distance of the two nearest class means, with noise of variance 1: a linear model gets about nine in ten right.
_NEAREST = 3.4
_TEST_RECORDS = 2000
_MEANS, _TEST, _CLIENT = range(3)


def synthetic_population(
    num_clients: int,
    *,
    records_per_client: int = 10,
    num_features: int = 20,
    num_classes: int = 5,
    seed: int = 0,
) -> tuple[FunctionPopulation, Records]:
    """A population of any size and a test set. Every client draws its labels evenly from all the classes."""
    positive_int(
        num_clients=num_clients,
        records_per_client=records_per_client,
        num_features=num_features,
        num_classes=num_classes,
    )
    non_negative_int(seed=seed)
    if num_classes < 2:
        raise ConfigError("num_classes must be 2 or more: there is nothing to learn from one class")
    classes = _GaussianClasses(num_clients, records_per_client, num_features, num_classes, seed)
    population = FunctionPopulation(num_clients, classes.records, size=classes.size)
    return population, classes.draw(_TEST_RECORDS, _TEST)


class _GaussianClasses:
    """The generator behind the population; a class rather than closures, so that it can go to another process."""

    def __init__(
        self, num_clients: int, records_per_client: int, num_features: int, num_classes: int, seed: int
    ) -> None:
        self._num_clients = num_clients
        self._records_per_client = records_per_client
        self._seed = seed
        means = self._rng(_MEANS).standard_normal((num_classes, num_features))
        apart = np.linalg.norm(means[:, None] - means[None], axis=-1)
        self._means = means * (_NEAREST / apart[np.triu_indices(num_classes, k=1)].min())

    def size(self, client: int) -> int:
        self._check(client)
        return self._records_per_client

    def records(self, client: int) -> Records:
        self._check(client)
        return self.draw(self._records_per_client, _CLIENT, int(client))

    def draw(self, count: int, *stream: int) -> Records:
        """Records from the stream of that name: the same ones every time."""
        rng = self._rng(*stream)
        labels = rng.integers(len(self._means), size=count)
        inputs = self._means[labels] + rng.standard_normal((count, self._means.shape[1]))
        return Records(torch.from_numpy(inputs.astype(np.float32)), torch.from_numpy(labels))

    def _rng(self, *stream: int) -> np.random.Generator:
        return np.random.Generator(np.random.Philox(np.random.SeedSequence(self._seed, spawn_key=stream)))

    def _check(self, client: int) -> None:
        if not 0 <= client < self._num_clients:
            raise IndexError(f"client {client}: the clients are 0 to {self._num_clients - 1}")


SYNTHETIC = SourceInfo(
    name="synthetic",
    description="Gaussian classes, any number of clients, made on demand from the seed",
    licence="none needed",
    origin="made on demand from the seed",
    num_train=0,
    num_test=_TEST_RECORDS,
    size="10 per client",
    input_shape=(20,),
    classes=tuple("01234"),
    client="a made client with 10 records",
    default_clients=1000,
    how_to_get="made on demand",
)


_FEWEST, _MOST = 3, 30
_BLOCK = 500


def dead_leaves(count: int, shape: Sequence[int], rng: np.random.Generator) -> Tensor:
    """`count` images of that shape (channels, height, width) with values from 0 to 1.

    Simple shapes of random size and shade that fall on each other: public images that follow from a seed.

    Args:
        count: how many images.
        shape: (channels, height, width).
        rng: a numpy generator.

    Returns:
        A tensor of (count, channels, height, width).

    Examples:
        >>> import numpy as np
        >>> laconic.dead_leaves(2, (1, 8, 8), np.random.default_rng(0)).shape
        torch.Size([2, 1, 8, 8])

    References:
        Lee, Mumford and Huang (IJCV 2001) for the model of images.
    """
    if len(shape) != 3:
        raise ConfigError(
            f"dead-leaves are images, and the records have shape {tuple(shape)}: name another ⟨public-dataset⟩"
        )
    blocks = [_some(min(_BLOCK, count - start), shape, rng) for start in range(0, count, _BLOCK)]
    return torch.from_numpy(np.concatenate(blocks))


def _some(count: int, shape: Sequence[int], rng: np.random.Generator) -> np.ndarray:
    channels, height, width = shape
    down, right = np.linspace(-1, 1, height, dtype=np.float32)[:, None], np.linspace(-1, 1, width, dtype=np.float32)
    # Half of the pictures have a black ground, as pictures of single objects often do.
    ground = rng.random((count, channels, 1, 1)) * (rng.random((count, 1, 1, 1)) < 0.5)
    images = np.broadcast_to(ground, (count, channels, height, width)).astype(np.float32)
    leaves = _log_uniform(rng, _FEWEST, _MOST + 1, (count,))
    for number in range(1, _MOST + 1):
        more = np.flatnonzero(number <= leaves)
        cover, shade = _leaf(len(more), channels, down, right, min(height, width) / 2, rng)
        images[more] += cover * (shade - images[more])
    return images


def _leaf(
    count: int, channels: int, down: np.ndarray, right: np.ndarray, sharpness: float, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """A leaf for each image: how much of every pixel it covers, and its brightness there."""

    def each(low: float, high: float) -> np.ndarray:
        return rng.uniform(low, high, (count, 1, 1)).astype(np.float32)

    def coin(chance: float) -> np.ndarray:
        return rng.random((count, 1, 1)) < chance

    y, x = down - each(-0.9, 0.9), right - each(-0.9, 0.9)
    turn = np.where(coin(0.5), each(0, np.pi), np.where(coin(0.5), 0, np.pi / 2).astype(np.float32))
    stretch = np.exp(each(-1.2, 1.2))
    u, v = (x * np.cos(turn) + y * np.sin(turn)) * stretch, (y * np.cos(turn) - x * np.sin(turn)) / stretch
    direction, bumps = np.arctan2(v, u), np.ones((count, 1, 1), dtype=np.float32)
    for lobes in range(2, 6):
        bumps = bumps + each(-0.18, 0.18) * np.cos(lobes * direction + each(0, 2 * np.pi))
    blob = np.hypot(u, v) / np.maximum(bumps, 0.2)
    reach = np.where(coin(0.3), np.maximum(np.abs(u), np.abs(v)), blob)  # a box, or round with some bumps
    radius = _log_uniform(rng, 0.08, 0.9, (count, 1, 1))
    cover = np.clip((radius - reach) * sharpness + 0.5, 0, 1)  # about a pixel of soft edge
    gradient = 1 + each(-0.5, 0.5) * x + each(-0.5, 0.5) * y
    angle, wave = each(0, np.pi), _log_uniform(rng, 3, 30, (count, 1, 1))
    stripes = 1 + 0.5 * np.sin(wave * (x * np.cos(angle) + y * np.sin(angle)) + each(0, 2 * np.pi))
    gradient = np.where(coin(0.3), gradient * stripes, gradient)
    shade = np.clip(rng.random((count, channels, 1, 1), dtype=np.float32) * gradient[:, None], 0, 1)
    return cover[:, None], shade


def _log_uniform(rng: np.random.Generator, low: float, high: float, size: tuple[int, ...]) -> np.ndarray:
    return np.exp(rng.uniform(np.log(low), np.log(high), size)).astype(np.float32)
