"""Public records: for FL-TOP, for clipping norms and for front ends."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from laconic.data.ehr.split import set_aside as set_owners_aside
from laconic.data.federated import FederatedData
from laconic.data.files.folder import load_file
from laconic.data.inputs import Inputs, dense
from laconic.data.population import Records
from laconic.data.sources import SOURCES, load_source
from laconic.data.synthetic import dead_leaves
from laconic.errors import ConfigError, unknown
from laconic.options.sections import DataSection
from laconic.parts import positive_int
from laconic.settings.data.declared import public_options, public_texts
from laconic.streams import Streams

DEAD_LEAVES = "dead-leaves"


def public_records(data: DataSection, like: Inputs, num_classes: int, streams: Streams) -> Records | None:
    """`public_records` (10, as in the papers) random records of the public data set, if one is named.

    `like` are inputs of the clients, whose shape and kind they must have.
    """
    if data.public_dataset is None:
        return None
    count = 10 if data.public_records is None else data.public_records
    positive_int(public_records=count)
    if data.public_dataset == DEAD_LEAVES:
        rng = streams.numpy("public records")
        images = dead_leaves(count, tuple(like.shape[1:]), rng)
        return Records(images, torch.from_numpy(rng.integers(max(2, num_classes), size=count)))
    train = _public_source(data, tuple(like.shape[1:]))
    theirs, ours = _whole(train.inputs), _whole(like)
    if theirs != ours and (ours or data.public_dataset in SOURCES):
        kinds = ("real numbers", "whole numbers")
        raise ConfigError(
            f"⟨public-dataset⟩ {data.public_dataset} has inputs of {kinds[theirs]}, the clients' are {kinds[ours]}"
        )
    _, chosen = set_aside(np.arange(len(train.targets)), count, streams)
    some = train.some(chosen)
    return some if theirs == ours else Records(dense(some.inputs).to(torch.float32), some.targets)


def public_images(
    data: DataSection, federation: FederatedData, count: int, streams: Streams
) -> tuple[Tensor | None, str]:
    """(public images to look at, what they are): up to `count` of the public data set, or the records set aside."""
    if data.public_dataset is None:
        if federation.public is None:
            return None, ""
        images = dense(federation.public.inputs)
        return images, f"{len(images):,} training records set aside as public"
    rng = streams.numpy("front end images")
    if data.public_dataset == DEAD_LEAVES:
        return dead_leaves(count, federation.input_shape, rng), f"{count:,} images of dead leaves, made from the seed"
    inputs = _public_source(data, federation.input_shape).inputs
    chosen = np.sort(rng.permutation(len(inputs))[:count])
    name = data.public_dataset if data.public_dataset in SOURCES else Path(data.public_dataset).name
    return dense(inputs[chosen]), f"{len(chosen):,} images of the public data set {name}"


def _public_source(data: DataSection, shape: tuple[int, ...]) -> Records:
    """A named data set's training records, or those of a file of the user's."""
    name = data.public_dataset
    assert name is not None
    if name == data.dataset:
        raise ConfigError(
            f"⟨public-dataset⟩ {name} is what the clients hold, so it is not public: name another one, or set some of"
            " its records aside with ⟨public-records⟩"
        )
    if name in SOURCES:
        records = load_source(name, data.data_dir, **public_options(data, SOURCES[name])).train
    elif Path(name).is_file():
        records = load_file(name, data.target) if data.text_column is None else public_texts(data, Path(name))
    else:
        known = [*SOURCES, DEAD_LEAVES]
        raise ConfigError(unknown("public data set", name, known) + ", or a file with records")
    found = tuple(records.inputs.shape[1:])
    if found != shape:
        raise ConfigError(f"⟨public-dataset⟩ {name} has inputs of {found}, the clients' are {shape}")
    return records


def _whole(inputs: Inputs) -> bool:
    """Whether they are whole numbers, such as tokens."""
    return isinstance(inputs, Tensor) and not inputs.is_floating_point()


def refuse_set_aside(data: DataSection) -> None:
    if data.public_records is not None and data.public_dataset is None:
        raise ConfigError(
            f"⟨public-records⟩ without ⟨public-dataset⟩ cannot set records of ⟨dataset⟩ {data.dataset} aside:"
            " it works with the named data sets and with tables"
        )


def set_aside(
    rows: np.ndarray, count: int, streams: Streams, owners: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """(kept rows, public rows), both sorted.

    With `owners`, whole clients leave until `count` records have left: a client that takes part under a promise of
    privacy must not have other records in the open. Those beyond `count` then belong to no client.
    """
    rng = streams.numpy("public records")
    if owners is not None:
        kept, left = set_owners_aside(rows, owners, count, rng)
        return kept, np.sort(rng.permutation(left)[:count])
    if not 0 < count < len(rows):
        raise ConfigError(f"⟨public-records⟩ {count} must leave some of the {len(rows)} records")
    order = rng.permutation(rows)
    return np.sort(order[count:]), np.sort(order[:count])
