"""Records set aside as public ones, or divided among clients by a partition; pictures in several variants.

Public records are for FL-TOP, for clipping norms and for front ends.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from laconic.audience import Sentence
from laconic.data.ehr.split import dealt_out, hospitals
from laconic.data.ehr.split import set_aside as set_owners_aside
from laconic.data.federated import FederatedData
from laconic.data.files.folder import load_file
from laconic.data.inputs import Inputs, Pictures, SparseRows, dense
from laconic.data.partition import ByColumn, Dirichlet, IIDShards, LabelsPerClient, Partition
from laconic.data.population import PooledPopulation, Population, Records, SelectedPopulation, pooled_records
from laconic.data.sources import SOURCES, load_source
from laconic.data.synthetic import dead_leaves
from laconic.errors import ConfigError, DataError, unknown
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


PARTITIONS = ("iid", "dirichlet", "labels", "column")
_DEFAULT_CLIENTS = 100


def divided(
    data: DataSection,
    train: Records,
    test: Records | None,
    column: np.ndarray | None,
    num_classes: int,
    holdout: float,
    streams: Streams,
    *,
    clients: int = _DEFAULT_CLIENTS,
    whole_clients: bool = False,
    patients: np.ndarray | None = None,
    max_owners: int = 1,
) -> FederatedData:
    """The training records less those set aside, divided by the partition.

    With `whole_clients` no client that takes part has records among those set aside. Where `patients` says whose the
    records are, these are people, and each has records at `max_owners` clients at most.
    """
    public = public_records(data, train.inputs, num_classes, streams)
    owners = _numbered(data, column) if whole_clients and column is not None else None
    owners = owners if patients is None else patients
    kept, held = split(len(train.targets), holdout, streams, owners=owners)
    held_records = _apart(train, held) if len(held) else None
    if public is None and data.public_records is not None:
        kept, aside = set_aside(kept, data.public_records, streams, owners=owners)
        public = _apart(train, aside)
    shape = tuple(train.inputs.shape[1:])
    notes: tuple[Sentence, ...] = ()
    if whole_clients and len(kept) < len(train.targets):
        who = "clients" if patients is None else "people"
        notes = (Sentence.public(f"held-out and public records are those of {who} who take no part"),)
    if patients is None and data.augment is not None and data.augment != 1:
        train, kept, column, note = _augmented(train, kept, column, data.augment, streams)
        notes = (*notes, note)
    targets = train.targets.numpy()[kept]
    if patients is None:
        column = None if column is None else column[kept]
        rows = partition_of(data, clients).rows(targets, streams.numpy("partition"), column)
        rows = kept[rows] if isinstance(rows, np.ndarray) else [kept[r] for r in rows]
    else:
        rows, said = _of_patients(data, kept, patients, column, clients, max_owners, streams.numpy("partition"))
        notes += said
    population = PooledPopulation(train, rows, patients=patients)
    return FederatedData(population, test, held_records, public, num_classes, shape, notes=notes)


def _of_patients(
    data: DataSection,
    kept: np.ndarray,
    patients: np.ndarray,
    column: np.ndarray | None,
    clients: int,
    max_owners: int,
    rng: np.random.Generator,
) -> tuple[list[np.ndarray], tuple[Sentence, ...]]:
    """The rows of every client, and a note where some are left out: people stay together."""
    if data.partition == "column" and column is not None:
        rows, _, left_out = hospitals(kept, patients, _numbered(data, column), 1, max_owners)
        where = "another client, where the person has more" if max_owners == 1 else f"more than {max_owners} clients"
        note = f"training records are left out: those of people with records at {where}"
        return rows, (Sentence(f"{left_out} {note}", outsider=note),) if left_out else ()
    if data.partition != "iid":
        raise ConfigError(
            f"⟨partition⟩ {data.partition} would separate the records of one person: leave out ⟨patient-column⟩, or"
            " deal people out (⟨partition⟩ iid) or divide by ⟨client-column⟩"
        )
    return dealt_out(kept, patients, clients if data.num_clients is None else data.num_clients, rng), ()


def _numbered(data: DataSection, column: np.ndarray) -> np.ndarray:
    """Whose each record is, as the place of the value among the sorted ones."""
    try:
        return np.unique(column, return_inverse=True)[1]
    except TypeError:
        raise DataError(f"column '{data.client_column}' mixes text and numbers; make it one or the other") from None


def default_clients(count: int) -> int:
    """How many clients a table of so many training records is dealt out to: 100, or fewer with ten records each."""
    return min(_DEFAULT_CLIENTS, max(1, count // 10))


def _apart(train: Records, rows: np.ndarray) -> Records:
    """The records of these numbers; pictures stay bytes."""
    if isinstance(train.inputs, Pictures):
        return Records(train.inputs.originals(rows), train.targets[torch.from_numpy(rows)])
    return train.some(rows)


def _augmented(
    train: Records, kept: np.ndarray, column: np.ndarray | None, variants: int, streams: Streams
) -> tuple[Records, np.ndarray, np.ndarray | None, Sentence]:
    """The pool with every picture in so many variants, the variants of the kept ones, whose they are, and a note.

    Pictures were set aside before this, with all that could be made of them.
    """
    if isinstance(train.inputs, SparseRows):
        raise ConfigError(f"⟨augment⟩ {variants} is for pictures, not for sparse records")
    pictures = train.inputs if isinstance(train.inputs, Pictures) else Pictures(train.inputs)
    pool = Records(
        pictures.augmented(variants, streams.numpy("augmentation")), train.targets.repeat_interleave(variants)
    )
    rows = (kept[:, None] * variants + np.arange(variants)).reshape(-1)
    note = f"single pictures: each is there in {variants} shifted and mirrored variants"
    if column is None:
        note += ", which may lie with several clients"
    return pool, rows, None if column is None else np.repeat(column, variants), Sentence.public(note)


def partition_of(data: DataSection, default_clients: int = _DEFAULT_CLIENTS) -> Partition:
    """The partition that the section describes."""
    clients = default_clients if data.num_clients is None else data.num_clients
    if data.partition == "iid":
        return IIDShards(num_clients=clients)
    if data.partition == "dirichlet":
        return Dirichlet(num_clients=clients, alpha=data.alpha)
    if data.partition == "labels":
        return LabelsPerClient(num_clients=clients, num_labels=data.labels_per_client)
    if data.partition == "column":
        if not data.client_column:
            raise ConfigError("⟨partition⟩ column needs the name of the column: ⟨client-column⟩ NAME")
        return ByColumn(column=data.client_column)
    raise ConfigError(unknown("partition", data.partition, PARTITIONS))


def without_holdout(population: Population, holdout: float, streams: Streams) -> tuple[Population, Records | None]:
    """Set whole clients aside."""
    if holdout == 0:
        return population, None
    kept, held = split(population.num_clients, holdout, streams)
    return SelectedPopulation(population, kept), pooled_records(SelectedPopulation(population, held))


def split(
    count: int, fraction: float, streams: Streams, name: str = "holdout", owners: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """(kept, set aside), both sorted: of the records, or of their owners with all that they hold."""
    if owners is not None:
        everyone, whose = np.unique(owners, return_inverse=True)
        stay, leave = split(len(everyone), fraction, streams, name)
        return np.flatnonzero(np.isin(whose, stay)), np.flatnonzero(np.isin(whose, leave))
    aside = round(count * fraction)
    if fraction > 0 and not 0 < aside < count:
        raise ConfigError(f"⟨holdout⟩ {fraction:g} of {count} leaves nothing on one side")
    order = streams.numpy(name).permutation(count)
    return np.sort(order[aside:]), np.sort(order[:aside])
