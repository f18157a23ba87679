"""`laconic audit`: lower bounds on ε beside the claims, for server and outsider."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from laconic.cli.options import NUMBER, config_values, requested_config, run_options

if TYPE_CHECKING:
    from laconic.audit.result import AuditResult

VIOLATED_EXIT = 8


@click.command()
@click.argument("what", metavar="SCHEME|CONFIG.toml")
@run_options
@click.option("--canaries", type=int, default=1000, help="Canary clients in one run of the experiment itself.  [1000]")
@click.option("--trials", type=int, default=20_000, help="Canaries of short runs with its mechanism.  [20000]")
@click.option("--confidence", type=NUMBER, default=0.99, help="That all bounds are right together.  [0.99]")
@click.option("--against", default="both", help="server, outsider or both.  [both]")
@click.option("--out", type=click.Path(path_type=Path), help="Folder of the result.  [runs/audit-SCHEME-DATASET]")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON; progress goes to stderr.")
@click.option("--quiet", is_flag=True, help="No progress display.")
def audit(
    what: str,
    canaries: int,
    trials: int,
    confidence: float,
    against: str,
    out: Path | None,
    as_json: bool,
    quiet: bool,
    sets: tuple[str, ...],
    model_options: tuple[str, ...],
    **options: Any,
) -> None:
    """Try to refute the ε of a run: what can be learnt of a client, beside what is claimed.

    \b
    laconic audit fl-top-dp --ratio 0.1 --public-records 10 --epsilon 4 --clip-norm 0.5 --num-clients 400 \\
      --sampling-rate 0.2 --rounds 20

    Takes the options of `laconic run`. Exit code 8 if a claim is refuted or a check fails, 0 otherwise.
    """
    from laconic.audit.audit import audit_experiment, check_options
    from laconic.cli.run import default_folder, print_cautions
    from laconic.settings.build import settle
    from laconic.settings.config import write_toml
    from laconic.store.folder import RunFolder, json_text

    check_options(canaries=canaries, trials=trials, confidence=confidence, against=against)
    config, _ = requested_config(what, config_values(options, sets, model_options))
    folder = RunFolder(out or default_folder(config, resume=False, prefix="audit-"))
    _check_free(folder)
    settled = settle(config)
    print_cautions(settled.experiment)
    result = audit_experiment(
        settled.experiment,
        canaries=canaries,
        trials=trials,
        confidence=confidence,
        against=against,
        tick=_Ticker(quiet=quiet),
    )
    folder.make()
    folder.write("audit.toml", write_toml(settled.config.to_dict()))
    folder.write("audit.json", json_text(result.to_dict(), indent=2) + "\n")
    if as_json:
        click.echo(json_text(result.to_dict()))
    else:
        _print(result, folder.path)
    if result.violated:
        sys.exit(VIOLATED_EXIT)


def _check_free(folder: Any) -> None:
    from laconic.errors import RunFolderError

    if folder.path.exists() and (not folder.path.is_dir() or any(folder.path.iterdir())):
        raise RunFolderError(f"{folder.path} is there already, and not empty: choose another --out")


class _Ticker:
    """A line on stderr every few seconds."""

    def __init__(self, *, quiet: bool, seconds: float = 5.0) -> None:
        self._quiet, self._seconds, self._last = quiet, seconds, time.monotonic()

    def __call__(self, what: str, done: int, of: int) -> None:
        now = time.monotonic()
        if not self._quiet and (now - self._last > self._seconds or done == of):
            print(f"{what} {done}/{of}", file=sys.stderr, flush=True)
            self._last = now


def _print(result: AuditResult, path: Path) -> None:
    from rich.console import Console
    from rich.table import Table

    from laconic.audit.result import VIOLATED
    from laconic.figures import at_least, at_most, rounded_up

    console = Console()
    console.print(f"[bold]{result.scheme}[/bold], lower bounds on ε at δ = {rounded_up(result.delta)}", highlight=False)
    table = Table("who", "ε of", "how", "claimed", "at least", "verdict", box=None)
    for bound in result.bounds:
        how = bound.how if bound.delta == result.delta else f"{bound.how}: {rounded_up(bound.delta)}"
        claimed, lower = at_most(bound.claimed), at_least(bound.lower)
        table.add_row(bound.adversary, bound.about, how, claimed, lower, bound.verdict)
    console.print(table)
    estimates = [f"{b.adversary}, {b.how}: {b.estimate:.2f}" for b in result.bounds if b.estimate is not None]
    if estimates:
        console.print(f"estimates of ε, without a proof: {'; '.join(estimates)}", highlight=False)
    table = Table("check", "verdict", "found; expected", box=None)
    for check in result.checks:
        table.add_row(check.name, check.verdict, f"{check.found}; {check.expected}")
    console.print(table)
    console.print(
        f"All bounds are right together with {100 * result.confidence:g} % confidence; estimates have no proof."
        f" If everything is as claimed, the audit says {VIOLATED} with a probability of"
        f" {1 - result.confidence:.2g} at most.",
        highlight=False,
    )
    for text in result.violations:
        console.print(f"{VIOLATED}: {text}", highlight=False)
    console.print(f"Verdict: {result.verdict}. {path / 'audit.json'} has the numbers. {result.seconds:.1f} s")
