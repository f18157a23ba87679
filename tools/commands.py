"""Write the reference of all commands from the commands themselves.

python -m tools.commands        # docs/reference/commands.md
"""

from __future__ import annotations

from pathlib import Path

import click

from laconic.cli.main import cli
from laconic.settings.config import every_option

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "commands.md"

_HEAD = """# Every command

Written by `python -m tools.commands` from the commands' own help. [The command line](../cli.md) shows them at work.
Options of a run are not repeated here: a command that takes them says so, and [every option](../options.md) has them.
"""


def as_markdown() -> str:
    """All commands, those of groups behind their group."""
    context = click.Context(cli, info_name="laconic")
    parts = [_HEAD]
    for name in cli.list_commands(context):
        command = cli.get_command(context, name)
        assert command is not None
        parts += _section(command, click.Context(command, info_name=name, parent=context))
    return "\n".join(parts)


def _section(command: click.Command, context: click.Context) -> list[str]:
    lines = [f"## {context.command_path}", "", _text(command.help), ""]
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            assert inner is not None
            lines += _section(inner, click.Context(inner, info_name=name, parent=context))
        return lines
    lines += [f"**Usage:** `{context.command_path} {' '.join(command.collect_usage_pieces(context))}`", ""]
    flags = {one.flag for one in every_option() if one.flag}
    every = (one for one in command.get_params(context) if isinstance(one, click.Option))
    options = [one for one in every if not one.hidden and "--help" not in one.opts]
    own = [one for one in options if not flags & set(one.opts)]
    if len(options) - len(own) > len(flags) / 2:
        lines += ["Takes the options of a run.", ""]
    else:
        own = options
    if own:
        lines += ["| option | meaning |", "| --- | --- |", *(_row(one, context) for one in own)]
    if command.epilog:
        lines += ["", _text(command.epilog)]
    return [*lines, ""]


def _row(option: click.Option, context: click.Context) -> str:
    record = option.get_help_record(context)
    assert record is not None
    flags, help = (" ".join(text.split()) for text in record)
    meaning = _text(help).replace("|", " or ").replace("[", r"\[")
    return f"| `{flags.replace('|', ' or ')}` | {meaning} |"


def _text(help: str | None) -> str:
    """Paragraphs with a line each; those that are marked as they stand become blocks. What looks like a tag is none."""
    paragraphs = []
    for paragraph in (help or "").split("\f")[0].strip().split("\n\n"):
        lines = [line.strip() for line in paragraph.strip().splitlines()]
        if lines and lines[0] == "\b":
            paragraphs.append("\n".join(["```", *lines[1:], "```"]))
        else:
            paragraphs.append(" ".join(lines).replace("<", "&lt;"))
    return "\n\n".join(paragraphs)


if __name__ == "__main__":
    PAGE.write_text(as_markdown(), encoding="utf-8")
