"""`laconic predict`: a trained model on new patients."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import click

from laconic.cli.options import AllMissing


@click.command(cls=AllMissing)
@click.argument("folder", type=click.Path(path_type=Path))
@click.argument("table", type=click.Path(path_type=Path))
@click.option("--best", is_flag=True, help="Take the weights of the best round, not of the last one.")
@click.option("--out", type=click.Path(path_type=Path), help="Write the CSV here instead of to the screen.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def predict(folder: Path, table: Path, best: bool, out: Path | None, as_json: bool) -> None:
    """The probability of the outcome for new patients, by the model in a run FOLDER on health records.

    TABLE has the columns of the run's schema (CSV, gz or Parquet); label and client may be missing. Rows are prepared
    as the run's training records were, by the preprocessing.toml in the folder.
    """
    from laconic.errors import DataError
    from laconic.settings.predict import predict as predicted
    from laconic.store.folder import json_text

    found = predicted(folder, table, weights="best" if best else "model")
    pairs = list(zip(found.patients, found.probabilities.tolist(), strict=True))
    if as_json:
        click.echo(json_text([{"patient": patient, "probability": value} for patient, value in pairs]))
        return
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["patient", "probability"])
    writer.writerows((patient, f"{value:.6f}") for patient, value in pairs)
    if out is None:
        click.echo(text.getvalue(), nl=False)
        return
    try:
        out.write_text(text.getvalue(), encoding="utf-8")
    except OSError as error:
        raise DataError(f"cannot write {out}: {error.strerror}") from None
    click.echo(f"{len(pairs)} predictions in {out}", err=True)
