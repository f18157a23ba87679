"""The schemes by name: where they come from, what travels, which options they take."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from laconic import schemes
from laconic.errors import ConfigError, unknown
from laconic.scheme import Scheme
from laconic.train.local import LocalSGD


@dataclass(frozen=True)
class SchemeEntry:
    """One row of `laconic schemes`."""

    build: Callable[..., Scheme]
    origin: str
    up: str
    down: str
    linear: bool
    private: bool

    @property
    def summary(self) -> str:
        return (inspect.getdoc(self.build) or "").splitlines()[0]

    @property
    def options(self) -> dict[str, Any]:
        """Option name → default (`inspect.Parameter.empty` if it has none)."""
        own = {
            p.name: p.default
            for p in inspect.signature(self.build).parameters.values()
            if p.kind is inspect.Parameter.KEYWORD_ONLY
        }
        training = {
            f.name: inspect.Parameter.empty if f.default is dataclasses.MISSING else f.default
            for f in dataclasses.fields(LocalSGD)
        }
        return own | training

    @property
    def required(self) -> list[str]:
        return [name for name, default in self.options.items() if default is inspect.Parameter.empty]


SCHEMES: dict[str, SchemeEntry] = {
    "fl-std": SchemeEntry(schemes.fl_std, "thesis Alg. 1", "4·n bytes", "4·n bytes", True, False),
    "fl-std-dp": SchemeEntry(schemes.fl_std_dp, "thesis Alg. 10", "4·n bytes", "4·n bytes", True, True),
    "centralized": SchemeEntry(schemes.centralized, "reference", "nothing", "nothing", True, False),
}


def scheme_entry(name: str) -> SchemeEntry:
    if name.lower() not in SCHEMES:
        raise ConfigError(unknown("scheme", name, SCHEMES))
    return SCHEMES[name.lower()]


def build_scheme(name: str, **options: Any) -> Scheme:
    """The named scheme with its options; an unknown or missing one is an error that names it."""
    entry = scheme_entry(name)
    for key in options:
        if key not in entry.options:
            raise ConfigError(unknown(f"option of {name}", key, entry.options))
    missing = [key for key in entry.required if key not in options]
    if missing:
        flags = ", ".join("--" + key.replace("_", "-") for key in missing)
        raise ConfigError(f"{name} needs {flags}")
    return entry.build(**options)
