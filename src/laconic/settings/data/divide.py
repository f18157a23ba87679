"""Records divided among clients by a partition, after some were set aside; pictures in several variants."""

from __future__ import annotations

import numpy as np
import torch

from laconic.audience import Sentence
from laconic.data.ehr.split import dealt_out, hospitals
from laconic.data.federated import FederatedData
from laconic.data.inputs import Pictures, SparseRows
from laconic.data.partition import ByColumn, Dirichlet, IIDShards, LabelsPerClient, Partition
from laconic.data.population import PooledPopulation, Population, Records, SelectedPopulation, pooled_records
from laconic.errors import ConfigError, DataError, unknown
from laconic.options.sections import DataSection
from laconic.settings.data.public_records import public_records, set_aside
from laconic.streams import Streams

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
