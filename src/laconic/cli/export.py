"""`laconic export`: the model of a finished run for other programs, with its card."""

from __future__ import annotations

from pathlib import Path

import click

FORMATS = ("onnx", "torchscript", "safetensors", "card")


@click.command()
@click.argument("folder", metavar="RUN", type=click.Path(path_type=Path))
@click.option("--to", required=True, type=str, help=f"{', '.join(FORMATS)} (the model card alone).")
@click.option("--out", type=click.Path(path_type=Path), help="The file to write.  [in the run folder]")
@click.option("--best", is_flag=True, help="The weights of the best round (by test records), not of the last one.")
@click.option(
    "--released-only",
    is_flag=True,
    help="Leave out of the card what only the server may know: its ε, the best round, bytes in all.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def export(folder: Path, to: str, out: Path | None, best: bool, released_only: bool, as_json: bool) -> None:
    """Write the model of a finished RUN as a file, and its model card beside it.

    \b
    laconic export runs/fl-std-dp-digits --to onnx
    laconic export runs/mine --to torchscript --out mine.pt
    laconic export runs/mine --to card --released-only

    The file takes raw records: a front end and the scaling of columns are inside. Its outputs are compared with those
    of the run's own model before it is kept. A run from Python is exported by laconic.export_run.
    """
    from laconic.export.export import export_run
    from laconic.store.folder import json_text

    # Of the code that the folder names, this command imports what it was allowed.
    done = export_run(folder, to, out=out, best=best, released_only=released_only, allow_code=True)
    if as_json:
        found = {"file": done.file and str(done.file), "card": str(done.card)}
        click.echo(json_text(found | {"inputs": done.inputs, "difference": done.difference}))
        return
    if done.file is not None:
        click.echo(f"Model   {done.file} ({done.file.stat().st_size:,} bytes)")
        for name, about in done.inputs.items():
            shape = " × ".join(map(str, ("batch", *about["shape"])))
            click.echo(f"Takes   {name}: {about['type']}, {shape}; {about['meaning']}")
        click.echo(f"Checked against the run's model: outputs differ by {done.difference:.1g} at most")
    click.echo(f"Card    {done.card}")
