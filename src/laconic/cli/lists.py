"""`laconic schemes`, `datasets`, `models`, `options`, `completion`: what there is to choose from. `laconic doctor`."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import shutil
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import get_completion_class

from laconic.cli.options import declared_options
from laconic.options.declare import Declared
from laconic.settings.config import every_option

if TYPE_CHECKING:
    from laconic.data.registry import SourceInfo


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def schemes(as_json: bool) -> None:
    """The schemes: where they come from, what travels, their options."""
    import inspect

    from laconic.catalogue import SCHEMES

    rows: dict[str, dict[str, Any]] = {
        name: {
            "summary": entry.summary,
            "origin": entry.origin,
            "up": entry.up,
            "down": entry.down,
            "linear": entry.linear,
            "private": entry.private,
            "options": {k: None if v is inspect.Parameter.empty else v for k, v in entry.options.items()},
            "required": entry.required,
        }
        for name, entry in SCHEMES.items()
    }
    if as_json:
        click.echo(json.dumps(rows, ensure_ascii=False))
        return
    for name, row in rows.items():
        kind = ", ".join(("private" if row["private"] else "not private", "linear" if row["linear"] else "not linear"))
        click.secho(name, bold=True, nl=False)
        click.echo(f"  ({row['origin']}; {kind}; up {row['up']}, down {row['down']})")
        click.echo(f"  {row['summary']}")
        needed = [f"--{k.replace('_', '-')}" for k in row["required"] if k not in ("local_lr",)]
        click.echo("  options: " + " ".join(f"--{k.replace('_', '-')}" for k in row["options"]))
        click.echo((f"  required: {' '.join(needed)}" if needed else "  required: none") + "\n")


_DIVISION = (
    "--partition",
    "--num-clients",
    "--alpha",
    "--labels-per-client",
    "--augment",
    "--client-column",
    "--target",
    "--text-column",
    "--vocabulary",
    "--max-length",
    "--image-size",
    "--schema",
    "--num-records",
    "--public-records",
    "--holdout",
    "--seed",
)
"""The options of a run that say how records are divided."""


@click.command()
@click.argument("name", required=False)
@click.option("--data-dir", type=str, help="Look for the files here.")
@declared_options(_DIVISION)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def datasets(name: str | None, data_dir: str | None, as_json: bool, **options: Any) -> None:
    """The data sets that are known by name, and where their files were found.

    With a NAME (or a folder, a table, package.module:function): a few records of it, and how a run with the same
    options would divide it among clients.
    """
    from laconic.data.sources import SOURCES
    from laconic.errors import ConfigError

    given = {key.replace("__", "."): value for key, value in options.items() if value is not None}
    if name is not None:
        _one_dataset(name, given | ({} if data_dir is None else {"data.data_dir": data_dir}), as_json)
        return
    if given:
        raise ConfigError(f"--{next(iter(given)).partition('.')[2].replace('_', '-')} needs the NAME of a data set")
    if as_json:
        rows = {name: _said(info) | {"found": info.where(data_dir)} for name, info in SOURCES.items()}
        click.echo(json.dumps(rows, ensure_ascii=False))
        return
    for name, info in SOURCES.items():
        click.secho(name, bold=True, nl=False)
        click.echo(f"  {info.description} ({info.records}; {info.licence})")
        click.echo(f"  {_kind(info)}")
        click.echo(f"  {info.clients}")
        click.echo(f"  source: {info.origin}")
        click.echo(f"  {info.where(data_dir)}\n")
    click.echo(
        "Your own: --dataset FOLDER with one .npz, .csv or .parquet file per client, or with pictures as"
        " CLIENT/CLASS/PICTURE;"
    )
    click.echo(
        "--dataset TABLE.csv with --client-column, and --text-column for texts, or with --schema for health records;"
    )
    click.echo("--dataset package.module:function.")
    click.echo("Files are searched in --data-dir, LACONIC_DATA, the cache, /usr/share/datasets.")
    click.echo(
        "laconic datasets NAME shows a few records, how they are divided among clients, and the sums of its files."
    )


def _one_dataset(name: str, values: dict[str, Any], as_json: bool) -> None:
    from rich.console import Console

    from laconic.report.dataset_view import division, division_lines, example_lines
    from laconic.settings.config import RunConfig
    from laconic.settings.data.datasets import load_federation, source_info
    from laconic.streams import Streams

    config = RunConfig().with_values(values | {"data.dataset": name})
    info = source_info(name)
    data = load_federation(config.data, holdout=config.run.holdout, streams=Streams(config.run.seed))
    found = division(data) | {"input_shape": list(data.input_shape)}
    if as_json:
        said = {} if info is None else _said(info) | {"found": info.where(config.data.data_dir)}
        click.echo(json.dumps(said | {"division": found}, ensure_ascii=False))
        return
    console = Console(highlight=False, markup=False, soft_wrap=True)
    fancy = console.is_terminal and (console.encoding or "").lower().startswith("utf")
    if info is not None:
        click.secho(name, bold=True, nl=False)
        click.echo(f"  {info.description} ({info.records}; {info.licence})")
        click.echo(f"  {_kind(info)}")
        click.echo(f"  source: {info.origin}; {info.where(config.data.data_dir)}")
        if info.citation:
            click.echo(f"  cite {info.citation}")
        for file in dict.fromkeys((*info.files, *info.sums)):
            click.echo(f"  {file}  {info.sums.get(file, 'is not compared with a sum')}")
        click.echo("")
    for line in example_lines(
        data,
        data.classes if info is None else info.classes,
        width=console.width,
        colour=fancy and console.color_system is not None and not console.no_color,
        fancy=fancy,
    ):
        console.print(line)
    click.echo("")
    for text in division_lines(found):
        click.echo(text)


def _kind(info: SourceInfo) -> str:
    """The shape of a record and the names of the classes."""
    shape = " x ".join(map(str, info.input_shape)) or "depends on the options"
    return f"shape: {shape}; classes: {', '.join(info.classes)}"


def _said(info: SourceInfo) -> dict[str, Any]:
    """What is known of a data set without loading it."""
    return {
        "description": info.description,
        "records": info.records,
        "shape": list(info.input_shape),
        "classes": list(info.classes),
        "client": info.client,
        "clients": info.default_clients,
        "natural": info.natural,
        "licence": info.licence,
        "origin": info.origin,
        "citation": info.citation,
        "stand_in_for": info.stand_in_for,
        "files": list(info.files),
        "sums": dict(info.sums),
    }


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def models(as_json: bool) -> None:
    """The models that are known by name, with their sizes."""
    import inspect

    from laconic.models.registry import MODELS, build_model

    examples: dict[str, list[tuple[tuple[int, ...], int]]] = {
        "cnn": [((1, 28, 28), 10)],
        "all-cnn-c": [((3, 32, 32), 10)],
        "lfw-cnn": [((3, 62, 47), 2)],
        "cnn-lstm": [((400,), 2)],
        "text-cnn": [((400,), 2)],
        "sensor-cnn": [((128, 6), 12)],
        "mlp": [((7280,), 2), ((24428,), 2)],
        "logistic": [((1, 8, 8), 10)],
    }
    rows: dict[str, dict[str, Any]] = {}
    for name, factory in MODELS.items():
        sizes = {}
        for shape, classes in examples[name]:
            model = build_model(name, input_shape=shape, num_classes=classes, seed=0)
            sizes["x".join(map(str, shape))] = sum(p.numel() for p in model.parameters())
        rows[name] = {"summary": (inspect.getdoc(factory) or "").splitlines()[0], "weights": sizes}
    if as_json:
        click.echo(json.dumps(rows, ensure_ascii=False))
        return
    for name, row in rows.items():
        click.secho(name, bold=True, nl=False)
        click.echo(f"  {row['summary']}")
        for shape, count in row["weights"].items():
            click.echo(f"  {count:,} weights for inputs of {shape}")
        click.echo("")
    click.echo("Your own: --model package.module:factory, any function that returns a torch.nn.Module.")


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


_REQUIRED = ("torch", "numpy", "scipy", "dp-accounting", "safetensors", "click", "rich", "scikit-learn")
_OPTIONAL = {
    "pandas": "CSV and Parquet data",
    "pyarrow": "Parquet data, health records",
    "flwr": "federations on Flower",
}


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def doctor(as_json: bool) -> None:
    """Versions, devices, data and disk: what works on this machine. Exits with 2 if something required is missing."""
    import torch

    from laconic import __version__
    from laconic.data.sources import SOURCES

    packages = {name: _version(name) for name in (*_REQUIRED, *_OPTIONAL)}
    cuda = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    missing = [name for name in _REQUIRED if packages[name] is None]
    report: dict[str, Any] = {
        "laconic": __version__,
        "python": platform.python_version(),
        "packages": packages,
        "cpu_threads": torch.get_num_threads(),
        "cuda": cuda,
        "free_disk_gb": round(shutil.disk_usage(os.getcwd()).free / 1e9, 1),
        "writable": os.access(os.getcwd(), os.W_OK),
        "datasets": {name: info.where() for name, info in SOURCES.items()},
        "missing": missing,
    }
    if as_json:
        click.echo(json.dumps(report, ensure_ascii=False))
    else:
        click.echo(f"laconic {__version__} on Python {report['python']}")
        for name, version in packages.items():
            absent = "MISSING: pip install " + name if name in missing else f"not installed ({_OPTIONAL.get(name)})"
            click.echo(f"  {name:<14} {version or absent}")
        click.echo(f"  {'CPU threads':<14} {report['cpu_threads']}")
        click.echo(f"  {'CUDA':<14} {', '.join(cuda) or 'none (use --device cpu)'}")
        click.echo(f"  {'disk':<14} {report['free_disk_gb']} GB free{'' if report['writable'] else ', NOT writable'}")
        for name, where in report["datasets"].items():
            click.echo(f"  {name:<14} {where}")
    if missing:
        raise click.exceptions.Exit(2)


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
