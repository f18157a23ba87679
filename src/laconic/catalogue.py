"""Schemes by name: those of `laconic.schemes`, and the user's own as package.module:function."""

from __future__ import annotations

import dataclasses
from typing import Any

from laconic.entry import SchemeEntry as SchemeEntry
from laconic.errors import ConfigError, option_named, unknown
from laconic.own_code import imported
from laconic.parts import one_of
from laconic.scheme import Scheme
from laconic.schemes import SCHEMES as SCHEMES
from laconic.train.local import check_unit

_DOWNLINKS = ("weights", "half")


def scheme_entry(name: str) -> SchemeEntry:
    """The scheme of that name; one of the user's own is named as package.module:function."""
    if ":" in name:
        return _own_entry(imported("scheme", name), name)
    return SCHEMES.find(name.lower())


def _own_entry(found: Any, name: str) -> SchemeEntry:
    """An entry as it is, or one for a function that returns a scheme; `private(function)` takes that one's options."""
    if isinstance(found, SchemeEntry):
        return found
    if not callable(found):
        raise ConfigError(f"{name} is a {type(found).__name__}, not a function that makes a scheme")
    plain = getattr(found, "plain", None)
    base = None if plain is None else _own_entry(plain, name)
    return SchemeEntry(found, name, "by its codec", "by its codec", base=base)


def strange_option(name: str, key: str, options: dict[str, Any], entry: SchemeEntry) -> str:
    """What is wrong with an option that the scheme does not take."""
    if key == "unit":
        try:
            check_unit(name, options[key])
        except ConfigError as error:
            return str(error)
    return unknown(f"option of {name}", key, entry.options)


def build_scheme(name: str, **options: Any) -> Scheme:
    """The named scheme with its options; an unknown or missing one is an error that names it."""
    entry = scheme_entry(name)
    for key in options:
        if key not in entry.options:
            raise ConfigError(strange_option(name, key, options, entry))
    missing = [key for key in entry.required_with(options) if key not in options]
    if missing:
        raise ConfigError(f"{name} needs {', '.join(map(option_named, missing))}")
    downlink = options.pop("downlink", None)
    scheme = entry.build(**options)
    if not isinstance(scheme, Scheme):
        raise ConfigError(f"{name} gave a {type(scheme).__name__}, not a laconic.Scheme")
    if downlink is None:
        return scheme
    one_of(_DOWNLINKS, downlink=downlink)
    return dataclasses.replace(scheme, downlink=downlink)
