"""`laconic export` and `laconic predict`: a trained model for other programs, and on new records."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from laconic.cli.options import AllMissing, prevalence_option

if TYPE_CHECKING:
    from laconic.settings.predict import Predictions


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


@click.command(cls=AllMissing)
@click.argument("folder", type=click.Path(path_type=Path))
@click.argument("data", type=click.Path(path_type=Path))
@click.option("--best", is_flag=True, help="Take the weights of the best round, not of the last one.")
@prevalence_option
@click.option("--out", type=click.Path(path_type=Path), help="Write the CSV here instead of to the screen.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def predict(folder: Path, data: Path, best: bool, prevalence: str | None, out: Path | None, as_json: bool) -> None:
    """What the model in a run FOLDER says about new records: a probability, a class or a value for each.

    \b
    laconic predict runs/fl-std-stays new.csv --out predictions.csv
    laconic predict runs/fl-std-scans new-scans

    DATA is of the kind that the run was trained on: a table, an .npz, a picture or a folder of pictures, a table with
    texts. It needs no target and no client. With a schema, rows are prepared as the training records were: gaps get the
    schema's fills. Cells may be separated by commas or semicolons, and decimals may have a comma.

    \b
    probability  of the positive class (the heading names it on the screen), where it is as frequent as among the
                 training records: weights of the classes in training are taken out. --prevalence asks for another
                 share; training must then have been declared one.
    log_odds     ln(probability/(1 - probability)), which ranks records even where probabilities are 0 or 1.
    value        of a quantity, in the unit of the table.
    """
    from laconic.settings.predict import predict as predicted

    weights = "best" if best else "model"
    show_predictions(predicted(folder, data, weights=weights, prevalence=prevalence or ()), out, as_json)


def show_predictions(found: Predictions, out: Path | None, as_json: bool) -> None:
    """As CSV, on the screen or in a file, or as JSON; with every digit."""
    from laconic.errors import DataError
    from laconic.store.folder import json_text

    if found.meaning:
        click.echo(found.meaning, err=True)
    columns = {name: list(values) for name, values in found.columns.items()}
    rows = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    if as_json:
        named = zip(found.names, rows, strict=True)
        click.echo(json_text([{found.heading: name} | _plain(row) for name, row in named]))
        return
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([found.heading, *columns])
    for name, row in zip(found.names, rows, strict=True):
        writer.writerow([name, *_plain(row).values()])
    if out is None:
        click.echo(text.getvalue(), nl=False)
        return
    try:
        out.write_text(text.getvalue(), encoding="utf-8")
    except OSError as error:
        raise DataError(f"cannot write {out}: {error.strerror}") from None
    click.echo(f"{len(rows)} predictions in {out}", err=True)


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value if isinstance(value, str) else float(value) for name, value in row.items()}
