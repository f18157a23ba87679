"""Records to predict for, read as those of the run were: tables, arrays, pictures and texts. They need no target."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from laconic.data.ehr.features import Preprocessing
from laconic.data.ehr.sources import load_new_patients
from laconic.data.files.frames import features_of, read_frame
from laconic.data.files.npz import read_inputs
from laconic.data.files.pictures import every_picture, is_picture, look_at, read_picture
from laconic.data.files.texts import read_plain_texts
from laconic.data.files.user_file import no_such_file, refused, suffix
from laconic.data.inputs import Inputs, Pictures
from laconic.data.text import FITTED, Vocabulary, encoded, read_words, vocabulary_of
from laconic.errors import DataError, RunFolderError
from laconic.options.sections import DataSection
from laconic.settings.data.record_kind import RecordKind

_WORDS = "vocabulary.txt"


@dataclass(frozen=True)
class NewRecords:
    """Inputs, and what each record is called: a patient, a row of a table, a picture."""

    heading: str
    names: list[str]
    inputs: Inputs


def read_patients(preprocessing: Preprocessing, path: Path) -> NewRecords:
    """Rows of a table, prepared as the schema's training records were."""
    rows = load_new_patients(preprocessing.schema, path)
    names = [rows.patients.texts[number] for number in rows.patients.numbers]
    return NewRecords("patient" if preprocessing.schema.patient else "row", names, preprocessing.transform(rows))


def read_new_records(kind: RecordKind, data: DataSection, run: Path | None, path: Path) -> NewRecords:
    """What a file or folder holds, as the records of the run in this folder are.

    Without a folder words have the numbers that `data` says.
    """
    if not path.exists():
        raise DataError(no_such_file(str(path)))
    if path.is_dir() or is_picture(path):
        return _pictures(kind, data, path)
    ending = suffix(path)
    if ending is None:
        raise refused(path, f"cannot be read; this run takes {_taken(kind)}")
    if ending == ".npz":
        return _numbered("row", _fitting(kind, path, read_inputs(path)))
    if kind.text_column:
        return _texts(kind, data, run, path)
    if len(kind.shape) != 1:
        raise refused(path, f"is a table, but the records have shape {kind.shape}; this run takes {_taken(kind)}")
    values = features_of(path, read_frame(path), kind.features, kind.shape[0])
    return _numbered("row", _fitting(kind, path, torch.from_numpy(values.astype(np.float32))))


def _taken(kind: RecordKind) -> str:
    """Which files have records of this kind."""
    files = [f"an .npz with the array inputs of shape (count, {', '.join(map(str, kind.shape))})"]
    if kind.text_column:
        files = [f"a table with the column {kind.text_column}"]
    elif kind.pictures:
        files = ["a picture (.png, .jpg)", "a folder of pictures", *files]
    elif len(kind.shape) == 1:
        files = ["a table (.csv, .csv.gz, .parquet)", *files]
    return ", or ".join(files)


def _numbered(heading: str, inputs: Inputs) -> NewRecords:
    return NewRecords(heading, [str(number) for number in range(1, len(inputs) + 1)], inputs)


def _fitting(kind: RecordKind, path: Path, inputs: Tensor) -> Tensor:
    """The inputs, if they have the shape and kind of the run's."""
    found = tuple(inputs.shape[1:])
    if found != kind.shape:
        raise refused(path, f"records of shape {found}, but those of the run have {kind.shape}")
    if kind.whole and inputs.is_floating_point():
        if not bool((inputs == inputs.round()).all()):
            raise refused(path, "fractions, but the run's inputs are whole numbers")
        return inputs.to(torch.int64)
    return inputs if kind.whole else inputs.to(torch.float32)


def _texts(kind: RecordKind, data: DataSection, run: Path | None, path: Path) -> NewRecords:
    texts = read_plain_texts(path, text_column=kind.text_column)
    return _numbered("row", encoded(texts, _vocabulary(data.vocabulary, run), data.max_length))


def _vocabulary(wanted: str | None, run: Path | None) -> Vocabulary:
    if run is None:
        return vocabulary_of(wanted, ())
    listed = run / _WORDS
    if not listed.exists() and (wanted or "").startswith(FITTED):
        raise RunFolderError(f"{listed} is not there, so nobody knows which number a word has: restore it")
    return read_words(listed) if listed.exists() else vocabulary_of(wanted, ())


def _pictures(kind: RecordKind, data: DataSection, path: Path) -> NewRecords:
    if not kind.pictures:
        what = "is a folder" if path.is_dir() else "is a picture"
        raise refused(path, f"{what}; this run takes {_taken(kind)}")
    files = every_picture(path) if path.is_dir() else [path]
    channels, height, width = kind.shape
    resized = data.image_size is not None
    for file in files:
        look = look_at(file)
        if not resized and (look.height, look.width) != (height, width):
            theirs = f"{look.height} × {look.width}"
            raise refused(file, f"has {theirs} pixels, those of the run {height} × {width}; resize it")
    pixels = np.stack([read_picture(file, channels, (height, width)) for file in files])
    names = [str(file.relative_to(path)) if path.is_dir() else file.name for file in files]
    return NewRecords("picture", names, Pictures(torch.from_numpy(pixels)).dense())
