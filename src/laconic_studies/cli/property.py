"""`laconic infer property`: does an update tell a property of the victim's records?"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from laconic.cli.options import NUMBER, declared_options

if TYPE_CHECKING:
    from laconic.scheme import Scheme
    from laconic_studies.inference.property import PropertyInference, Watch

_SCHEME_FLAGS = (
    "--batch-size",
    "--optimizer",
    "--ratio",
    "--clip-norm",
    "--noise-multiplier",
    "--noise",
    "--sign-step",
    "--server-lr",
    "--momentum",
    "--num-chunks",
    "--l1-weight",
    "--max-iterations",
    "--init-steps",
)
_ALL = "single,others,model"


@click.command("property")
@click.argument("schemes", metavar="[SCHEME]...", nargs=-1)
@click.option("--dataset", default="lfw", show_default=True, help="lfw, faces, or a data set of yours with attributes.")
@click.option("--data-dir", type=str, help="Where the files of the data set are.  [LACONIC_DATA]")
@click.option("--property", "name", default="black", show_default=True, help="An attribute, or not-NAME.")
@click.option("--match-labels", is_flag=True, help="Batches without the property have the labels of those with it.")
@click.option("--model", default="auto", show_default=True, help="A model by name; auto is lfw-cnn for pictures.")
@click.option("--shrink", type=int, default=1, show_default=True, help="Pictures smaller by this factor, for speed.")
@click.option("--participants", type=int, default=2, show_default=True, help="Victim, attacker and others.")
@click.option("--records", type=int, default=32, show_default=True, help="Records of each participant in a round.")
@click.option("--warm-up", type=int, default=100, show_default=True, help="Rounds before the attacker looks.")
@click.option("--rounds", type=int, default=1000, show_default=True, help="Rounds that the attacker observes.")
@click.option("--share", type=NUMBER, default=0.2, show_default=True, help="Share of these rounds with the property.")
@click.option("--emulate-every", type=int, default=1, show_default=True, help="Emulate in one of so many rounds.")
@click.option("--emulation", default="noisy", show_default=True, help="Under noise, emulate it (noisy) or not (clean).")
@click.option("--views", default=_ALL, show_default=True, help="What the attacker sees, with commas.")
@click.option("--features", default="absolute,signed", show_default=True, help="What it looks at, with commas.")
@click.option("--classifiers", default="forest,logistic", show_default=True, help="What guesses, with commas.")
@click.option("--local-lr", type=NUMBER, default=0.01, show_default=True, help="Local learning rate.")
@click.option("--local-steps", type=int, default=1, show_default=True, help="Local steps on the records of a round.")
@declared_options(_SCHEME_FLAGS)
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of everything that is drawn.")
@click.option("--device", default="auto", show_default=True, help="cpu, cuda, cuda:0 … or auto.")
@click.option("--threads", type=int, help="CPU threads.  [all]")
@click.option("--out", type=click.Path(path_type=Path), help="A folder for property.csv and property.png.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--quiet", is_flag=True, help="No progress on stderr.")
def infer_property(
    schemes: tuple[str, ...],
    dataset: str,
    data_dir: str | None,
    name: str,
    match_labels: bool,
    model: str,
    shrink: int,
    records: int,
    views: str,
    features: str,
    classifiers: str,
    local_lr: float,
    local_steps: int,
    device: str,
    threads: int | None,
    out: Path | None,
    as_json: bool,
    quiet: bool,
    **options: Any,
) -> None:
    """Does an update tell a property of the victim's records that the task does not ask for?

    \b
    laconic infer property fl-std fl-sign --data-dir FOLDER
    laconic infer property fl-std-dp --clip-norm 0.1 --noise-multiplier 1.5 --dataset faces --property young

    The passive attack of Melis et al. (2019): the attacker is a participant, emulates the victim with records of its
    own, and learns to tell updates with the property from those without. 0.5 is a coin. See docs/results/inference.md.
    """
    import torch

    from laconic.experiment.identity import choose_device
    from laconic.parts import positive_int
    from laconic_studies.cli.shown import check_folder
    from laconic_studies.inference.property import PropertyInference, check_scheme
    from laconic_studies.inference.property_setup import PropertySetup

    if out is not None:
        check_folder(out)
    given = {key.partition("__")[2]: options.pop(key) for key in [k for k in options if k.startswith("scheme__")]}
    if threads is not None:
        positive_int(threads=threads)
        torch.set_num_threads(threads)
    settings = PropertyInference(
        views=_names(views), features=_names(features), classifiers=_names(classifiers), **options
    )
    chosen = _schemes(schemes or ("fl-std", "fl-sign"), given | {"local_lr": local_lr, "local_steps": local_steps})
    for scheme in chosen:
        check_scheme(scheme)
    where = choose_device(device)
    setup = PropertySetup(
        dataset=dataset,
        attribute=name,
        data_dir=data_dir,
        model=model,
        records=records,
        match_labels=match_labels,
        shrink=shrink,
    )
    prepared = setup.prepared()
    rows: list[dict[str, Any]] = []
    for scheme in chosen:
        result = prepared.attacked(scheme, settings, device=where, watch=print_rounds(scheme.name, quiet))
        rows += [prepared.row(scheme, settings, result, guess) for guess in result.guesses]
        if out is not None:  # after every scheme, so that an interrupt leaves what is done
            _write(rows, out)
    if as_json:
        click.echo(json.dumps({"settings": _said(settings), "rows": rows}, ensure_ascii=False))
        return
    if prepared.stand_in_for:
        click.echo(f"{dataset} is a stand-in for {prepared.stand_in_for}: figures cannot be compared with its own.")
    _show(rows)
    if out is not None:
        click.echo(f"Files: {out}")


def _names(text: str) -> tuple[str, ...]:
    from laconic.errors import ConfigError

    names = tuple(part.strip() for part in text.split(",") if part.strip())
    if not names:
        raise ConfigError("--views, --features and --classifiers need at least one name each")
    return names


def _schemes(names: tuple[str, ...], given: dict[str, Any]) -> list[Scheme]:
    """Each scheme with those of the options that it takes; one that none of them takes is refused."""
    from laconic.catalogue import build_scheme, scheme_entry
    from laconic.errors import ConfigError

    entries = {name: scheme_entry(name) for name in dict.fromkeys(names)}
    asked = {key: value for key, value in given.items() if value is not None}
    for key, value in asked.items():
        if not any(key in entry.options for entry in entries.values()):
            raise ConfigError(f"--{key.replace('_', '-')} means nothing to {', '.join(names)}: leave it out")
        if key == "clip_norm" and isinstance(value, str):
            raise ConfigError(f"--clip-norm {value}: here it must be a number")
        if key == "batch_size" and isinstance(value, str):
            raise ConfigError(f"--batch-size {value}: here it must be a number; without it a batch is all of --records")
    return [
        build_scheme(name, **{key: value for key, value in asked.items() if key in entry.options})
        for name, entry in entries.items()
    ]


def print_rounds(scheme: str, quiet: bool) -> Watch:
    """A line on stderr every few seconds."""
    last = time.monotonic()

    def watch(done: int, of: int) -> None:
        nonlocal last
        if not quiet and (time.monotonic() - last > 5 or done == of):
            last = time.monotonic()
            print(f"{scheme}: round {done}/{of}", file=sys.stderr, flush=True)

    return watch


def _write(rows: list[dict[str, Any]], out: Path) -> None:
    from laconic.report.plots import plots_available
    from laconic_studies.inference.pictures import draw_property, write_rows

    write_rows(rows, out / "property.csv")
    if plots_available():
        draw_property(rows, out / "property.png")


def _said(settings: PropertyInference) -> dict[str, Any]:
    from dataclasses import asdict

    return asdict(settings)


def _show(rows: list[dict[str, Any]]) -> None:
    """One line for each scheme, view, feature map and classifier."""
    heads: tuple[str, ...] = ("scheme", "view", "features", "classifier", "accuracy", "95 %", "AUC", "95 %")
    lines = [heads]
    for row in rows:
        lines.append(
            (
                *(str(row[key]) for key in ("scheme", "view", "features", "classifier")),
                f"{row['accuracy']:.3f}",
                f"{row['accuracy_low']:.3f} – {row['accuracy_high']:.3f}",
                f"{row['auc']:.3f}",
                f"{row['auc_low']:.3f} – {row['auc_high']:.3f}",
            )
        )
    widths = [max(len(line[place]) for line in lines) for place in range(len(heads))]
    for line in lines:
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())
    first = rows[0]
    click.echo(
        f"\n'{first['property']}' in {first['dataset']}: {first['positives']} rounds with it, {first['negatives']}"
        " without. Accuracy is on as many of each, so 0.5 is a coin."
    )
