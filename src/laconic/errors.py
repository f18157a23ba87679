"""Errors that a user can act on: one line that names the option and the way out, and an exit code."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TypedDict

Words = Callable[[str], str]
"""How a surface calls an option: from 'clip-norm' to '--clip-norm', say."""
_OPTION = re.compile(r"⟨([a-z][a-z0-9-]*)⟩")


def option_named(name: str) -> str:
    """An option in a message. Who prints the message calls it by the name that it has there.

    Examples:
        >>> from laconic.errors import ConfigError, option_named
        >>> str(ConfigError(f"{option_named('clip_norm')} must be positive"))
        'clip_norm must be positive'
    """
    return f"⟨{name.replace('_', '-')}⟩"


def on_command_line(name: str) -> str:
    return f"--{name}"


def in_python(name: str) -> str:
    return name.replace("-", "_")


_words: Words = in_python


def speak(words: Words) -> Words:
    """From now on, call options in this way in the messages of this process. Returns how they were called before."""
    global _words
    before, _words = _words, words
    return before


@contextmanager
def speaking(words: Words) -> Iterator[None]:
    """Within the block, call options in this way."""
    before = speak(words)
    try:
        yield
    finally:
        speak(before)


def worded(text: str) -> str:
    """A text in which every option has the name that the present surface gives it."""
    return _OPTION.sub(lambda found: _words(found[1]), text) if "⟨" in text else text


class LaconicError(Exception):
    """Something the user can mend. The command line prints the message and exits with `exit_code`.

    A message marks options as `option_named` does. Printed on the command line it names flags, in Python arguments, and
    keys of a file where the file is what the user wrote.

    Examples:
        >>> try:
        ...     laconic.Poisson(sampling_rate=2.0)
        ... except laconic.LaconicError as error:
        ...     print(error)
        sampling_rate must be above 0 and at most 1, not 2.0
    """

    exit_code = 2

    def __str__(self) -> str:
        return worded(super().__str__())


class ConfigError(LaconicError):
    """An option, a name or a combination of options that cannot work."""


class UnknownArgument(ConfigError, TypeError):
    """A keyword argument that a function does not take."""


class PrivacyError(LaconicError):
    """The promised privacy could not be kept, so nothing was released."""

    exit_code = 3


class DataError(LaconicError):
    """A data file is missing, damaged or not what it should be."""

    exit_code = 4


class RunFolderError(LaconicError):
    """A run folder cannot be written, read or resumed."""

    exit_code = 5


class TrainingError(LaconicError):
    """Training went wrong (weights no longer finite, say)."""

    exit_code = 6


class Diverged(TrainingError):
    """The weights are no longer finite. Of a run that is attacked this is a result."""


class WireError(LaconicError):
    """A message is truncated, corrupted, or belongs to another round or scheme."""

    exit_code = 7


class Incomplete(LaconicError):
    """The run ended, but the planned model was not trained: rounds were lost, or none was left for the last ones."""

    exit_code = 9


class RankLost(LaconicError):
    """Another process of the run ended or does not answer. What was finished is saved."""

    exit_code = 10


class RankFailed(LaconicError):
    """What another process of the run met, with its exit code."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class Failure(TypedDict, total=False):
    """Why a run failed, as other processes read it: `failure.json`, and the answers of a sweep's workers."""

    error: str
    exit_code: int
    trace: str


def one_line(text: object, most: int | None = None) -> str:
    """Names and reasons out of a user's file, fit for a message: printable, on one line, and not too long."""
    plain = "".join(c if c.isprintable() else " " for c in str(text))
    return plain if most is None or len(plain) <= most else plain[: most - 1] + "…"


def unknown(what: str, name: object, known: Iterable[str]) -> str:
    """The message for an unknown name: the nearest known one first, then all of them."""
    names = sorted(known)
    near = nearest(str(name), names)
    hint = f"did you mean '{near}'? " if near else ""
    return f"unknown {what} '{name}': {hint}Known: {', '.join(names) or 'none'}"


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that is most like this one, if any is."""
    folded = {n.lower(): n for n in known}
    close = difflib.get_close_matches(name.lower(), folded, n=1, cutoff=0.5)
    return folded[close[0]] if close else None


def several(problems: list[str]) -> str:
    """One message for everything that is wrong: a line each, so that all can be mended at once."""
    if len(problems) == 1:
        return problems[0]
    return f"{len(problems)} things to mend:" + "".join(f"\n  - {problem}" for problem in problems)


def how_to_install(extra: str) -> str:
    """How to add what an extra needs. Never by name: 'laconic' on the package index is another program."""
    return f"pip install '.[{extra}]' in a checkout of laconic, or make wheel there and pip install 'FILE.whl[{extra}]'"
