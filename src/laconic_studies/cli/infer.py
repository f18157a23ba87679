"""`laconic infer`: what codes, sums and models reveal about the clients."""

from __future__ import annotations

import click

from laconic.cli.main import LazyGroup

_SUBCOMMANDS = {
    "membership": ("laconic_studies.cli.membership", "infer_membership"),
    "property": ("laconic_studies.cli.property", "infer_property"),
    "reconstruction": ("laconic_studies.cli.reconstruction", "infer_reconstruction"),
}


@click.group(cls=LazyGroup, subcommands=_SUBCOMMANDS, what="kind of inference")
def infer() -> None:
    """Attacks on privacy, tried out: what a client's code, the sum or the model reveals."""
