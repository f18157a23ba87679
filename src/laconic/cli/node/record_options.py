"""The options by which a node's owner says how records are read: the same for `serve` and `predict`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

_F = TypeVar("_F", bound=Callable[..., Any])
_OPTIONS = (
    click.option("--target", metavar="COLUMN", help="The column that is predicted, without a schema.  [target]"),
    click.option(
        "--patient-column",
        metavar="COLUMN",
        help="The column, or array, that says whose each record is. It is not learnt from.",
    ),
    click.option("--schema", metavar="FILE", help="A schema that fixes everything, as all nodes have it."),
    click.option("--text-column", metavar="COLUMN", help="The column with texts; see --vocabulary, --max-length."),
    click.option("--vocabulary", metavar="hash:N|FILE", help="How words are numbered, alike on all nodes."),
    click.option("--max-length", type=int, help="Words of a text."),
    click.option("--classes", metavar="A,B,…", help="The names of all classes in the order of the run, for pictures."),
    click.option("--image-size", metavar="HEIGHTxWIDTH", help="To which pictures are resized, alike on all nodes."),
    click.option("--channels", type=int, help="Of pictures: 3 is colour, 1 is grey.  [3]"),
    click.option("--model", metavar="MODULE:FACTORY", help="Your own model, if the run's is none of laconic's."),
    click.option(
        "--front-end-module",
        metavar="MODULE:FACTORY",
        help="Your own frozen module, if the run's front end uses one. No server's name is imported.",
    ),
)


def record_options(command: _F) -> _F:
    """All of them, in this order."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command
