"""The data of a federation: who holds which records, and the records that belong to no client."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from laconic.data.ehr.features import Preprocessing
from laconic.data.ehr.outcome import Quantity
from laconic.data.meaning import Meaning
from laconic.data.population import PooledPopulation, Population, Records, pooled_records
from laconic.data.text import Wording


class Subgroup(NamedTuple):
    """The values of a column, and which of them each test record has (−1: none)."""

    names: tuple[str, ...]
    numbers: np.ndarray
    ordered: bool = False
    """Whether the values have an order, in which they are shown."""


@dataclass(frozen=True)
class FederatedData:
    """A population and the records that belong to no client."""

    population: Population
    test: Records | None
    holdout: Records | None
    public: Records | None
    num_classes: int
    input_shape: tuple[int, ...]
    preprocessing: Preprocessing | None = None
    """How health records were prepared; None for other data."""
    notes: tuple[str, ...] = ()
    """What the privacy statement must say about the data."""
    test_clients: np.ndarray | None = None
    """Whose each test record is, where the data say it."""
    subgroups: Mapping[str, Subgroup] = field(default_factory=dict)
    """Of the test records, by column."""
    dealt: bool = False
    """Whether the records were dealt out, so that the number of clients is a setting, not a fact about the data."""
    client: str = ""
    """What a client is: "a person", "a random shard of pictures"."""
    inferred: tuple[str, ...] = ()
    """What was read from the records themselves and decides the shape of a model: options by which to say it."""
    classes: tuple[str, ...] = ()
    """The names of the classes, where only the data know them."""
    features: tuple[str, ...] = ()
    """The names of a table's columns that are learnt from, in their order."""
    quantity: Quantity | None = None
    """The public bounds of what is predicted, where the targets are scaled by them."""
    meaning: Meaning | None = None
    """What the records mean, where their source says so."""
    facts: tuple[int, int] | None = None
    """(how many columns are quantities within [0, 1], the first ones; how many ones a record has in the others, about),
    where that is publicly known."""
    wording: Wording | None = None
    """Of texts: how many numbers words have, and a few texts."""

    @property
    def unit(self) -> tuple[str, ...]:
        """What the privacy statement says of whom the promise is for."""
        if not self.client:
            return ()
        if self.dealt:
            return (
                f"people: a client is {self.client}, and whoever the records are about may have some with several"
                " clients",
            )
        return (f"several clients together: a client is {self.client}, and the promise is for one of them",)


def pooled(data: FederatedData) -> FederatedData:
    """The same records in the hands of a single client: the centralised reference."""
    if isinstance(data.population, PooledPopulation):
        return replace(data, population=data.population.together())
    everything = pooled_records(data.population)
    one = PooledPopulation(everything, np.arange(len(everything.targets))[None])
    return replace(data, population=one)
