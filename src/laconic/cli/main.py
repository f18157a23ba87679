"""The `laconic` command: its subcommands, and how errors end it."""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import click

from laconic import __version__
from laconic.errors import LaconicError, on_command_line, speak, speaking, unknown
from laconic.own_code import ALLOW_CODE, COMMANDS, added, only_typed
from laconic.ranks import under_torchrun


class LazyGroup(click.Group):
    """Commands that are imported when they are called.

    `subcommands`: name → (module, its click command). `what` is how a command is called in errors.
    """

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
        known = self.list_commands(ctx)
        if args and not args[0].startswith("-") and args[0] not in known:
            raise click.UsageError(unknown(self._what, args[0], known), ctx)
        return super().resolve_command(ctx, args)


_COMMANDS = {
    "run": ("laconic.cli.run", "run"),
    "sweep": ("laconic.cli.sweep", "sweep"),
    "federate": ("laconic.cli.federate", "federate"),
    "node": ("laconic.cli.node.status", "node"),
    "keys": ("laconic.cli.keys", "keys"),
    "advise": ("laconic.cli.plan", "advise"),
    "plan": ("laconic.cli.plan", "plan"),
    "epsilon": ("laconic.cli.epsilon", "epsilon"),
    "calibrate": ("laconic.cli.epsilon", "calibrate"),
    "schema": ("laconic.cli.schema", "schema"),
    "predict": ("laconic.cli.trained", "predict"),
    "export": ("laconic.cli.trained", "export"),
    "audit": ("laconic.cli.audit", "audit"),
    "compare": ("laconic.cli.pages", "compare"),
    "report": ("laconic.cli.pages", "report"),
    "watch": ("laconic.cli.pages", "watch"),
    "schemes": ("laconic.cli.lists", "schemes"),
    "datasets": ("laconic.cli.lists", "datasets"),
    "models": ("laconic.cli.lists", "models"),
    "options": ("laconic.cli.lists", "options"),
    "completion": ("laconic.cli.lists", "completion"),
    "doctor": ("laconic.cli.lists", "doctor"),
}

_CONFIGURED = (
    *("run", "sweep", "federate", "advise", "plan", "epsilon", "calibrate"),
    *("predict", "export", "audit"),
)
"""Commands that read a configuration, a grid or a run folder, which may name code."""


def _with_code(command: click.Command) -> click.Command:
    """With --allow-code, which `Commands.main` has looked for by then."""
    if not any(param.name == "allow_code" for param in command.params):
        text = "Import code that only a file names, such as a model of the user's own: trust the file's author."
        command.params.append(click.Option([ALLOW_CODE], is_flag=True, expose_value=False, help=text))
    return command


class Commands(LazyGroup):
    """Laconic's own subcommands, and those of other installed packages.

    Another package adds one with an entry point in the group `laconic.commands`.
    """

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*_COMMANDS, *(name for name in added(COMMANDS) if name not in _COMMANDS)]

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        command = super().get_command(ctx, name)
        if command is not None:
            return _with_code(command) if name in _CONFIGURED else command
        found = added(COMMANDS).get(name)
        return None if found is None else found.load()

    def main(self, args: Sequence[str] | None = None, *more: Any, **options: Any) -> Any:
        """A file names no code: only what is typed may be imported, or all with --allow-code."""
        with only_typed(sys.argv[1:] if args is None else args), speaking(on_command_line):
            return super().main(args, *more, **options)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] != "run" and args[0] in self.list_commands(ctx) and under_torchrun():
            raise click.UsageError(f"only laconic run takes several ranks: start laconic {args[0]} without torchrun")
        return super().resolve_command(ctx, args)


@click.group(
    cls=Commands,
    subcommands=_COMMANDS,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
@click.version_option(__version__, prog_name="laconic")
def cli() -> None:
    """Federated learning that is differentially private and frugal with bandwidth.

    Try `laconic run fl-std-dp --epsilon 4 --clip-norm 0.5` on the embedded digits. Exit codes: 0 done, 2 bad option,
    3 the promised privacy cannot be kept, 4 bad data, 5 run folder, 6 training diverged, 8 an audit refutes the
    promise, 10 another rank ended (resumable), 130 interrupted (resumable).
    """


def main() -> None:
    """Run the command; a `LaconicError` ends it with one line on stderr (and as JSON with --json)."""
    speak(on_command_line)
    try:
        _call()
    except LaconicError as error:
        fail(str(error), error.exit_code)
    except click.exceptions.Exit as stop:
        sys.exit(stop.exit_code)
    except click.UsageError as error:
        hint = f" (see {error.ctx.command_path} --help)" if error.ctx else ""
        fail(f"{' '.join(error.format_message().split()).rstrip('.')}{hint}", 2)
    except click.ClickException as error:
        fail(error.format_message(), 2)
    except (click.Abort, KeyboardInterrupt):
        fail("interrupted", 130)
    except BrokenPipeError:
        sys.exit(141)


def _call() -> None:
    """Run the command. `laconic`, or a group of commands, by itself says what there is."""
    try:
        cli(standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as asked:
        assert asked.ctx is not None
        print(asked.ctx.get_help())


def fail(message: str, code: int) -> None:
    if under_torchrun() and os.environ.get("RANK", "0") != "0":
        sys.exit(code)  # rank 0 says it
    if "--json" in sys.argv[1:]:
        print(json.dumps({"error": message, "exit_code": code}, ensure_ascii=False))
    print(f"laconic: error: {message}", file=sys.stderr)
    sys.exit(code)
