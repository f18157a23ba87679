"""From the `[data]` section to a population, test records and, if asked for, held-out records."""

from __future__ import annotations

import math
import os
from dataclasses import replace
from pathlib import Path

from laconic.data.ehr.schema import Schema
from laconic.data.federated import FederatedData
from laconic.data.files.folder import FolderPopulation, load_table
from laconic.data.files.user_file import looks_like_a_path, no_such_file
from laconic.data.population import Records
from laconic.data.registry import own_source
from laconic.data.sources import SOURCES, SourceInfo, load_source
from laconic.errors import ConfigError, DataError, nearest, one_line, unknown
from laconic.options.sections import DataSection
from laconic.parts import below_one
from laconic.settings.data.clinical import is_clinical, load_clinical
from laconic.settings.data.declared import (
    DECLARED_OPTIONS,
    PICTURE_OPTIONS,
    TEXT_OPTIONS,
    ClassCount,
    declared_classes,
    declared_names,
    num_classes,
    refuse_options,
    source_options,
)
from laconic.settings.data.divide import (
    default_clients,
    divided,
    public_records,
    refuse_set_aside,
    split,
    without_holdout,
)
from laconic.settings.data.own_records import own_folder, own_table
from laconic.streams import Streams

_OWNER = "owner"
"""What the partition by owners is called in `Partition.to_dict`."""


def load_federation(data: DataSection, *, holdout: float, streams: Streams, max_owners: int = 1) -> FederatedData:
    """The data set, folder or table that `dataset` names, divided among clients.

    Where the data say whose records they are, a patient has some at `max_owners` clients at most.
    """
    below_one(holdout=holdout)
    info = None if data.schema else source_info(data.dataset)
    if data.augment is not None and (info is None or info.load is None):
        raise ConfigError(f"⟨augment⟩ is for the named data sets of pictures, not for ⟨dataset⟩ {data.dataset}")
    if is_clinical(data) or data.dataset == "synthetic":
        refuse_options(data, (*PICTURE_OPTIONS, *TEXT_OPTIONS), "this data set")
    if is_clinical(data) or info is not None or data.dataset == "synthetic":
        refuse_options(data, DECLARED_OPTIONS, "this data set, which says it itself")
    if is_clinical(data):
        return load_clinical(data, holdout=holdout, streams=streams, max_owners=max_owners)
    for flag, value in (
        ("⟨num-records⟩", data.num_records),
        ("⟨min-count⟩", data.min_count),
        ("⟨min-client-records⟩", data.min_client_records),
    ):
        if value is not None:
            raise ConfigError(f"{flag} is for health records; ⟨dataset⟩ {data.dataset} takes none")
    if data.patient_column is not None and (info is not None or data.text_column is not None):
        raise ConfigError(
            "⟨patient-column⟩ is for the user's own tables and arrays, and these records have no such column: leave it"
            " out"
        )
    if data.dataset == "synthetic":
        return _synthetic(data, holdout, streams)
    if info is not None:
        return _named(data, info, holdout, streams)
    path = Path(data.dataset)
    if path.is_dir():
        return _folder(data, path, holdout, streams)
    if path.is_file():
        return _table(data, path, holdout, streams, max_owners)
    raise ConfigError(unknown_dataset(data.dataset))


def unknown_dataset(name: str) -> str:
    """The message for a name that leads nowhere."""
    if looks_like_a_path(name):
        return f"⟨dataset⟩ {no_such_file(name)}"
    near = None if nearest(name, SOURCES) else nearest(name, os.listdir())
    if near is not None:
        return f"⟨dataset⟩ {name}: neither a data set that is known nor a file or folder here; did you mean {near}?"
    others = ", or a folder with one file per client, or a table, or your own function as package.module:function"
    return unknown("dataset", name, SOURCES) + others


def source_info(name: str) -> SourceInfo | None:
    """The named data set, or the user's own `package.module:function`; None for what must be a path."""
    if name in SOURCES:
        return SOURCES[name]
    return own_source(name) if ":" in name and not Path(name).exists() else None


def says_its_clients(data: DataSection) -> bool:
    """Whether the user's own data say how many clients there are: files of a folder, or values of a column."""
    if data.num_clients is not None:
        return False
    if data.schema is not None:
        return data.dataset not in SOURCES and Schema.from_toml(data.schema).client is not None
    return Path(data.dataset).is_dir() or (data.client_column is not None and data.partition in ("iid", "column"))


def _named(data: DataSection, info: SourceInfo, holdout: float, streams: Streams) -> FederatedData:
    source = load_source(info, data.data_dir, **source_options(data))
    by_default = info.natural and data.partition == "iid"
    natural = source.owners is not None and data.num_clients is None and (by_default or data.partition == "column")
    if data.partition == "column" and not natural:
        way = f"{data.dataset} has no columns" if source.owners is None else "leave out ⟨num-clients⟩"
        raise ConfigError(f"⟨partition⟩ column needs a table; {way}")
    found = divided(
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
    return replace(
        found,
        notes=(*source.notes, *found.notes),
        test_clients=source.test_owners if natural else None,
        dealt=not natural,
        facts=(math.prod(found.input_shape), 0) if info.unit_range else None,
        client=info.owner or info.client if natural else info.dealt_client,
        wording=source.wording,
    )


def _table(data: DataSection, path: Path, holdout: float, streams: Streams, max_owners: int) -> FederatedData:
    """One table for all clients. It says itself whose each record is, or the records are dealt out."""
    by_column = data.client_column is not None and data.partition in ("iid", "column") and data.num_clients is None
    if data.partition == "column" and not by_column:
        way = "leave out ⟨num-clients⟩" if data.client_column else "name the column with ⟨client-column⟩"
        raise ConfigError(f"⟨partition⟩ column divides ⟨dataset⟩ {path} by a column: {way}")
    if by_column:
        data = replace(data, partition="column")
    refuse_options(data, ("channels",), "a table")
    found = own_table(data, path, holdout, streams) or _numbers(data, path, holdout, streams, max_owners)
    dealt = "a random shard of records" if data.patient_column is None else "a random shard of people"
    client = f"a value of the column {data.client_column}" if by_column else dealt
    return replace(found, client=client, dealt=not by_column)


def _numbers(data: DataSection, path: Path, holdout: float, streams: Streams, max_owners: int) -> FederatedData:
    records, column, names, patients = load_table(path, data.target, data.client_column, data.patient_column)
    train, test = split(len(records.targets), 0.2, streams, "test", owners=patients)
    classes = num_classes(records.targets, path, declared_classes(data))
    owners = None if column is None else column[train]
    found = divided(
        data,
        records.some(train),
        records.some(test),
        owners,
        classes,
        holdout,
        streams,
        clients=default_clients(len(train)),
        whole_clients=data.partition == "column",
        patients=None if patients is None else patients[train],
        max_owners=max_owners,
    )
    return replace(found, features=names, classes=declared_names(data), inferred=_undeclared(data))


def _folder(data: DataSection, path: Path, holdout: float, streams: Streams) -> FederatedData:
    if data.num_clients is not None or data.partition != "iid":
        raise ConfigError(
            f"⟨dataset⟩ {path} has one file or folder per client: leave out ⟨num-clients⟩ and ⟨partition⟩"
        )
    refuse_set_aside(data)
    own = own_folder(data, path)
    if own is not None:
        population, held = without_holdout(own.population, holdout, streams)
        public = public_records(data, own.population.records(0).inputs, own.num_classes, streams)
        return replace(own, population=population, holdout=held, public=public)
    folder = FolderPopulation(path, target=data.target, patient=data.patient_column)
    folder.validate()
    test, first = folder.test_records(), folder.records(0)
    population, held = without_holdout(folder, holdout, streams)
    classes = _classes_of(folder, test, declared_classes(data))
    shape = tuple(first.inputs.shape[1:])
    public = public_records(data, first.inputs, classes, streams)
    return FederatedData(
        population,
        test,
        held,
        public,
        classes,
        shape,
        client="whoever has one of the files",
        features=folder.features,
        classes=declared_names(data),
        inferred=_undeclared(data),
    )


def _undeclared(data: DataSection) -> tuple[str, ...]:
    return () if data.classes is not None else ("⟨classes⟩",)


def _classes_of(folder: FolderPopulation, test: Records | None, declared: int | None) -> int:
    """The number of the clients' classes; the test file must have no others."""
    count = ClassCount(declared)
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
        raise ConfigError("⟨dataset⟩ synthetic makes its clients itself: leave out ⟨partition⟩")
    clients = SYNTHETIC.default_clients if data.num_clients is None else data.num_clients
    everyone, test = synthetic_population(clients, seed=streams.seed)
    population, held = without_holdout(everyone, holdout, streams)
    shape, classes = tuple(test.inputs.shape[1:]), num_classes(test.targets, "synthetic")
    public = public_records(data, test.inputs, classes, streams)
    return FederatedData(population, test, held, public, classes, shape, client=SYNTHETIC.client)
