"""Clients that do not exist until asked for: Gaussian classes, drawn anew and alike from (seed, client)."""

from __future__ import annotations

import numpy as np
import torch

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
