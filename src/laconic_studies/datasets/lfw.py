"""Labeled Faces in the Wild, with the attributes that were scored for every picture: who is a man, who is black.

The task is gender; the other attributes are properties that an adversary may try to infer from what a client sends
(Melis et al., Exploiting Unintended Feature Leakage in Collaborative Learning, S&P 2019).
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from laconic.data.files.pictures import read_picture
from laconic.data.files.user_file import named, refused
from laconic.data.inputs import Pictures
from laconic.data.population import Records
from laconic.data.registry import Source, SourceInfo

_ATTRIBUTES = "lfw_attributes.txt"
_FOLDERS = ("lfw_funneled", "lfw-funneled", "lfw")
"""What the folder with the pictures is called once lfw-funneled.tgz is unpacked, and what people call it."""
_SIDE = 250
_ROWS, _COLUMNS = slice(70, 195), slice(78, 172)
_RACES = ("Asian", "White", "Black")
_UNDECIDED = -0.1
TEST_SHARE = 0.3


def load_lfw(info: SourceInfo, data_dir: str | Path | None = None) -> Source:
    """The pictures whose race is decided: (3, 62, 47), the face alone. 30 % of each gender are the test set.

    Gender is the sign of the score 'Male'. Race is the largest of the scores of Asian, White and Black; pictures where
    even that is below −0.1 are left out. Every other score is an attribute by its sign. A person's pictures may lie in
    both parts, as in the work that is cited.
    """
    (file,) = info.needed(data_dir)
    people, files, scores = _read_attributes(file)
    if len(files) < info.num_records:
        raise refused(file, f"has {len(files):,} pictures, not {info.num_records:,}; fetch the file anew")
    races = np.stack([_column(file, scores, race) for race in _RACES], axis=1)
    decided = np.flatnonzero(races.max(axis=1) >= _UNDECIDED)
    if len(decided) == 0:
        raise refused(file, "no picture whose race is decided; fetch the file anew")
    folder = _picture_folder(file.parent)
    _refuse_missing(folder, [files[row] for row in decided])
    images = np.stack([halved(_face(folder / files[row])) for row in decided])
    male = (_column(file, scores, "Male") > 0)[decided].astype(np.int64)
    train, test = stratified(male, TEST_SHARE)
    attributes = _attributes(scores, races)
    _, owners = np.unique(np.array(people)[decided], return_inverse=True)
    return Source(
        name=info.name,
        train=Records(Pictures(torch.from_numpy(images[train])), torch.from_numpy(male[train])),
        test=Records(Pictures(torch.from_numpy(images[test])), torch.from_numpy(male[test])),
        num_classes=2,
        input_shape=info.input_shape,
        description=info.description,
        owners=owners[train],
        test_owners=owners[test],
        attributes={name: values[decided][train] for name, values in attributes.items()},
    )


def halved(picture: np.ndarray) -> np.ndarray:
    """The mean of every 2 × 2 pixels of (channels, height, width); an odd last row or column is left out."""
    channels, height, width = picture.shape
    even = picture[:, : height // 2 * 2, : width // 2 * 2].astype(np.uint16)
    blocks = even.reshape(channels, height // 2, 2, width // 2, 2).sum(axis=(2, 4))
    half: np.ndarray = ((blocks + 2) // 4).astype(np.uint8)
    return half


def stratified(labels: np.ndarray, share: float, seed: int = 20) -> tuple[np.ndarray, np.ndarray]:
    """Rows (train, test), always the same, with this share of each class in the test set."""
    # Not default_rng: only RandomState promises the same numbers, so the same split, in every numpy.
    rng = np.random.RandomState(seed)
    is_test = np.zeros(len(labels), dtype=bool)
    for label in np.unique(labels):
        members = rng.permutation(np.flatnonzero(labels == label))
        is_test[members[: round(share * len(members))]] = True
    return np.flatnonzero(~is_test), np.flatnonzero(is_test)


def _face(file: Path) -> np.ndarray:
    picture = read_picture(file, 3)
    if picture.shape[1:] != (_SIDE, _SIDE):
        size = " × ".join(map(str, picture.shape[1:]))
        raise refused(file, f"has {size} pixels, not {_SIDE} × {_SIDE}; use the funneled pictures")
    return picture[:, _ROWS, _COLUMNS]


def _read_attributes(file: Path) -> tuple[list[str], list[str], dict[str, np.ndarray]]:
    """(person, file, scores by name) for every picture. The last comment line names the columns."""
    names: list[str] = []
    people, files, scores = [], [], []
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError:
        raise refused(file, "is damaged: not UTF-8 text; fetch the file anew") from None
    for number, line in enumerate(lines, 1):
        if line.startswith("#"):
            names = [name.strip() for name in line[1:].split("\t") if name.strip()]
            continue
        if not line.strip():
            continue
        person, *values = line.rstrip("\t\r").split("\t")
        if names[:2] != ["person", "imagenum"] or len(values) != len(names) - 1:
            raise refused(file, f"line {number} does not fit the names of the columns above it; fetch the file anew")
        try:
            picture, numbers = int(values[0]), [float(value) for value in values[1:]]
        except ValueError:
            raise refused(file, f"line {number} has a score that is no number; fetch the file anew") from None
        folder = person.strip().replace(" ", "_")
        people.append(person)
        files.append(f"{folder}/{folder}_{picture:04d}.jpg")
        scores.append(numbers)
    if not files:
        raise refused(file, "holds no scores; fetch the file anew")
    return people, files, dict(zip(names[2:], np.array(scores).T, strict=True))


def _column(file: Path, scores: dict[str, np.ndarray], name: str) -> np.ndarray:
    if name not in scores:
        raise refused(file, f"no column '{name}'; fetch the file anew")
    return scores[name]


def _attributes(scores: dict[str, np.ndarray], races: np.ndarray) -> dict[str, np.ndarray]:
    """All of them as 0 or 1, in small letters: 'black' by the largest score, the others by the sign of their own."""
    found = {name.lower().replace(" ", "_"): (values > 0).astype(np.int8) for name, values in scores.items()}
    found |= {race.lower(): (races.argmax(axis=1) == place).astype(np.int8) for place, race in enumerate(_RACES)}
    if "no_beard" in found:
        found["beard"] = 1 - found["no_beard"]
    if "youth" in found:
        found["young"] = found["youth"]
    return found


def _picture_folder(parent: Path) -> Path:
    found = next((parent / name for name in _FOLDERS if (parent / name).is_dir()), None)
    if found is None:
        raise refused(parent, f"no folder {_FOLDERS[0]} beside {_ATTRIBUTES}; unpack lfw-funneled.tgz there")
    return found


def _refuse_missing(folder: Path, files: list[str]) -> None:
    missing = [name for name in files if not _is_there(folder / name)]
    if missing:
        more = f" and {len(missing) - 1:,} more" if len(missing) > 1 else ""
        raise refused(folder, f"lacks {named(missing[0])}{more}; unpack lfw-funneled.tgz anew")


def _is_there(file: Path) -> bool:
    try:
        return file.is_file()
    except OSError:  # a name that is too long for any file
        return False


LFW = SourceInfo(
    name="lfw",
    description="faces of people in the news, 62x47 in colour; the task is gender, properties are race and others",
    licence="for research; the pictures belong to their owners",
    origin="Labeled Faces in the Wild (funneled), University of Massachusetts; attributes by Columbia University",
    num_train=9_200,
    num_test=3_943,
    size="at most 13,143 pictures, 30 % of them test pictures",
    input_shape=(3, 62, 47),
    classes=("female", "male"),
    client="a random shard of pictures",
    owner="a person in the pictures",
    default_clients=100,
    load=load_lfw,
    files=(_ATTRIBUTES,),
    citation="Huang et al., Labeled Faces in the Wild, 2007; Kumar et al., Attribute and Simile Classifiers, ICCV 2009",
    how_to_get=(
        "unpack lfw-funneled.tgz (vis-www.cs.umass.edu/lfw) and put lfw_attributes.txt"
        " (www.cs.columbia.edu/CAVE/databases/pubfig) beside its folder lfw_funneled"
    ),
)
