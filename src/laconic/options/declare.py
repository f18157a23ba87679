"""What a declaration of an option holds, and how to read those of a section."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, get_args, get_type_hints

from laconic.errors import ConfigError
from laconic.parts import one_of

_METADATA = "option"


@dataclass(frozen=True, kw_only=True)
class Option:
    """One option. Without a `flag` of its own it is `--` and its name; `flag=""` keeps it off the command line.

    `key` is its name in the file, if that is another. `shown` stands for a default that is `None`.
    `check` takes the value as a keyword, like the validators in `parts`. A run whose options with `identity` differ is
    another run: its folder cannot be resumed.
    """

    help: str
    flag: str | None = None
    key: str | None = None
    shown: str | None = None
    choices: tuple[str, ...] = ()
    check: Callable[..., None] | None = None
    identity: bool = False


def option(default: Any, help: str, **about: Any) -> Any:
    """A field of a section, with its flag, help, default and check."""
    return dataclasses.field(default=default, metadata={_METADATA: Option(help=help, **about)})


@dataclass(frozen=True)
class Declared:
    """An option in its place."""

    section: str
    name: str
    hint: Any
    default: Any
    about: Option

    @property
    def key(self) -> str:
        return self.about.key or self.name

    @property
    def path(self) -> str:
        """'run.rounds'."""
        return f"{self.section}.{self.key}"

    @property
    def flag(self) -> str:
        """'--rounds'; empty where there is none."""
        return "--" + self.name.replace("_", "-") if self.about.flag is None else self.about.flag

    @property
    def types(self) -> tuple[type, ...]:
        """The types that a value may have; that it may be left out is not one of them."""
        return tuple(t for t in (get_args(self.hint) or (self.hint,)) if t is not type(None))

    @property
    def default_text(self) -> str:
        """The default, for people; empty where there is none."""
        if self.about.shown is not None:
            return self.about.shown
        if isinstance(self.default, bool):
            return str(self.default).lower()
        return "" if self.default is None else f"{self.default}"

    def problem(self, value: Any) -> str | None:
        """What is wrong with a value of the right type; None if nothing is."""
        if value is None:
            return None
        try:
            if self.about.choices:
                one_of(self.about.choices, **{self.flag.strip("-").replace("-", "_") or self.name: value})
            if self.about.check is not None:
                self.about.check(**{self.name: value})
        except ConfigError as error:
            return str(error)
        return None


def declared_in(kind: type, section: str = "") -> Iterator[Declared]:
    """The options that a section, or a class that inherits from one, declares."""
    hints = get_type_hints(kind)
    for field in dataclasses.fields(kind):
        if _METADATA in field.metadata:
            yield Declared(section, field.name, hints[field.name], field.default, field.metadata[_METADATA])


def problems_of(settings: Any) -> list[str]:
    """What is wrong with the options of a section or an experiment, each by itself."""
    every: Iterable[Declared] = declared_in(type(settings))
    return [problem for one in every if (problem := one.problem(getattr(settings, one.name)))]
