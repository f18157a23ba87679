"""Figures in Prometheus' text format, version 0.0.4: a family has a name, a kind, a help and samples."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


@dataclass(frozen=True)
class Family:
    """Figures of one name. `kind` is gauge or counter; the name of a counter ends in `_total`."""

    name: str
    kind: str
    help: str
    samples: list[tuple[Mapping[str, str], float]] = field(default_factory=list)

    def add(self, value: float, **labels: str) -> Family:
        self.samples.append((labels, float(value)))
        return self


def gauge(name: str, help: str, value: float | None = None) -> Family:
    """A figure that goes up and down."""
    return _with(Family(name, "gauge", help), value)


def counter(name: str, help: str, value: float | None = None) -> Family:
    """A figure that only grows."""
    return _with(Family(name, "counter", help), value)


def exposition(families: Iterable[Family]) -> str:
    """The text of a scrape. Families without a sample are left out."""
    lines = []
    for family in families:
        if not family.samples:
            continue
        lines += [f"# HELP {family.name} {_escaped(family.help)}", f"# TYPE {family.name} {family.kind}"]
        lines += [f"{family.name}{_labels(labels)} {_number(value)}" for labels, value in family.samples]
    return "".join(f"{line}\n" for line in lines)


def _with(family: Family, value: float | None) -> Family:
    return family if value is None else family.add(value)


def _labels(labels: Mapping[str, str]) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{_escaped(value, quote=True)}"' for name, value in labels.items()) + "}"


def _escaped(text: str, *, quote: bool = False) -> str:
    plain = text.replace("\\", r"\\").replace("\n", r"\n")
    return plain.replace('"', r"\"") if quote else plain


def _number(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return str(int(value)) if value.is_integer() and abs(value) < 1 << 53 else repr(value)
