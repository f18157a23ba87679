"""`laconic schemes`, `laconic datasets`, `laconic models`: what there is to choose from."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

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


@click.command()
@click.option("--data-dir", type=str, help="Look for the files here.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def datasets(data_dir: str | None, as_json: bool) -> None:
    """The data sets that are known by name, and where their files were found."""
    from laconic.data.sources import SOURCES

    if as_json:
        rows = {name: _said(info) | {"found": info.where(data_dir)} for name, info in SOURCES.items()}
        click.echo(json.dumps(rows, ensure_ascii=False))
        return
    for name, info in SOURCES.items():
        click.secho(name, bold=True, nl=False)
        click.echo(f"  {info.description} ({info.records}; {info.licence})")
        click.echo(f"  {info.clients}")
        click.echo(f"  {info.where(data_dir)}\n")
    click.echo(
        "Your own: --dataset FOLDER with one .npz, .csv or .parquet file per client, or --dataset TABLE.csv with"
    )
    click.echo("--client-column, or with --schema for health records; or --dataset package.module:function.")
    click.echo("Files are searched in --data-dir, LACONIC_DATA, the cache, /usr/share/datasets.")


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
