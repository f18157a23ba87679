"""From a set of health records to a federation: patients stay together in every split, and are prepared alike."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np

from laconic.audience import Sentence
from laconic.data.ehr.features import fit_preprocessing
from laconic.data.ehr.schema import Schema
from laconic.data.ehr.sources import EHR_SOURCES, EhrRequest, load_table
from laconic.data.ehr.split import dealt_out, hospitals, set_aside, split_patients, virtual_hospitals
from laconic.data.ehr.table import EhrTable
from laconic.data.federated import FederatedData, Subgroup
from laconic.data.population import PooledPopulation, Records
from laconic.errors import ConfigError, DataError
from laconic.options.sections import DataSection
from laconic.settings.data.divide import partition_of
from laconic.streams import Streams

_DEFAULT_HOSPITALS = 100
_NO_PATIENTS = Sentence.public(
    "people with several rows: the schema names no patient, so every row counts as somebody else's, and rows of one"
    " person may be with several clients and in the test set"
)


def is_clinical(data: DataSection) -> bool:
    return data.dataset in EHR_SOURCES or data.schema is not None


def load_clinical(data: DataSection, *, holdout: float, streams: Streams, max_owners: int = 1) -> FederatedData:
    """The named set of health records, or the user's own table with its schema, divided among hospitals.

    A patient has records at `max_owners` of them at most; those at others are left out.
    """
    schema, table = _loaded(data, streams)
    labels, patients = table.labels, table.patients.numbers
    assert labels is not None
    _check_labels(schema, table.name, labels)
    rows = np.arange(len(table))
    rows, test = split_patients(rows, patients, schema.test_fraction, streams.numpy("test"), "test_fraction")
    preprocessing = fit_preprocessing(schema, table, rows)
    rows, held = split_patients(rows, patients, holdout, streams.numpy("holdout"), "⟨holdout⟩")
    aside = np.empty(0, dtype=np.int64)
    if data.public_records is not None:
        rows, aside = set_aside(rows, patients, data.public_records, streams.numpy("public records"))
    clients, notes = _clients(data, schema, table, rows, streams, max_owners)
    if schema.patient is None:
        notes = (*notes, _NO_PATIENTS)
    looked_at = np.isin(np.arange(len(table)), np.concatenate([test, held]))
    everything = Records(preprocessing.transform(table), schema.outcome.targets(labels, cut=~looked_at))
    test_records, holdout_records, public = (everything.some(r) if len(r) else None for r in (test, held, aside))
    by_column = _by_column(data, table)
    whose = table.clients.numbers[test] if table.clients is not None and by_column else None
    return FederatedData(
        population=PooledPopulation(everything, clients, patients=None if schema.patient is None else patients),
        test=test_records,
        holdout=holdout_records,
        public=public,
        num_classes=schema.outcome.num_classes,
        input_shape=(preprocessing.num_features,),
        preprocessing=preprocessing,
        facts=preprocessing.facts,
        notes=notes,
        test_clients=whose,
        dealt=not by_column,
        client="a hospital" if by_column else _dealt_client(schema),
        classes=schema.outcome.names,
        quantity=schema.outcome.quantity,
        subgroups=_subgroups(schema, table, test),
    )


def _subgroups(schema: Schema, table: EhrTable, test: np.ndarray) -> dict[str, Subgroup]:
    """Of the test records: the values of each column, or the quarters of one that is a numeric feature."""
    found = {}
    for column in schema.subgroups if len(test) else ():
        if column in table.numeric:
            found[column] = _quarters(table.numeric[column][test])
        else:
            levels = table.groups[column]
            found[column] = Subgroup(tuple(levels.texts), levels.numbers[test])
    return found


def _quarters(values: np.ndarray) -> Subgroup:
    """Named by the quartiles between them; the smallest and the largest value are single records' and stay unsaid."""
    there = ~np.isnan(values)
    ends = np.unique(np.percentile(values[there], [25, 50, 75])) if there.any() else np.zeros(0)
    inner = [f"{low:.4g} to {high:.4g}" for low, high in itertools.pairwise(ends)]
    names = (f"up to {ends[0]:.4g}", *inner, f"above {ends[-1]:.4g}") if len(ends) else ()
    return Subgroup(names, np.where(there, np.searchsorted(ends, values), -1), ordered=True)


def _check_labels(schema: Schema, name: str, labels: np.ndarray) -> None:
    """Refuse a label that is the same in every row."""
    if (labels != labels[0]).any():
        return
    if not schema.positive:
        raise DataError(f"{name}: column '{schema.label}' has one value only: there is nothing to learn")
    raise DataError(
        f"{name}: column '{schema.label}' {'always' if labels[0] else 'never'} has the positive value"
        f" {' or '.join(schema.positive)}: there is nothing to learn; check label and positive in the schema"
    )


def _dealt_client(schema: Schema) -> str:
    whose = "random rows of the table" if schema.patient is None else "random patients with all their records"
    return f"a virtual hospital: {whose}"


def _loaded(data: DataSection, streams: Streams) -> tuple[Schema, EhrTable]:
    for flag, value in (
        ("⟨client-column⟩", data.client_column),
        ("⟨patient-column⟩", data.patient_column),
        ("⟨public-dataset⟩", data.public_dataset),
    ):
        if value is not None:
            raise ConfigError(f"{flag} does not go with health records: the schema says whose each record is")
    source = EHR_SOURCES.get(data.dataset)
    if data.num_records is not None and data.dataset != "ehr-synthetic":
        raise ConfigError("⟨num-records⟩ is for ⟨dataset⟩ ehr-synthetic, which makes its records")
    if source is None:
        assert data.schema is not None
        schema = _as_asked(Schema.from_toml(data.schema), data)
        return schema, load_table(schema, data.dataset)
    schema = source.schema() if data.schema is None else Schema.from_toml(data.schema)
    schema = _as_asked(schema, data)
    request = EhrRequest(data_dir=data.data_dir, num_records=data.num_records, seed=streams.seed)
    return schema, source.load(schema, request)


def _as_asked(schema: Schema, data: DataSection) -> Schema:
    """The schema with what the user wants otherwise."""
    if data.partition not in ("iid", "column") and schema.patient is not None:
        raise ConfigError(
            f"⟨partition⟩ {data.partition} would separate the records of one patient: health records are divided by the"
            " schema's client column or into ⟨num-clients⟩ virtual hospitals; if everybody has one row, leave patient"
            " out of the schema"
        )
    if data.min_client_records is not None:
        schema = replace(schema, min_client_records=data.min_client_records)
    return schema if data.min_count is None else schema.with_min_count(data.min_count)


def _clients(
    data: DataSection, schema: Schema, table: EhrTable, rows: np.ndarray, streams: Streams, max_owners: int
) -> tuple[list[np.ndarray], tuple[Sentence, ...]]:
    """The rows of every client. A number of clients asks for virtual hospitals, and then the schema is not asked."""
    patients = table.patients.numbers
    if data.partition == "column" and not _by_column(data, table):
        raise ConfigError("⟨partition⟩ column needs client = COLUMN in the schema, and no ⟨num-clients⟩")
    if table.clients is not None and _by_column(data, table):
        found, _, left_out = hospitals(rows, patients, table.clients.numbers, schema.min_client_records, max_owners)
        other = "other records are elsewhere" if max_owners == 1 else f"records are at more than {max_owners} hospitals"
        note = (
            f"training records are left out: their hospital has fewer than {schema.min_client_records}, or the"
            f" patient's {other}"
        )
        return found, (Sentence(f"{left_out} {note}", outsider=note),) if left_out else ()
    assert table.labels is not None
    labels, of_rows = table.labels[rows], patients[rows]
    rare = bool(schema.positive)
    count = data.num_clients or schema.virtual_hospitals or _default_hospitals(of_rows[labels] if rare else of_rows)
    rng = streams.numpy("partition")
    if data.partition != "iid":
        classes = labels if schema.outcome.quantity is not None else labels.astype(np.int64)
        return [rows[part] for part in partition_of(data, count).rows(classes, rng, None)], ()
    if not rare:
        return dealt_out(rows, patients, count, rng), ()
    ill = len(np.unique(of_rows[labels]))
    if data.dataset not in EHR_SOURCES and ill < count:  # the papers' hospitals all have the outcome, a user's need not
        return dealt_out(rows, patients, count, rng), ()
    return virtual_hospitals(rows, patients, table.labels, count, rng), ()


def _default_hospitals(patients: np.ndarray) -> int:
    """Every virtual hospital has one of these (with the outcome, if that is yes or no): a small table makes fewer."""
    count = len(np.unique(patients))
    return _DEFAULT_HOSPITALS if count >= _DEFAULT_HOSPITALS else max(1, count // 2)


def _by_column(data: DataSection, table: EhrTable) -> bool:
    """Whether the table says whose each record is, and the options do not say otherwise."""
    return table.clients is not None and data.num_clients is None and data.partition in ("iid", "column")
