"""Clients with few records: what they send from where a federation stands, and what is seen of it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from laconic.data.population import PooledPopulation, Records, pooled_records
from laconic.errors import ConfigError, DataError
from laconic_studies.inference.standing import Standing

VIEWS = {
    "single": "the code of the victim; under noise with its own share of it",
    "others": "the sum of the cohort's codes, with the whole noise",
}


@dataclass(frozen=True, kw_only=True)
class Victims:
    """Some clients with `batch` records each, drawn at random from everybody's; and others like them for their cohorts.

    `seen` has what is to be seen of each of them, (victims, m) by view.
    """

    inputs: Tensor
    targets: Tensor
    seen: dict[str, Tensor]

    @classmethod
    def of(cls, standing: Standing, count: int, batch: int, views: tuple[str, ...]) -> Victims:
        """So many of them. Whoever else is in a cohort holds as many records."""
        streams, size = standing.clients.streams, standing.size
        every = pictures_of(standing)
        rng = streams.numpy("reconstruction", "victims", batch)
        cohorts = 1 if "others" not in views else size
        wanted = count * cohorts * batch
        if count * batch > len(every.targets):
            raise ConfigError(f"{count} victims of {batch} records are more than all: lower --victims or --batches")
        order = np.concatenate([rng.permutation(len(every.targets)) for _ in range(-(-wanted // len(every.targets)))])
        rows = order[:wanted].reshape(cohorts * count, batch)  # the victims are first, and have no record in common
        codes = standing.bounded(PooledPopulation(every, rows), np.arange(len(rows)))
        messages = standing.messages(codes, streams.stream("reconstruction", "noise", batch), size)
        moment, held = standing.moment(size), torch.full((size,), batch)
        seen = {}
        if "single" in views:
            seen["single"] = moment.single(messages[:count])
        if "others" in views:
            by_cohort = messages.reshape(cohorts, count, -1).transpose(0, 1)
            seen["others"] = torch.stack([moment.others(cohort, held) for cohort in by_cohort])
        chosen = every.some(rows[:count].reshape(-1))
        assert isinstance(chosen.inputs, Tensor)
        device = codes.device
        inputs = chosen.inputs.reshape(count, batch, *chosen.inputs.shape[1:]).to(device)
        return cls(inputs=inputs, targets=chosen.targets.reshape(count, batch).to(device), seen=seen)


def pictures_of(standing: Standing) -> Records:
    """Everybody's records, refused if they are not classified inputs with values from 0 to 1."""
    if standing.experiment.front_end is not None:
        raise ConfigError("reconstruction searches inputs of the model, not of a front end: leave --front-end out")
    every = pooled_records(standing.experiment.population)
    if not isinstance(every.inputs, Tensor) or not every.inputs.is_floating_point():
        raise DataError("reconstruction needs dense real inputs, such as pictures: choose another --dataset")
    if every.targets.is_floating_point() or every.targets.ndim != 1:
        raise DataError("reconstruction needs one class for each record: choose another --dataset")
    if float(every.inputs.min()) < 0 or float(every.inputs.max()) > 1:
        raise DataError("reconstruction searches inputs from 0 to 1, and these are not: scale the --dataset")
    return every
