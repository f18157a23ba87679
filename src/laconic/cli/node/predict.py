"""`laconic node predict`: the newest model that a node has got, on new records of its owner."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from laconic.cli.node.serve import record_options
from laconic.cli.options import AllMissing, prevalence_option


@click.command(cls=AllMissing)
@click.argument("folder", type=click.Path(path_type=Path))
@click.argument("data", type=click.Path(path_type=Path))
@click.option("--run", help="Which run's model, by the first digits of its name.  [the last one that was kept]")
@click.option("--like", type=click.Path(path_type=Path), help="The node's own table, for its columns.")
@record_options
@prevalence_option
@click.option("--out", type=click.Path(path_type=Path), help="Write the CSV here instead of to the screen.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def predict(
    folder: Path,
    data: Path,
    run: str | None,
    like: Path | None,
    model: str | None,
    front_end_module: str | None,
    prevalence: str | None,
    out: Path | None,
    as_json: bool,
    **own: Any,
) -> None:
    """What the newest model that the node in FOLDER has got says about new records; nothing leaves this machine.

    \b
    laconic node predict /srv/laconic new.csv --schema schema.toml --out predictions.csv
    laconic node predict /srv/laconic new.csv --like /srv/admissions.csv

    The node must be served with --keep-weights. Records are read with the settings of laconic node serve. The model is
    that of the beginning of the last round in which the node took part.
    """
    from laconic.cli.trained import show_predictions
    from laconic.data.files.user_file import no_such_file
    from laconic.errors import DataError, RunFolderError
    from laconic.federation.node.predictions import kept_model, predict_at_node
    from laconic.guard.folder import NodeFolder

    if not (folder.expanduser() / "identity.key").exists():
        raise RunFolderError(f"{folder} is no folder of a node: laconic node identity {folder} makes one")
    if not data.expanduser().exists():
        raise DataError(no_such_file(str(data)))
    kept = kept_model(NodeFolder(folder), run)
    settings = {name.replace("_", "-"): value for name, value in own.items() if value is not None}
    found = predict_at_node(
        kept,
        data.expanduser(),
        settings,
        like=like,
        model=model,
        front_end_module=front_end_module,
        prevalence=prevalence or (),
    )
    click.echo(f"the model of run {kept.run[:8]}… at the beginning of round {kept.round}", err=True)
    show_predictions(found, out, as_json)
