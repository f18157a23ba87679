"""What options say of data beforehand: the classes, the channels of pictures, and how texts become numbers.

Private records must not decide the shape of a released model.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from laconic.data.federated import FederatedData
from laconic.data.files.texts import Texts, read_texts
from laconic.data.population import Records
from laconic.data.registry import SourceInfo
from laconic.data.text import FITTED, Vocabulary, encoded, vocabulary_of
from laconic.errors import ConfigError, option_named, several
from laconic.options.sections import DataSection

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
