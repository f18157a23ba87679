"""A group of commands that are imported when they are called."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

import click

from laconic.errors import unknown


class LazyGroup(click.Group):
    """`subcommands`: name → (module, its click command). `what` is how a command is called in errors."""

    def __init__(
        self, *arguments: Any, subcommands: Mapping[str, tuple[str, str]], what: str = "command", **options: Any
    ) -> None:
        super().__init__(*arguments, **options)
        self._subcommands, self._what = subcommands, what

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self._subcommands)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in self._subcommands:
            return None
        module, attribute = self._subcommands[name]
        command: click.Command = getattr(importlib.import_module(module), attribute)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and not args[0].startswith("-") and args[0] not in self._subcommands:
            raise click.UsageError(unknown(self._what, args[0], self._subcommands), ctx)
        return super().resolve_command(ctx, args)
