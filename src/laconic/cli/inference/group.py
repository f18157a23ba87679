"""`laconic infer`: what codes, sums and models reveal about the clients."""

from __future__ import annotations

import importlib

import click

from laconic.errors import unknown

_SUBCOMMANDS = {
    "membership": ("laconic.cli.inference.membership", "infer_membership"),
    "property": ("laconic.cli.inference.property", "infer_property"),
    "reconstruction": ("laconic.cli.inference.reconstruction", "infer_reconstruction"),
}
"""Name → (module, its click command); they are imported when they are called."""


class Subcommands(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_SUBCOMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in _SUBCOMMANDS:
            return None
        module, attribute = _SUBCOMMANDS[name]
        command: click.Command = getattr(importlib.import_module(module), attribute)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and not args[0].startswith("-") and args[0] not in _SUBCOMMANDS:
            raise click.UsageError(unknown("kind of inference", args[0], _SUBCOMMANDS), ctx)
        return super().resolve_command(ctx, args)


@click.group(cls=Subcommands)
def infer() -> None:
    """Attacks on privacy, tried out: what a client's code, the sum or the model reveals."""
