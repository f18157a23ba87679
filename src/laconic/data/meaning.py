"""What records mean, as a text and its digest: machines that agree on it have the same features in the same places.

health    the features of a schema that fixes everything, and which label counts as positive
texts     which number a word has, and how many words of a text are kept
pictures  the classes in their order, and channels, height and width

It is public, and no record has to be read to know it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from laconic.data.ehr.schema import Schema
from laconic.data.text import Vocabulary
from laconic.errors import ConfigError
from laconic.parts import one_of

KINDS = ("health", "texts", "pictures")
LONGEST = 1 << 18
"""Characters of a text that is told; of a longer one only the digest is."""
_SHOWN = 5


@dataclass(frozen=True, kw_only=True)
class Meaning:
    """The digest is of kind and text. A text that is not told is empty."""

    kind: str
    digest: str
    text: str = ""

    def __post_init__(self) -> None:
        one_of(KINDS, meaning=self.kind)
        if len(self.digest) != 64 or not set(self.digest) <= set("0123456789abcdef") or len(self.text) > LONGEST:
            raise ConfigError(f"what records mean is told by 64 hex digits and at most {LONGEST:,} characters")
        if self.text and _digest(self.kind, self.text) != self.digest:
            raise ConfigError("what records mean is told by a text and the digest of another one")

    @classmethod
    def of(cls, kind: str, values: dict[str, Any]) -> Meaning:
        text = json.dumps(values, ensure_ascii=False, sort_keys=True, indent=1)
        return cls(kind=kind, digest=_digest(kind, text), text=text if len(text) <= LONGEST else "")

    @classmethod
    def of_schema(cls, schema: Schema) -> Meaning:
        """Health records. Who the patient and the client are, and how records are split, is each machine's business."""
        if not schema.fixed:
            raise ConfigError("a schema that leaves bounds, levels or codes open fixes no meaning: fit it first")
        features = [
            {"kind": entry.kind} | {key: value for key, value in entry.to_dict().items() if key != "min_count"}
            for entry in schema.features
        ]
        filters = [entry.to_dict() for entry in schema.filters]
        label = schema.outcome.to_meaning() | {"missing": sorted(schema.missing)}
        return cls.of("health", label | {"features": features, "filters": filters})

    @classmethod
    def of_texts(cls, num_words: int, listed: Sequence[str], max_length: int | None) -> Meaning:
        """Texts whose words have so many numbers: by a hash, or in the order of a list."""
        words = hashlib.sha256("\n".join(listed).encode()).hexdigest() if listed else "hashed"
        return cls.of("texts", {"num_words": num_words, "words": words, "max_length": max_length})

    @classmethod
    def of_vocabulary(cls, vocabulary: Vocabulary, max_length: int | None) -> Meaning:
        return cls.of_texts(vocabulary.size, vocabulary.listed, max_length)

    @classmethod
    def of_pictures(cls, classes: Sequence[str], shape: Sequence[int]) -> Meaning:
        """Pictures of (channels, height, width)."""
        return cls.of("pictures", {"classes": list(classes), "shape": list(shape)})

    def differences(self, other: Meaning) -> str:
        """Some of the lines that differ, for readers who may see both."""
        if not (self.text and other.text):
            return "the texts are too long to be compared"
        mine, theirs = self.text.splitlines(), other.text.splitlines()
        return "; ".join(
            [
                *_only("here", mine, theirs),
                *_only("there", theirs, mine),
            ]
        )


def _only(where: str, lines: Sequence[str], others: Sequence[str]) -> Iterator[str]:
    known = set(others)
    different = [line.strip() for line in lines if line not in known]
    if different:
        more = f" and {len(different) - _SHOWN} more" if len(different) > _SHOWN else ""
        yield f"only {where}: {' '.join(different[:_SHOWN])}{more}"


def _digest(kind: str, text: str) -> str:
    return hashlib.sha256(f"{kind}\n{text}".encode()).hexdigest()
