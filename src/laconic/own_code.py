"""Code that is not ours: the user's own, named as `package.module:name`, and that of other packages, by entry points.

A configuration, a grid or a run folder is data. It may come from another person, so no code runs because such a file
names it: on the command line only names that were typed in the same command are imported, or all with --allow-code.
In Python the caller names the code, and only `laconic.load` reads a folder that others may have written.

Other installed packages add commands, data sets and front ends by entry points. Only names of installed packages are
looked up here. No module is imported because a file or a message names it.
"""

from __future__ import annotations

import importlib
import json
import os
import re
import sys
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

from laconic.errors import ConfigError, option_named, unknown

COMMANDS = "laconic.commands"
"""A click command by the name of the entry point."""
DATA_SETS = "laconic.datasets"
"""A `SourceInfo` by the name of the data set."""
FRONT_ENDS = "laconic.front_ends"
"""A subclass of `FileFrontEnd` by the name of the front end."""


def added(group: str) -> dict[str, EntryPoint]:
    """The entry points of installed packages in this group, by name and in the order of their names.

    Installers write them in different orders, and help and pages are to be the same everywhere.
    """
    return {point.name: point for point in sorted(entry_points(group=group), key=lambda point: point.name)}


ALLOW_CODE = "--allow-code"
_VARIABLE = "LACONIC_OWN_CODE"
"""The names that may be imported, as JSON, for this process and those that it starts; not set: every name."""
_NAME = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")


def imported(option: str, name: str) -> Any:
    """The object named `package.module:name`; the current folder is searched first, as with `python -m`."""
    module_name, _, attribute = name.partition(":")
    named = option_named(option)
    if not module_name or not attribute:
        raise ConfigError(f"{named} {name}: write it as package.module:name")
    if not _allowed(name):
        raise ConfigError(
            f"{option} {name} is code, and only a file names it. If you trust its author, add {ALLOW_CODE}"
            " (in Python allow_code=True)"
        )
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        module = importlib.import_module(module_name)
    except Exception as error:  # a user's module may raise anything
        raise ConfigError(f"{named} {name}: cannot import '{module_name}' ({reason_of(error)})") from None
    if not hasattr(module, attribute):
        public = [n for n in vars(module) if not n.startswith("_")]
        raise ConfigError(f"{named} {name}: " + unknown(f"name in {module_name}", attribute, public))
    return getattr(module, attribute)


@contextmanager
def only_typed(arguments: Sequence[str]) -> Iterator[None]:
    """Within the block only names in these arguments of a command may be imported, or all with --allow-code."""
    if ALLOW_CODE in arguments:
        yield
    else:
        with only(typed(arguments)):
            yield


@contextmanager
def only(names: Collection[str]) -> Iterator[None]:
    """Within the block only these names may be imported."""
    before = os.environ.get(_VARIABLE)
    os.environ[_VARIABLE] = json.dumps(sorted(names))
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(_VARIABLE, None)
        else:
            os.environ[_VARIABLE] = before


def needed(arguments: Sequence[str]) -> list[str]:
    """What a command that goes on with this one must be given, since then only a file names the code."""
    return [ALLOW_CODE] if ALLOW_CODE in arguments or typed(arguments) else []


def typed(arguments: Sequence[str]) -> set[str]:
    """The names of code in the values of options, and in what is no file."""
    found: set[str] = set()
    for before, argument in zip(("", *arguments), arguments, strict=False):
        if before.startswith("--") or argument.startswith("--") or not Path(argument).exists():
            found |= {part for part in re.split(r"[=,]", argument) if _NAME.fullmatch(part)}
    return found


def reason_of(error: BaseException) -> str:
    """One line of an exception."""
    return (str(error).splitlines() or [""])[0] or type(error).__name__


def _allowed(name: str) -> bool:
    names = os.environ.get(_VARIABLE)
    return names is None or name in json.loads(names)
