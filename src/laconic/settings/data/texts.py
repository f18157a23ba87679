"""Texts as records by the section's vocabulary: the clients' own, and public ones by the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from laconic.data.files.texts import Texts, read_texts
from laconic.data.population import Records
from laconic.data.registry import SourceInfo
from laconic.data.text import FITTED, Vocabulary, encoded, vocabulary_of
from laconic.errors import ConfigError, option_named
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
