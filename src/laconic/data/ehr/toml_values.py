"""The values of a schema: checked when they are read from TOML, and written back."""

from __future__ import annotations

from typing import Any, get_args

from laconic.errors import ConfigError, one_line

LARGEST = 1e38
"""Differences of such numbers still fit into a model's kind, float32."""


def typed(name: str, value: Any, hint: Any) -> Any:
    """The value as declared. Where texts are wanted, numbers and truth values become the text a table has for them."""
    allowed = [t for t in (get_args(hint) if type(None) in get_args(hint) else (hint,)) if t is not type(None)]
    wanted = allowed[0]
    if str in allowed[1:] and isinstance(value, str):
        return value
    if wanted == tuple[str, ...]:
        items = value if isinstance(value, list) else [value]
        if all(isinstance(item, str | int) for item in items):
            return tuple(_text(item) for item in items)
    elif wanted == dict[str, float]:
        if isinstance(value, dict) and all(_number(v) for v in value.values()):
            return {k: float(v) for k, v in value.items()}
    elif wanted is float and _number(value):
        return float(value)
    elif wanted in (int, str, bool) and type(value) is wanted:
        return value
    names = {
        tuple[str, ...]: "a text or a list of texts",
        dict[str, float]: "a table of numbers",
        float: "a finite number",
    }
    names |= {int: "a whole number", str: "text", bool: "true or false"}
    raise ConfigError(f"{name} must be {names[wanted]}, not {short(value)}")


def _number(value: Any) -> bool:
    """TOML also knows nan and inf, and whole numbers of any length: nothing can be scaled by those."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= LARGEST


def short(value: Any) -> str:
    return one_line(repr(value), 60)


def _text(value: str | int) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return _quoted(value)
    if isinstance(value, tuple):
        return "[" + ", ".join(toml(item) for item in value) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_quoted(k)} = {toml(v)}" for k, v in value.items()) + "}"
    return repr(value)


def _quoted(text: str) -> str:
    """A TOML basic string: control characters are written by number."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + "".join(c if c.isprintable() else f"\\U{ord(c):08x}" for c in escaped) + '"'
