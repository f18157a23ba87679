"""`laconic schemes`, `laconic datasets`, `laconic models`: what there is to choose from."""

from __future__ import annotations

import json
from typing import Any

import click


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
    from laconic.cli.doctor import found_data

    rows = found_data(data_dir)
    if as_json:
        click.echo(json.dumps(rows, ensure_ascii=False))
        return
    for name, row in rows.items():
        click.secho(name, bold=True, nl=False)
        click.echo(f"  {row['description']} ({row['records']}; {row['licence']})")
        click.echo(f"  {row['found']}\n")
    click.echo(
        "Your own: --dataset FOLDER with one .npz, .csv or .parquet file per client, or --dataset TABLE.csv with"
    )
    click.echo("--client-column, or with --schema for health records.")
    click.echo("Files are searched in --data-dir, LACONIC_DATA, the cache, /usr/share/datasets.")


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
