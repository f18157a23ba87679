"""From the `[data]` section to a population, test records and, if asked for, held-out records."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from laconic.data.datasets.plugin import own_source
from laconic.data.federated import FederatedData
from laconic.data.files.folder import FolderPopulation, load_table
from laconic.data.files.labels import ClassCount, num_classes
from laconic.data.partition import ByColumn, Dirichlet, IIDShards, LabelsPerClient, Partition
from laconic.data.pictures import Pictures
from laconic.data.population import PooledPopulation, Population, Records, SelectedPopulation, pooled_records
from laconic.data.sources import SOURCES, SourceInfo, load_source
from laconic.data.sparse import SparseRows
from laconic.errors import ConfigError, DataError, one_line, unknown
from laconic.parts import below_one
from laconic.settings.clinical import is_clinical, load_clinical
from laconic.settings.config import DataSection
from laconic.settings.public_records import public_records, refuse_set_aside, set_aside
from laconic.streams import Streams

PARTITIONS = ("iid", "dirichlet", "labels", "column")
_DEFAULT_CLIENTS = 100
_OWNER = "owner"
"""What the partition by owners is called in `Partition.to_dict`."""

_OWN_TEST = "test records were taken from the clients' own records: looking at them is not private"


def load_federation(data: DataSection, *, holdout: float, streams: Streams) -> FederatedData:
    """The data set, folder or table that `dataset` names, divided among clients."""
    below_one(holdout=holdout)
    if is_clinical(data):
        return load_clinical(data, holdout=holdout, streams=streams)
    for flag, value in (
        ("--num-records", data.num_records),
        ("--min-count", data.min_count),
        ("--min-client-records", data.min_client_records),
    ):
        if value is not None:
            raise ConfigError(f"{flag} is for health records; --dataset {data.dataset} takes none")
    info = source_info(data.dataset)
    if data.augment is not None and (info is None or info.load is None):
        raise ConfigError(f"--augment is for the named data sets of pictures, not for --dataset {data.dataset}")
    if data.dataset == "synthetic":
        return _synthetic(data, holdout, streams)
    if info is not None:
        return _named(data, info, holdout, streams)
    path = Path(data.dataset)
    if path.is_dir():
        return _folder(data, path, holdout, streams)
    if path.is_file():
        return _table(data, path, holdout, streams)
    raise ConfigError(
        unknown("dataset", data.dataset, SOURCES)
        + ", or a folder with one file per client, or a table, or your own function as package.module:function"
    )


def source_info(name: str) -> SourceInfo | None:
    """The named data set, or the user's own `package.module:function`; None for what must be a path."""
    if name in SOURCES:
        return SOURCES[name]
    return own_source(name) if ":" in name and not Path(name).exists() else None


def _named(data: DataSection, info: SourceInfo, holdout: float, streams: Streams) -> FederatedData:
    source = load_source(info, data.data_dir)
    natural = source.owners is not None and data.num_clients is None and data.partition in ("iid", "column")
    if data.partition == "column" and not natural:
        way = "leave out --num-clients" if info.natural else f"{data.dataset} has no columns"
        raise ConfigError(f"--partition column needs a table; {way}")
    divided = _divided(
        replace(data, partition="column", client_column=_OWNER) if natural else data,
        source.train,
        source.test,
        source.owners if natural else None,
        source.num_classes,
        holdout,
        streams,
        clients=info.default_clients,
        whole_clients=natural,
    )
    taken = natural and source.test_owners is not None
    return replace(
        divided,
        notes=(*source.notes, *divided.notes, *((_OWN_TEST,) if taken else ())),
        test_clients=source.test_owners if natural else None,
        dealt=not natural,
        client=info.client if natural or not info.natural else "a random shard of records",
    )


def _divided(
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
) -> FederatedData:
    """The training records less those set aside, divided by the partition.

    With `whole_clients` nobody who takes part has records among those set aside.
    """
    public = public_records(data, train.inputs, num_classes, streams)
    owners = column if whole_clients else None
    kept, held = _split(len(train.targets), holdout, streams, owners=owners)
    held_records = _apart(train, held) if len(held) else None
    if public is None and data.public_records is not None:
        kept, aside = set_aside(kept, data.public_records, streams, owners=owners)
        public = _apart(train, aside)
    shape = tuple(train.inputs.shape[1:])
    notes: tuple[str, ...] = ()
    if data.augment is not None and data.augment != 1:
        train, kept, column, notes = _augmented(train, kept, column, data.augment, streams)
    targets = train.targets.numpy()[kept]
    column = None if column is None else column[kept]
    rows = partition_of(data, clients).rows(targets, streams.numpy("partition"), column)
    rows = kept[rows] if isinstance(rows, np.ndarray) else [kept[r] for r in rows]
    return FederatedData(PooledPopulation(train, rows), test, held_records, public, num_classes, shape, notes=notes)


def _apart(train: Records, rows: np.ndarray) -> Records:
    """The records of these numbers; pictures stay bytes."""
    if isinstance(train.inputs, Pictures):
        return Records(train.inputs.originals(rows), train.targets[torch.from_numpy(rows)])
    return train.some(rows)


def _augmented(
    train: Records, kept: np.ndarray, column: np.ndarray | None, variants: int, streams: Streams
) -> tuple[Records, np.ndarray, np.ndarray | None, tuple[str, ...]]:
    """The pool with every picture in so many variants, the variants of the kept ones, whose they are, and a note.

    Pictures were set aside before this, with all that could be made of them.
    """
    if isinstance(train.inputs, SparseRows):
        raise ConfigError(f"--augment {variants} is for pictures, not for sparse records")
    pictures = train.inputs if isinstance(train.inputs, Pictures) else Pictures(train.inputs)
    pool = Records(
        pictures.augmented(variants, streams.numpy("augmentation")), train.targets.repeat_interleave(variants)
    )
    rows = (kept[:, None] * variants + np.arange(variants)).reshape(-1)
    note = f"single pictures: each is there in {variants} shifted and mirrored variants"
    if column is None:
        note += ", which may lie with several clients"
    return pool, rows, None if column is None else np.repeat(column, variants), (note,)


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
            raise ConfigError("--partition column needs the name of the column: --client-column NAME")
        return ByColumn(column=data.client_column)
    raise ConfigError(unknown("partition", data.partition, PARTITIONS))


def _table(data: DataSection, path: Path, holdout: float, streams: Streams) -> FederatedData:
    if not data.client_column:
        raise ConfigError(f"--dataset {path}: one table for all clients needs --client-column NAME")
    records, column = load_table(path, data.target, data.client_column)
    if data.partition == "iid":  # the default; a table says itself whose each record is
        data = replace(data, partition="column")
    train, test = _split(len(records.targets), 0.2, streams, "test")
    classes = num_classes(records.targets, path)
    divided = _divided(data, records.some(train), records.some(test), column[train], classes, holdout, streams)
    by_column = data.partition == "column"
    client = f"a value of the column {data.client_column}" if by_column else "a random shard of records"
    return replace(divided, client=client)


def _folder(data: DataSection, path: Path, holdout: float, streams: Streams) -> FederatedData:
    if data.num_clients is not None or data.partition != "iid":
        raise ConfigError(f"--dataset {path} has one file per client: leave out --num-clients and --partition")
    refuse_set_aside(data)
    folder = FolderPopulation(path, target=data.target)
    folder.validate()
    test, first = folder.test_records(), folder.records(0)
    population, held = _without_holdout(folder, holdout, streams)
    classes = _classes_of(folder, test)
    shape = tuple(first.inputs.shape[1:])
    public = public_records(data, first.inputs, classes, streams)
    return FederatedData(population, test, held, public, classes, shape, client="whoever has one of the files")


def _classes_of(folder: FolderPopulation, test: Records | None) -> int:
    """The number of the clients' classes; the test file must have no others."""
    count = ClassCount()
    for client, file in enumerate(folder.files):
        count.add(folder.records(client).targets, file)
    if test is not None and not test.targets.is_floating_point():
        low, high = int(test.targets.min()), int(test.targets.max())
        if low < 0 or high >= count.number:
            raise DataError(
                f"{one_line(folder.test_file)}: the test records have classes {low} to {high},"
                f" but the clients' are 0 to {count.number - 1}: check the targets"
            )
    return count.number


def _synthetic(data: DataSection, holdout: float, streams: Streams) -> FederatedData:
    from laconic.data.synthetic import SYNTHETIC, synthetic_population

    refuse_set_aside(data)
    if data.partition != "iid":
        raise ConfigError("--dataset synthetic makes its clients itself: leave out --partition")
    clients = SYNTHETIC.default_clients if data.num_clients is None else data.num_clients
    everyone, test = synthetic_population(clients, seed=streams.seed)
    population, held = _without_holdout(everyone, holdout, streams)
    shape, classes = tuple(test.inputs.shape[1:]), num_classes(test.targets, "synthetic")
    public = public_records(data, test.inputs, classes, streams)
    return FederatedData(population, test, held, public, classes, shape, client=SYNTHETIC.client)


def _without_holdout(population: Population, holdout: float, streams: Streams) -> tuple[Population, Records | None]:
    """Set whole clients aside."""
    if holdout == 0:
        return population, None
    kept, held = _split(population.num_clients, holdout, streams)
    return SelectedPopulation(population, kept), pooled_records(SelectedPopulation(population, held))


def _split(
    count: int, fraction: float, streams: Streams, name: str = "holdout", owners: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """(kept, set aside), both sorted: of the records, or of their owners with all that they hold."""
    if owners is not None:
        everyone, whose = np.unique(owners, return_inverse=True)
        stay, leave = _split(len(everyone), fraction, streams, name)
        return np.flatnonzero(np.isin(whose, stay)), np.flatnonzero(np.isin(whose, leave))
    aside = round(count * fraction)
    if fraction > 0 and not 0 < aside < count:
        raise ConfigError(f"--holdout {fraction:g} of {count} leaves nothing on one side")
    order = streams.numpy(name).permutation(count)
    return np.sort(order[aside:]), np.sort(order[:aside])
