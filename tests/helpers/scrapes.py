"""A strict reader of Prometheus' text format 0.0.4, to check what laconic writes."""

from __future__ import annotations

import re

_NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
_LABEL = r'[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\\\|\\"|\\n)*"'
_SAMPLE = re.compile(rf"({_NAME})(?:\{{({_LABEL}(?:,{_LABEL})*)\}})? (\S+)")
_NUMBER = re.compile(r"[+-]?Inf|NaN|[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?")


def read_scrape(text: str) -> dict[tuple[str, str], float]:
    """(name, labels as written) → value. Whatever the format does not allow is an error."""
    assert text.endswith("\n")
    found: dict[tuple[str, str], float] = {}
    described: dict[str, str] = {}
    helped = current = ""
    for line in text[:-1].split("\n"):
        if line.startswith("# HELP "):
            name, _, words = line[7:].partition(" ")
            assert re.fullmatch(_NAME, name), line
            assert words, line
            assert name not in described, f"{name} is described twice"
            helped = name
        elif line.startswith("# TYPE "):
            name, _, kind = line[7:].partition(" ")
            assert name == helped, f"{name} has no help in front of it"
            assert kind in ("gauge", "counter"), line
            assert (kind == "counter") == name.endswith("_total"), line
            described[name] = kind
            current = name
        else:
            match = _SAMPLE.fullmatch(line)
            assert match, f"no sample: {line!r}"
            name, labels, value = match.groups()
            assert name == current, f"{name} is not below its type"
            assert _NUMBER.fullmatch(value), line
            assert (name, labels or "") not in found, f"{line} comes twice"
            found[name, labels or ""] = float(value)
            assert described[name] == "gauge" or found[name, labels or ""] >= 0
    return found
