"""`laconic infer reconstruction`: what do a client's records look like?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from laconic.cli.options import NUMBER, config_values, run_options
from laconic_studies.cli.shown import Said, table, words

if TYPE_CHECKING:
    from laconic_studies.inference.reconstruction.attack import Reconstructed

_SCHEMES = ("fl-std", "fl-sign", "fl-cs", "fl-top", "fl-std-dp")
_MAY_BE_SHOWN = ("digits", "mnist", "fashion-mnist")
_PICTURES = 8


@click.command("reconstruction")
@click.argument("schemes", metavar="[SCHEME]...", nargs=-1)
@click.option("--batches", default="1,4", show_default=True, help="Records of a victim: sizes to try, with commas.")
@click.option("--victims", type=int, default=4, show_default=True, help="Victims for each size.")
@click.option("--views", default="single", show_default=True, help="single (the code), others (the sum), or both.")
@click.option("--labels", default="known", show_default=True, help="known, or inferred (batches of 1).")
@click.option("--iterations", type=int, default=300, show_default=True, help="Steps of Adam.")
@click.option("--step", type=NUMBER, default=0.05, show_default=True, help="Step of Adam at the start.")
@click.option("--restarts", type=int, default=2, show_default=True, help="Random starts for each victim.")
@click.option("--total-variation", type=NUMBER, default=0.01, show_default=True, help="Weight of the picture prior.")
@click.option("--after", type=int, default=0, show_default=True, help="Rounds of training before the one in question.")
@run_options
@click.option("--out", type=click.Path(path_type=Path), default=Path("inferred"), show_default=True, help="Folder.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON; progress goes to stderr.")
@click.option("--quiet", is_flag=True, help="No progress on stderr.")
def infer_reconstruction(
    schemes: tuple[str, ...],
    batches: str,
    victims: int,
    views: str,
    labels: str,
    after: int,
    out: Path,
    as_json: bool,
    quiet: bool,
    sets: tuple[str, ...],
    model_options: tuple[str, ...],
    **options: Any,
) -> None:
    """Search the records of a client from what it sent, by gradient matching.

    \b
    laconic infer reconstruction
    laconic infer reconstruction fl-std fl-sign --batches 1,2,4,8,16 --victims 8 --iterations 600
    laconic infer reconstruction fl-std fl-std-dp --views single,others --noise-multiplier 0.1
    laconic infer reconstruction fl-std --dataset mnist --labels inferred --batches 1

    Takes the options of `laconic run`. Left open, the model is a network of 64 hidden units, and a client takes one
    step on all its records. PSNR is in dB, and higher is more alike; a mean picture and a random one of the same class
    are what one guesses without any code. OUT has reconstruction.csv, .json and .png, and pictures.png of digits, mnist
    and fashion-mnist (of no other data: they may show people).
    """
    from laconic_studies.inference.asked import asked_schemes
    from laconic_studies.inference.reconstruction.attack import Reconstruction, reconstruct
    from laconic_studies.inference.reconstruction.matching import Search

    names = ("iterations", "step", "restarts", "total_variation")
    search = Search(**{name: options.pop(name) for name in names})
    attack = Reconstruction(
        batches=_sizes(batches),
        victims=victims,
        views=words("views", views),
        labels=labels,
        after=after,
        search=search,
    )
    values = config_values(options, sets, model_options)
    said = Said(out, "reconstruction", quiet=quiet)
    results: list[Reconstructed] = []
    for settled in asked_schemes(schemes or _SCHEMES, values, **_defaults(values)):
        results += reconstruct(settled.experiment, attack=attack, progress=said.progress)
        settings = {"seed": settled.config.run.seed, "dataset": settled.config.data.dataset, **_said(attack)}
        said.write([result.row() for result in results], settings)
    said.draw()
    if settled.config.data.dataset in _MAY_BE_SHOWN:
        _draw(results, out)
    if as_json:
        said.print_json()
        return
    heads = [
        "scheme",
        "view",
        "batch",
        "PSNR (± s.e.)",
        "mean picture",
        "random one",
        "correlation",
        "better than mean",
    ]
    lines = []
    for row in (result.row() for result in results):
        line = [row["scheme"], row["view"], str(row["batch"]), f"{row['psnr']:.1f} ± {row['psnr_error']:.1f} dB"]
        line += [f"{row['psnr_mean']:.1f} dB", f"{row['psnr_random']:.1f} dB", f"{row['correlation']:.2f}"]
        lines.append([*line, f"{100 * row['better_than_mean']:.0f} %"])
        if row["right_labels"] is not None:
            lines[-1][2] += f", {100 * row['right_labels']:.0f} % of labels"
    table(heads, lines)
    click.echo(f"Above mean: records at least 1 dB closer than the mean picture. Files: {out}")


def _sizes(text: str) -> tuple[int, ...]:
    from laconic.errors import ConfigError

    try:
        return tuple(int(word) for word in words("batches", text))
    except ValueError:
        raise ConfigError(f"--batches {text}: write whole numbers with commas, such as 1,4,16") from None


def _defaults(values: dict[str, Any]) -> dict[str, Any]:
    """A small network, and one step on all records: what the search is best at."""
    defaults: dict[str, Any] = {"run__rounds": 1, "scheme__batch_size": "all"}
    if not any(key in values for key in ("scheme.local_steps", "scheme.epochs")):
        defaults["scheme__local_steps"] = 1
    if "model.name" not in values:
        defaults |= {"model__name": "mlp", "model__hidden": 64}
    if not any(key.startswith("sampler.") for key in values):
        defaults["sampler__sampling_rate"] = 0.1
    return defaults


def _said(attack: Any) -> dict[str, Any]:
    from dataclasses import asdict

    return asdict(attack)


def _draw(results: list[Reconstructed], out: Path) -> None:
    """The records and what was found of them, for the smallest and the largest batch."""
    from laconic.report.plots import plots_available
    from laconic_studies.inference.pictures import draw_grid
    from laconic_studies.inference.reconstruction.attack import as_pictures

    if not plots_available():
        return
    sizes = sorted({result.inputs.shape[1] for result in results})
    rows = []
    for size in dict.fromkeys((sizes[0], sizes[-1])):
        chosen = [result for result in results if result.inputs.shape[1] == size]
        rows.append((f"{size} in a batch: records", as_pictures(chosen[0].inputs.flatten(0, 1)[:_PICTURES])))
        for result in chosen:
            title = result.scheme if result.view == "single" else f"{result.scheme}, sum"
            rows.append((title, as_pictures(result.guesses.flatten(0, 1)[:_PICTURES])))
    draw_grid(rows, out / "pictures.png")
