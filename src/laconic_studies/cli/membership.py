"""`laconic infer membership`: who was there?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from laconic.cli.options import config_values, run_options
from laconic.figures import at_most
from laconic_studies.cli.shown import Said, table, words

_ALL = "single,others,model,loss"


@click.command("membership")
@click.argument("schemes", metavar="[SCHEME]...", nargs=-1)
@click.option("--level", default="client", show_default=True, help="Asked about: client, record, run; with commas.")
@click.option("--views", default=_ALL, show_default=True, help="What the adversary looks at, with commas.")
@click.option("--targets", type=int, default=10, show_default=True, help="Clients or records that are asked about.")
@click.option("--shadows", type=int, default=100, show_default=True, help="Rounds the adversary plays, by target.")
@click.option("--trials", type=int, default=100, show_default=True, help="Rounds that are counted, by target.")
@click.option("--draws", type=int, default=8, show_default=True, help="Draws of the clients' batches to choose from.")
@click.option("--pool", type=int, default=1000, show_default=True, help="Clients that may take part, at most.")
@click.option("--after", type=int, default=0, show_default=True, help="Rounds of training before the one in question.")
@run_options
@click.option("--out", type=click.Path(path_type=Path), default=Path("inferred"), show_default=True, help="Folder.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON; progress goes to stderr.")
@click.option("--quiet", is_flag=True, help="No progress on stderr.")
def infer_membership(
    schemes: tuple[str, ...],
    level: str,
    views: str,
    out: Path,
    as_json: bool,
    quiet: bool,
    sets: tuple[str, ...],
    model_options: tuple[str, ...],
    **options: Any,
) -> None:
    """Was a client in the cohort or in the run, was a record in a client's data? By likelihood ratio.

    \b
    laconic infer membership
    laconic infer membership fl-std fl-std-dp --level record --noise-multiplier 1
    laconic infer membership fl-sign-dp --level run --rounds 5 --targets 2 --trials 50 --views others,loss
    laconic infer membership fl-top-dp --dataset mnist --model mlp --model-option hidden=32 --epsilon 2 --trials 500

    Takes the options of `laconic run`. Left open, a cohort is a tenth of the clients, noise has σ = 1 and codes a tenth
    of the values. Views: single (each code), others (the sum), model (the change of the weights), loss (how well the
    new model fits the target). For -dp schemes the bound of the claimed ε stands beside the measured rate. OUT has
    membership.csv, .json and .png.
    """
    from laconic.errors import ConfigError, unknown
    from laconic_studies.inference.membership.game import LEVELS, MembershipGame, membership
    from laconic_studies.inference.membership.roc import RATES
    from laconic_studies.inference.standing import asked_schemes

    levels = words("level", level)
    for name in levels:
        if name not in LEVELS:
            raise ConfigError(unknown("level", name, LEVELS))
    numbers = {name: options.pop(name) for name in ("targets", "shadows", "trials", "draws", "pool", "after")}
    values = config_values(options, sets, model_options)
    rounds = int(values.get("run.rounds", 1))
    game = MembershipGame(**numbers, rounds=rounds, views=words("views", views))
    said = Said(out, "membership", quiet=quiet)
    results = []
    for settled in asked_schemes(schemes, values, run__rounds=1, **_cohort(values)):
        for one in levels:
            results += membership(settled.experiment, level=one, game=game, progress=said.progress)
            said.write([result.row() for result in results], {"seed": settled.config.run.seed, **numbers})
    said.draw()
    rows = [result.row() for result in results]
    if as_json:
        said.print_json()
        return
    heads = ["scheme", "level", "view", "AUC"]
    for rate in RATES:
        heads += [f"TPR at {100 * rate:g} % FPR", "allowed"]
    table(heads, [_line(row, RATES) for row in rows])
    click.echo("In brackets: 95 %. Allowed: by ε and δ / by Gaussian noise. A secure sum hides 'single'.")
    least = 1 / (game.targets * game.shadows)
    if least > min(RATES):
        click.echo(f"Thresholds come from {game.targets * game.shadows} rounds: too few for {min(RATES):g}.")
    alarm = 1e-6
    for result in results:
        if result.exceeds(alarm / len(results)):
            what = f"{result.scheme}, {result.level}, {result.view}"
            click.echo(f"{what}: MORE THAN THE CLAIMED ε ALLOWS (false alarms: {alarm:g})")
    click.echo(f"0.5 is a coin. Files: {out}")


def _line(row: dict[str, Any], rates: tuple[float, ...]) -> list[str]:
    def measured(name: str, at: str = "") -> str:
        return f"{row[name + at]:.3f} ({row[f'{name}_low{at}']:.3f}–{row[f'{name}_high{at}']:.3f})"

    line = [row["scheme"], row["level"], row["view"], measured("auc")]
    for rate in rates:
        at = f"_at_{100 * rate:g}%"
        allowed = [row[f"{name}{at}"] for name in ("bound", "gaussian_bound")]
        line += [measured("tpr", at), " / ".join(at_most(value) for value in allowed if value is not None) or "–"]
    return line


def _cohort(values: dict[str, Any]) -> dict[str, Any]:
    """A tenth of the clients, unless the user says how cohorts are drawn."""
    said = any(key.startswith("sampler.") for key in values)
    return {} if said else {"sampler__sampling_rate": 0.1}
