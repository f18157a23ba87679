"""From the `[data]` section to a population, test records and, if asked for, held-out records."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from laconic.data.dead_leaves import dead_leaves
from laconic.data.ehr.features import Preprocessing
from laconic.data.ehr.sources import EHR_SOURCES
from laconic.data.files.folder import FolderPopulation, load_file, load_table
from laconic.data.files.labels import ClassCount, num_classes
from laconic.data.partition import ByColumn, Dirichlet, IIDShards, LabelsPerClient, Partition
from laconic.data.population import PooledPopulation, Population, Records, SelectedPopulation, pooled_records
from laconic.data.sources import SOURCES, load_source
from laconic.data.sparse import dense
from laconic.errors import ConfigError, DataError, one_line, unknown
from laconic.options.sections import DataSection
from laconic.parts import below_one, positive_int
from laconic.settings.clinical import is_clinical, load_clinical
from laconic.streams import Streams

PARTITIONS = ("iid", "dirichlet", "labels", "column")
DEAD_LEAVES = "dead-leaves"
_DEFAULT_CLIENTS = {"digits": 100, "mnist": 6000, "fashion-mnist": 6000, "synthetic": 1000}


@dataclass(frozen=True)
class Federation:
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


def load_federation(data: DataSection, *, holdout: float, streams: Streams) -> Federation:
    """The data set, folder or table that `dataset` names, divided among clients."""
    below_one(holdout=holdout)
    if is_clinical(data):
        return _clinical(data, holdout, streams)
    for flag, value in (
        ("--num-records", data.num_records),
        ("--min-count", data.min_count),
        ("--min-client-records", data.min_client_records),
    ):
        if value is not None:
            raise ConfigError(f"{flag} is for health records; --dataset {data.dataset} takes none")
    if data.dataset in SOURCES:
        source = load_source(data.dataset, data.data_dir)
        column = None
        if data.partition == "column":
            raise ConfigError(f"--partition column needs a table; {data.dataset} has no columns")
        return _divided(data, source.train, source.test, column, source.num_classes, holdout, streams)
    if data.dataset == "synthetic":
        return _synthetic(data, holdout, streams)
    path = Path(data.dataset)
    if path.is_dir():
        return _folder(data, path, holdout, streams)
    if path.is_file():
        return _table(data, path, holdout, streams)
    known = [*SOURCES, *EHR_SOURCES, "synthetic"]
    raise ConfigError(unknown("dataset", data.dataset, known) + ", or a folder with one file per client, or a table")


def _clinical(data: DataSection, holdout: float, streams: Streams) -> Federation:
    found = load_clinical(data, holdout=holdout, streams=streams)
    shape = (found.preprocessing.num_features,)
    return Federation(
        found.population,
        found.test,
        found.holdout,
        found.public,
        2,
        shape,
        found.preprocessing,
        found.notes,
        found.test_clients,
    )


def pooled(federation: Federation) -> Federation:
    """The same records in the hands of a single client: the centralised reference."""
    everything = pooled_records(federation.population)
    one = PooledPopulation(everything, np.arange(len(everything.targets))[None])
    return replace(federation, population=one)


def _divided(
    data: DataSection,
    train: Records,
    test: Records | None,
    column: np.ndarray | None,
    num_classes: int,
    holdout: float,
    streams: Streams,
) -> Federation:
    public = _public(data, tuple(train.inputs.shape[1:]), num_classes, streams)
    kept, held = _split(len(train.targets), holdout, streams)
    held_records = train.some(held) if len(held) else None
    if public is None and data.public_records is not None:
        kept, aside = _set_aside(kept, data.public_records, streams)
        public = train.some(aside)
    targets = train.targets.numpy()[kept]
    rows = partition_of(data).rows(targets, streams.numpy("partition"), None if column is None else column[kept])
    rows = kept[rows] if isinstance(rows, np.ndarray) else [kept[r] for r in rows]
    shape = tuple(train.inputs.shape[1:])
    return Federation(PooledPopulation(train, rows), test, held_records, public, num_classes, shape)


def partition_of(data: DataSection) -> Partition:
    """The partition that the section describes."""
    clients = _DEFAULT_CLIENTS.get(data.dataset, 100) if data.num_clients is None else data.num_clients
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


def _table(data: DataSection, path: Path, holdout: float, streams: Streams) -> Federation:
    if not data.client_column:
        raise ConfigError(f"--dataset {path}: one table for all clients needs --client-column NAME")
    records, column = load_table(path, data.target, data.client_column)
    if data.partition == "iid":  # the default; a table says itself whose each record is
        data = DataSection(**{**data.__dict__, "partition": "column"})
    train, test = _split(len(records.targets), 0.2, streams, "test")
    classes = num_classes(records.targets, path)
    return _divided(data, records.some(train), records.some(test), column[train], classes, holdout, streams)


def _folder(data: DataSection, path: Path, holdout: float, streams: Streams) -> Federation:
    if data.num_clients is not None or data.partition != "iid":
        raise ConfigError(f"--dataset {path} has one file per client: leave out --num-clients and --partition")
    _refuse_set_aside(data)
    folder = FolderPopulation(path, target=data.target)
    folder.validate()
    test, first = folder.test_records(), folder.records(0)
    population, held = _without_holdout(folder, holdout, streams)
    classes = _classes_of(folder, test)
    shape = tuple(first.inputs.shape[1:])
    return Federation(population, test, held, _public(data, shape, classes, streams), classes, shape)


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


def _synthetic(data: DataSection, holdout: float, streams: Streams) -> Federation:
    from laconic.data.synthetic import synthetic_population

    _refuse_set_aside(data)
    if data.partition != "iid":
        raise ConfigError("--dataset synthetic makes its clients itself: leave out --partition")
    clients = _DEFAULT_CLIENTS["synthetic"] if data.num_clients is None else data.num_clients
    everyone, test = synthetic_population(clients, seed=streams.seed)
    population, held = _without_holdout(everyone, holdout, streams)
    shape, classes = tuple(test.inputs.shape[1:]), num_classes(test.targets, "synthetic")
    return Federation(population, test, held, _public(data, shape, classes, streams), classes, shape)


def _public(data: DataSection, shape: tuple[int, ...], num_classes: int, streams: Streams) -> Records | None:
    """`public_records` (10, as in the papers) random records of the public data set, if one is named."""
    if data.public_dataset is None:
        return None
    count = 10 if data.public_records is None else data.public_records
    positive_int(public_records=count)
    if data.public_dataset == DEAD_LEAVES:
        rng = streams.numpy("public records")
        images = dead_leaves(count, shape, rng)
        return Records(images, torch.from_numpy(rng.integers(max(2, num_classes), size=count)))
    train = _public_source(data, shape)
    _, chosen = _set_aside(np.arange(len(train.targets)), count, streams)
    return train.some(chosen)


def public_images(data: DataSection, federation: Federation, count: int, streams: Streams) -> tuple[Tensor | None, str]:
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
            f"--public-dataset {name} is what the clients hold, so it is not public: name another one, or set some of"
            " its records aside with --public-records"
        )
    if name in SOURCES:
        records = load_source(name, data.data_dir).train
    elif Path(name).is_file():
        records = load_file(name, data.target)
    else:
        known = [*SOURCES, DEAD_LEAVES]
        raise ConfigError(unknown("public data set", name, known) + ", or a file with records")
    found = tuple(records.inputs.shape[1:])
    if found != shape:
        raise ConfigError(f"--public-dataset {name} has inputs of {found}, the clients' are {shape}")
    return records


def _refuse_set_aside(data: DataSection) -> None:
    if data.public_records is not None and data.public_dataset is None:
        raise ConfigError(
            f"--public-records without --public-dataset cannot set records of --dataset {data.dataset} aside:"
            " it works with the named data sets and with tables"
        )


def _set_aside(rows: np.ndarray, count: int, streams: Streams) -> tuple[np.ndarray, np.ndarray]:
    if not 0 < count < len(rows):
        raise ConfigError(f"--public-records {count} must leave some of the {len(rows)} records")
    order = streams.numpy("public records").permutation(rows)
    return np.sort(order[count:]), np.sort(order[:count])


def _without_holdout(population: Population, holdout: float, streams: Streams) -> tuple[Population, Records | None]:
    """Set whole clients aside."""
    if holdout == 0:
        return population, None
    kept, held = _split(population.num_clients, holdout, streams)
    return SelectedPopulation(population, kept), pooled_records(SelectedPopulation(population, held))


def _split(count: int, fraction: float, streams: Streams, name: str = "holdout") -> tuple[np.ndarray, np.ndarray]:
    """(kept, set aside), both sorted."""
    aside = round(count * fraction)
    if fraction > 0 and not 0 < aside < count:
        raise ConfigError(f"--holdout {fraction:g} of {count} leaves nothing on one side")
    order = streams.numpy(name).permutation(count)
    return np.sort(order[aside:]), np.sort(order[:aside])
