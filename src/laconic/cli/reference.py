"""`laconic options`: every option of a run, from its declaration. `laconic completion`: the same for a shell."""

from __future__ import annotations

import json

import click
from click.shell_completion import get_completion_class

from laconic.options.declare import Declared
from laconic.settings.config import every_option

_HEAD = """# Every option

Written by `laconic options --markdown`: each option is declared once, in `src/laconic/options/`, and everything else
follows from that. An option is a key of a section in the [configuration file](cli.md#the-configuration-file), a flag of
`laconic run`, `plan` and `federate`, and, where an experiment has it, an argument of `laconic.run` in Python.
`--set section.key=value` sets any of them.

*same run*: a run folder is resumed only with the same value.
"""

_NOTES = {
    "front_end": "Any other key is an argument of your own factory: `--set front_end.KEY=VALUE`.",
    "model": "Any other key is an argument of the model's factory (`--model-option KEY=VALUE`).",
    "scheme": "A key that the scheme does not take is an error; `laconic schemes` lists what each takes. A private"
    " scheme takes the keys of its plain version, too. Options of your own schemes have no flag:"
    " `--set scheme.KEY=VALUE`.",
    "aggregator": "Any other key is an option of the rule, as its class declares it: `--set aggregator.KEY=VALUE`.",
    "secagg": "Private schemes only.",
    "federation": "For `laconic federate` and Flower apps; a simulation ignores it.",
}


@click.command()
@click.option("--markdown", is_flag=True, help="As a page for the documentation.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def options(markdown: bool, as_json: bool) -> None:
    """Every option of a run: its key in the configuration, its flag, its default, what it means."""
    every = every_option()
    if as_json:
        rows = {one.path: {"flag": one.flag, "default": one.default_text, "help": one.about.help} for one in every}
        click.echo(json.dumps(rows, ensure_ascii=False))
    elif markdown:
        click.echo(as_markdown(every), nl=False)
    else:
        for one in every:
            click.secho(one.path, bold=True, nl=False)
            default = f"  [{one.default_text}]" if one.default_text else ""
            click.echo(f"  {one.flag}{default}\n  {one.about.help}\n")


_SETUP = {
    "bash": "laconic completion bash > ~/.local/share/bash-completion/completions/laconic",
    "zsh": "laconic completion zsh > ~/.zfunc/_laconic, with 'fpath+=~/.zfunc' before compinit in ~/.zshrc",
    "fish": "laconic completion fish > ~/.config/fish/completions/laconic.fish",
}


@click.command(
    epilog="Put it where the shell looks, once: " + "; ".join(f"{shell}: {how}" for shell, how in _SETUP.items())
)
@click.argument("shell", type=click.Choice(list(_SETUP)))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the script that completes commands, options and their values in a shell."""
    made = get_completion_class(shell)
    assert made is not None
    click.echo(made(context.find_root().command, {}, "laconic", "_LACONIC_COMPLETE").source())


def as_markdown(every: list[Declared]) -> str:
    """A table for each section."""
    lines = [_HEAD]
    for section in dict.fromkeys(one.section for one in every):
        lines += [f"## [{section}]", ""]
        lines += [_NOTES[section], ""] if section in _NOTES else []
        lines += ["| key | flag | default | meaning |", "| --- | --- | --- | --- |"]
        for one in (one for one in every if one.section == section):
            flag, same = f"`{one.flag}`" if one.flag else "–", " *(same run)*" if one.about.identity else ""
            lines.append(f"| `{one.key}` | {flag} | {one.default_text or '–'} | {one.about.help}{same} |")
        lines.append("")
    return "\n".join(lines)
