"""What options say of data beforehand: how many classes, the channels of pictures, how texts become numbers.

Private records must not decide the shape of a released model. Where nothing is declared, labels are counted: a model
gets one output for each class, so one wrong label must not make a million of them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from laconic.data.federated import FederatedData
from laconic.data.files.texts import Texts, read_texts
from laconic.data.files.user_file import refused
from laconic.data.population import Records
from laconic.data.registry import SourceInfo
from laconic.data.text import FITTED, Vocabulary, encoded, vocabulary_of
from laconic.errors import ConfigError, option_named, several
from laconic.options.sections import DataSection

MANY, TIMES = 100, 10
"""More classes than MANY, and more than TIMES those that occur: then the labels are numbers of another kind."""


class ClassCount:
    """Looks at one client's targets after another's; keeps the distinct classes and whose the largest is.

    With a `declared` number of classes (1 for quantities) the targets decide nothing: they are only checked.
    """

    def __init__(self, declared: int | None = None) -> None:
        self._declared = declared
        self._seen: set[int] = set()
        self._largest = -1
        self._whose: Path | str = ""
        self._real = False

    def add(self, targets: Tensor, whose: Path | str) -> None:
        """`whose` names the file in messages."""
        if self._declared is not None and targets.is_floating_point() != (self._declared == 1):
            said = "quantities (⟨classes⟩ 1)" if self._declared == 1 else f"{self._declared} classes (⟨classes⟩)"
            found = "numbers such as 0.5" if targets.is_floating_point() else "whole numbers"
            raise refused(whose, f"its targets are {found}, and {said} were declared; write 1.0 for 1, or change one")
        if targets.is_floating_point():
            self._real = True
            return
        found = np.unique(targets.numpy()).tolist()
        if found[0] < 0:
            raise refused(whose, "class targets must be numbered from 0, but there is a negative one; renumber them")
        if found[-1] > self._largest:
            self._largest, self._whose = found[-1], whose
        self._seen.update(found)

    @property
    def number(self) -> int:
        """The number of classes, or 1 for real-valued targets."""
        if self._real:
            return 1
        classes = self._largest + 1
        if self._declared is not None:
            if classes > self._declared:
                raise refused(
                    self._whose,
                    f"has the class target {self._largest}, but ⟨classes⟩ declares 0 to {self._declared - 1}: renumber"
                    " the classes, or declare all of them",
                )
            return self._declared
        if classes > max(MANY, TIMES * len(self._seen)):
            raise refused(
                self._whose,
                f"its largest class target would make {classes:,} classes, but only {len(self._seen):,} occur in all;"
                " renumber the classes from 0 without gaps (np.unique with return_inverse), or write 1.0 for 1 if they"
                " are quantities",
            )
        return max(2, classes)


def num_classes(targets: Tensor, whose: Path | str, declared: int | None = None) -> int:
    """The number of classes among the targets of one source."""
    count = ClassCount(declared)
    count.add(targets, whose)
    return count.number


DECLARED_OPTIONS = ("classes", "channels")
PICTURE_OPTIONS, TEXT_OPTIONS = ("image_size",), ("text_column", "vocabulary", "max_length")


def text_records(data: DataSection, texts: Texts, vocabulary: Vocabulary) -> Records:
    return Records(encoded(texts.texts, vocabulary, data.max_length), texts.targets)


def source_options(data: DataSection) -> dict[str, Any]:
    """What the user says of pictures and texts, for a named data set, which refuses what it does not take."""
    return {name: getattr(data, name) for name in (*PICTURE_OPTIONS, *TEXT_OPTIONS)}


def refuse_options(data: DataSection, names: tuple[str, ...], what: str) -> None:
    """An option that would do nothing is a misunderstanding."""
    for name in names:
        if getattr(data, name) is not None:
            raise ConfigError(f"{option_named(name)} means nothing to {what} ({data.dataset}): leave it out")


def public_texts(data: DataSection, path: Path) -> Records:
    """The texts of a file of public records."""
    assert data.text_column is not None
    _refuse_fitted(data, path)
    texts = read_texts(path, text_column=data.text_column, target=data.target)
    return text_records(data, texts, vocabulary_of(data.vocabulary, ()))


def public_options(data: DataSection, info: SourceInfo) -> dict[str, Any]:
    """What a public data set takes of the section."""
    taken = {name: value for name, value in source_options(data).items() if name in info.options}
    if "vocabulary" in taken:
        _refuse_fitted(data, info.name)
    return taken


def _refuse_fitted(data: DataSection, public: object) -> None:
    """Either set of texts would get a vocabulary of its own, and a word two numbers."""
    if (data.vocabulary or "").startswith(FITTED):
        raise ConfigError(
            f"⟨public-dataset⟩ {public} has other words than the clients' texts, so ⟨vocabulary⟩ {data.vocabulary} does"
            " not fit both: use hash:N or a file"
        )


_SAID = {
    "⟨classes⟩": "⟨classes⟩ 3 (how many there are), ⟨classes⟩ cat,dog (their names) or ⟨classes⟩ 1 (quantities)",
    "⟨classes⟩ cat,dog": "⟨classes⟩ cat,dog (the names of all folders of classes)",
    "⟨channels⟩": "⟨channels⟩ 1 (grey) or ⟨channels⟩ 3 (colours)",
}


def declared_names(data: DataSection) -> tuple[str, ...]:
    """The classes by name, in their order; none if only their number is said, or nothing."""
    text = (data.classes or "").strip()
    if not text or text.isdecimal():
        return ()
    names = tuple(name.strip() for name in text.split(","))
    if len(names) < 2 or len(set(names)) < len(names) or not all(names):
        raise ConfigError(
            f"⟨classes⟩ {data.classes}: give a number such as 3, or the names of all classes, each once: cat,dog"
        )
    return names


def declared_classes(data: DataSection) -> int | None:
    """How many classes are declared, 1 for quantities; None if nothing is said."""
    names = declared_names(data)
    if names or data.classes is None:
        return len(names) or None
    if int(data.classes) < 1:
        raise ConfigError(f"⟨classes⟩ {data.classes}: there are two classes or more, or 1 for quantities")
    return int(data.classes)


def check_declared(federation: FederatedData) -> None:
    """Refuse to let private records decide the shape of a model that is released: one record would show in it."""
    if federation.inferred:
        raise ConfigError(
            several(
                [
                    "in a private run no record may decide the shape of the released model, so say it beforehand: give"
                    f" {_SAID[flag]}"
                    for flag in federation.inferred
                ]
            )
        )
