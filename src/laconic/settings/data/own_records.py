"""The user's own pictures, and tables with a column of texts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from laconic.data.federated import FederatedData
from laconic.data.files.pictures import holds_pictures, image_size, read_picture_folder
from laconic.data.files.texts import Texts, read_text_folder, read_text_table
from laconic.data.files.user_file import refused
from laconic.data.population import PooledPopulation
from laconic.data.text import Vocabulary, vocabulary_of, wording
from laconic.errors import ConfigError
from laconic.options.sections import DataSection
from laconic.settings.data.declared import (
    PICTURE_OPTIONS,
    TEXT_OPTIONS,
    ClassCount,
    declared_classes,
    declared_names,
    num_classes,
    refuse_options,
    text_records,
)
from laconic.settings.data.divide import default_clients, divided, split
from laconic.streams import Streams

_TEST_SHARE = 0.2


def own_folder(data: DataSection, path: Path) -> FederatedData | None:
    """Pictures or texts in a folder, each client's apart; None if it holds neither."""
    if holds_pictures(path):
        refuse_options(data, TEXT_OPTIONS, "pictures")
        return _pictures(data, path)
    refuse_options(data, (*PICTURE_OPTIONS, "channels"), "a folder of tables or arrays")
    return None if data.text_column is None else _texts(data, path, data.text_column)


def own_table(data: DataSection, path: Path, holdout: float, streams: Streams) -> FederatedData | None:
    """One table of texts for all clients; None if it is a table of numbers."""
    refuse_options(data, PICTURE_OPTIONS, "a table")
    if data.text_column is None:
        refuse_options(data, TEXT_OPTIONS, "a table without ⟨text-column⟩")
        return None
    texts, column = read_text_table(
        path, text_column=data.text_column, target=data.target, client_column=data.client_column
    )
    train, test = split(len(texts.texts), _TEST_SHARE, streams, "test")
    vocabulary = vocabulary_of(data.vocabulary, (texts.texts[row] for row in train))
    records = text_records(data, texts, vocabulary)
    found = divided(
        data,
        records.some(train),
        records.some(test),
        None if column is None else column[train],
        num_classes(records.targets, path, declared_classes(data)),
        holdout,
        streams,
        clients=default_clients(len(train)),
        whole_clients=data.partition == "column",
    )
    return _worded(data, found, texts, vocabulary)


def _pictures(data: DataSection, path: Path) -> FederatedData:
    names = declared_names(data)
    if data.classes is not None and not names:
        raise ConfigError(f"⟨classes⟩ {data.classes}: of pictures in folders the names are needed, such as cat,dog")
    if data.channels not in (None, 1, 3):
        raise ConfigError(f"⟨channels⟩ {data.channels}: pictures are grey (1) or have colours (3)")
    folder = read_picture_folder(path, image_size(data.image_size), classes=names, channels=data.channels)
    said = {"⟨classes⟩ cat,dog": names, "⟨channels⟩": data.channels}
    return FederatedData(
        folder.population,
        folder.test,
        None,
        None,
        len(folder.classes),
        folder.input_shape,
        client="whoever has one of the folders",
        classes=folder.classes,
        inferred=tuple(flag for flag, value in said.items() if not value),
    )


def _texts(data: DataSection, path: Path, text_column: str) -> FederatedData:
    folder = read_text_folder(path, text_column=text_column, target=data.target)
    pool = folder.pool()
    vocabulary = vocabulary_of(data.vocabulary, pool.texts)
    ends = np.cumsum([len(client.texts) for client in folder.clients])
    population = PooledPopulation(text_records(data, pool, vocabulary), np.split(np.arange(ends[-1]), ends[:-1]))
    classes = ClassCount(declared_classes(data))
    for client, file in zip(folder.clients, folder.files, strict=True):
        classes.add(client.targets, file)
    if folder.test is not None and folder.test_file is not None and not folder.test.targets.is_floating_point():
        most = int(folder.test.targets.max())
        if most >= classes.number or int(folder.test.targets.min()) < 0:
            raise refused(
                folder.test_file,
                f"has class {most}, but the clients' are 0 to {classes.number - 1}: check the targets",
            )
    found = FederatedData(
        population,
        None if folder.test is None else text_records(data, folder.test, vocabulary),
        None,
        None,
        classes.number,
        tuple(population.records(0).inputs.shape[1:]),
        client="whoever has one of the files",
    )
    return _worded(data, found, pool, vocabulary)


def _worded(data: DataSection, found: FederatedData, texts: Texts, vocabulary: Vocabulary) -> FederatedData:
    return replace(
        found,
        classes=declared_names(data),
        inferred=() if data.classes is not None else ("⟨classes⟩",),
        notes=(*found.notes, *vocabulary.revealed),
        wording=wording(texts.texts, texts.targets, vocabulary),
    )
