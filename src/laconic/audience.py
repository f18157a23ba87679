"""Who may see what: a field of a record says what it is, its unit and its audience; a sentence, what outsiders read.

A record is a `TypedDict` whose fields are annotated with a `Field`, so the same declaration types its writers and its
readers and says what may leave the server. What leaves is built from the fields alone (`for_outsiders`). A field that
is not declared, and a sentence that is not marked, stay.
"""

from __future__ import annotations

import enum
import functools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, get_args, get_origin, get_type_hints, is_typeddict


class Audience(enum.Enum):
    """Who may see a value."""

    EVERYONE = "everyone"
    NOT_PRIVATE = "everyone if the run promises no privacy, else the server alone"
    SERVER = "the server alone"


EVERYONE, NOT_PRIVATE, SERVER = Audience


@dataclass(frozen=True)
class Field:
    """What a value of a record is, who may see it, and its unit ("" for words and pure numbers)."""

    what: str
    audience: Audience
    unit: str = ""

    def shown(self, *, private: bool) -> bool:
        """Whether outsiders may see it."""
        return self.audience is EVERYONE or (self.audience is NOT_PRIVATE and not private)


class Sentence(str):
    """A sentence for the server's statement, with what an outsider reads in its place: None for nothing at all."""

    outsider: str | None

    def __new__(cls, text: str, *, outsider: str | None) -> Sentence:
        made = super().__new__(cls, text)
        made.outsider = outsider
        return made

    @classmethod
    def public(cls, text: str) -> Sentence:
        """One that everyone may read as it stands. A text that is marked already stays as it is."""
        return text if isinstance(text, Sentence) else cls(text, outsider=text)

    def __getnewargs_ex__(self) -> tuple[tuple[str], dict[str, str | None]]:
        return (str(self),), {"outsider": self.outsider}


@functools.cache
def fields_of(record: type) -> Mapping[str, tuple[Field, Any]]:
    """(field, type) of each name of a record; a TypeError for a name that does not say who may see it."""
    found = {}
    for name, hint in get_type_hints(record, include_extras=True).items():
        about = [one for one in get_args(hint)[1:] if isinstance(one, Field)] if get_origin(hint) is Annotated else []
        if len(about) != 1:
            raise TypeError(f"{record.__name__}.{name} does not say who may see it: annotate it with a Field")
        found[name] = about[0], get_args(hint)[0]
    return found


def check_declared(record: type, value: Mapping[str, Any]) -> None:
    """Refuse a value with fields that its record does not declare, at any depth: nothing says who may see them."""
    fields = fields_of(record)
    unknown = value.keys() - fields.keys()
    if unknown:
        raise TypeError(f"{record.__name__} does not declare {', '.join(sorted(unknown))}: say there who may see it")
    for name, part in value.items():
        inner = _record_in(fields[name][1])
        if inner is not None and part is not None:
            check_declared(inner, part)


def for_outsiders(record: type, value: Mapping[str, Any], *, private: bool = True) -> dict[str, Any]:
    """Of a record's value, what outsiders may see."""
    fields = fields_of(record)
    found: dict[str, Any] = {}
    for name, part in value.items():
        if name not in fields or not fields[name][0].shown(private=private):
            continue
        kind = fields[name][1]
        inner = _record_in(kind)
        if inner is not None and part is not None:
            found[name] = for_outsiders(inner, part, private=private)
        elif kind is Sentence:
            text = getattr(part, "outsider", None)
            found |= {} if text is None else {name: text}
        elif get_args(kind) == (Sentence,):
            found[name] = marked(part)
        else:
            found[name] = part
    return found


def marked(sentences: Iterable[str]) -> list[str]:
    """What outsiders read of them."""
    texts = (getattr(one, "outsider", None) for one in sentences)
    return [text for text in texts if text is not None]


def _record_in(kind: Any) -> type | None:
    """The record that a value of this type is, if it is one; also if it may be None."""
    options = get_args(kind) if get_origin(kind) is not None and type(None) in get_args(kind) else (kind,)
    return next((one for one in options if is_typeddict(one)), None)
