"""`laconic node`: the commands of a data owner."""

from __future__ import annotations

import click

from laconic.cli.main import LazyGroup

_SUBCOMMANDS = {
    "identity": ("laconic.cli.node.status", "identity"),
    "predict": ("laconic.cli.node.predict", "predict"),
    "serve": ("laconic.cli.node.serve", "serve"),
    "status": ("laconic.cli.node.status", "status"),
    "courier": ("laconic.cli.node.serve", "courier"),
}


class NodeCommands(LazyGroup):
    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in _SUBCOMMANDS and ("/" in args[0] or "." in args[0]):
            raise click.UsageError(f"'{args[0]}' is no command: did you mean 'laconic node status {args[0]}'?", ctx)
        return super().resolve_command(ctx, args)


@click.group(cls=NodeCommands, subcommands=_SUBCOMMANDS)
def node() -> None:
    """A node of a federation: the process of a data owner, which holds the data, the keys, the policy and the log.

    docs/federation.md goes from an exported table to a node that answers, host by host.
    """
