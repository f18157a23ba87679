"""`laconic run`: train, with a live display, into a folder that can be resumed."""

from __future__ import annotations

import contextlib
import shlex
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from laconic.cli.options import config_values, papers_option, requested_config, run_options
from laconic.ranks import under_torchrun

if TYPE_CHECKING:
    from laconic.experiment.experiment import Experiment
    from laconic.observers.observer import Observer
    from laconic.observers.progress import PlainProgress
    from laconic.privacy.released import Summary
    from laconic.ranks.group import Ranks
    from laconic.runner.outcome import RunResult
    from laconic.runner.run import Run
    from laconic.settings.config import RunConfig
    from laconic.store.folder import RunFolder


@click.command()
@click.argument("what", metavar="SCHEME|CONFIG.toml", required=False)
@run_options
@click.option("--out", type=click.Path(path_type=Path), help="Run folder.  [runs/SCHEME-DATASET]")
@click.option("--resume", is_flag=True, help="Go on with the run in --out (or start it, if there is none yet).")
@click.option("--json", "as_json", is_flag=True, help="Print the summary as JSON; progress goes to stderr.")
@papers_option
@click.option("--profile", is_flag=True, help="Say where the time of a round went.")
@click.option("--quiet", is_flag=True, help="No progress display.")
@click.option("--force", is_flag=True, help="Spend ε even where the noise leaves nothing to learn.")
def run(
    what: str | None,
    out: Path | None,
    resume: bool,
    as_json: bool,
    papers: bool,
    profile: bool,
    quiet: bool,
    force: bool,
    sets: tuple[str, ...],
    model_options: tuple[str, ...],
    **options: Any,
) -> None:
    """Train a model over many clients, privately if the scheme is a -dp one.

    \b
    laconic run fl-std --dataset fashion-mnist --num-clients 6000 --sampling-rate 1/60 --rounds 200
    laconic run fl-std-dp --epsilon 4 --clip-norm 0.5 --num-clients 479 --sampling-rate 0.2
    laconic run runs/earlier/config.toml --set seed=1
    laconic run --out runs/fl-std-digits --resume

    Several processes, each with a GPU of its own if there are any: torchrun --nproc-per-node 4 -m laconic run …

    `laconic schemes` lists the schemes, `laconic plan` says beforehand what a run will cost.
    """
    ranks = joined_ranks()
    if ranks is None:
        stop_like_ctrl_c()
    elif ranks.rank > 0:
        train_for_rank_0(ranks)
    with contextlib.nullcontext() if ranks is None else ranks.dismissed():
        values = config_values(options, sets, model_options) | ({"run.profile": True} if profile else {})
        config, asked = requested_config(what, values)
        folder_path = out or default_folder(config, resume)
        show = not (quiet or as_json)
        result = _resumable(config, asked, folder_path, resume, what, show=show, quiet=quiet, force=force, ranks=ranks)
    if as_json:
        from laconic.store.folder import json_text

        click.echo(json_text(result.summary()))
    else:
        print_summary(result.summary(), len(result.history), papers=papers)


def default_folder(config: RunConfig, resume: bool, suffix: str = "", prefix: str = "") -> Path:
    from laconic.errors import ConfigError
    from laconic.store.folder import free_folder

    if resume:
        raise ConfigError("--resume needs the folder of the run: --out runs/NAME")
    scheme = config.scheme.name.rpartition(":")[2].replace("_", "-")
    return free_folder(Path("runs"), f"{prefix}{scheme}-{Path(config.data.dataset).stem}{suffix}")


def _resumable(
    config: RunConfig,
    asked: dict[str, Any],
    path: Path,
    resume: bool,
    what: str | None,
    *,
    show: bool,
    quiet: bool,
    force: bool = False,
    ranks: Ranks | None = None,
) -> RunResult:
    """Start or go on with the run in the folder; with several ranks, this is rank 0."""
    from laconic.runner.run import Run, run_in
    from laconic.settings.build import files_of, resumed_config, settle, tracked
    from laconic.store.folder import RunFolder

    folder = RunFolder(path)
    unfinished = (".lock", "checkpoint", "config.toml.new")  # all that a kill before the first round leaves
    check_folder(folder, resume, what, unfinished)
    if folder.exists:
        config = resumed_config(folder, asked)
    following = tracked(config)  # which may need something that is not installed
    if ranks is None:
        settled, clients = settle(config, stored=path), None
    else:
        from laconic.ranks.start import about_idle, lead

        settled, clients = lead(ranks, config, path, new=not folder.exists)
        if (idle := about_idle(clients)) is not None:
            print(f"laconic: warning: {idle}", file=sys.stderr)
    if show:
        from laconic.errors import worded

        for line in settled.chosen:
            print(f"auto  {worded(line)}")
        outlook = settled.config.privacy.outlook or ""
        if outlook.startswith("yellow"):
            print(f"Before the run: {worded(outlook)}")
    print_cautions(settled.experiment)
    if not folder.exists and not force:
        refuse_hopeless(settled.experiment)
    with run_in(folder, Run(settled.experiment, clients=clients), files_of(settled)) as simulation:
        return _simulate(simulation, folder, following, show=show, quiet=quiet)


def check_folder(folder: RunFolder, resume: bool, what: str | None, unfinished: tuple[str, ...]) -> None:
    """Refuse a folder that holds something else, or a run that was not to go on."""
    from laconic.errors import ConfigError, RunFolderError

    path = folder.path
    if folder.exists and not resume:
        raise RunFolderError(f"{path} holds a run already: add --resume to go on with it, or choose another --out")
    if not folder.exists and what is None:
        raise ConfigError("name a scheme or a configuration, such as fl-std (see laconic schemes)")
    if not folder.exists and path.is_dir() and any(p.name not in unfinished for p in path.iterdir()):
        raise RunFolderError(f"{path} is not a run folder and not empty: choose another --out")


def refuse_hopeless(experiment: Experiment) -> None:
    """Spend nothing on noise alone, unless that is asked for."""
    from laconic.errors import ConfigError
    from laconic.experiment.outlook import outlook_of

    found = outlook_of(experiment)
    if found is not None and found.light == "red":
        raise ConfigError(f"{found.text}; or spend it all the same (⟨force⟩)")


def print_cautions(experiment: Experiment) -> None:
    """What makes the promise, or the model, worth little, before anything is trained."""
    from laconic.experiment.mechanism import planned_cautions, untested

    for text in [*planned_cautions(experiment), *untested(experiment)]:
        print(f"laconic: warning: {text}", file=sys.stderr)


def display_for(experiment: Experiment, *, show: bool, quiet: bool) -> PlainProgress:
    """A live bar on a terminal, lines elsewhere."""
    from laconic.observers.progress import LiveProgress, PlainProgress

    progress = LiveProgress if show and sys.stderr.isatty() else PlainProgress
    return progress(experiment.rounds, experiment.best_by, quiet=quiet)


def _simulate(simulation: Run, folder: RunFolder, following: Observer, *, show: bool, quiet: bool) -> RunResult:
    from laconic.errors import RankLost
    from laconic.observers.observer import Together
    from laconic.own_code import needed

    display = display_for(simulation.experiment, show=show, quiet=quiet)
    simulation.observer = Together(display, following)
    try:
        with display:
            return simulation.run()
    except (KeyboardInterrupt, RankLost) as ended:
        finished = simulation.state.rounds if hasattr(simulation, "state") else 0
        command = shlex.join([*started_as(simulation), "run", "--out", str(folder.path), "--resume", *needed(sys.argv)])
        if isinstance(ended, RankLost):
            raise RankLost(f"{ended}, after round {finished}, which is saved; go on with: {command}") from None
        print(f"laconic: interrupted after round {finished}; go on with: {command}", file=sys.stderr)
        sys.exit(130)


def started_as(simulation: Run) -> list[str]:
    """The beginning of the command that goes on with it."""
    ranks = simulation.clients.num_ranks
    return ["laconic"] if ranks == 1 else ["torchrun", "--nproc-per-node", str(ranks), "-m", "laconic"]


def print_summary(summary: Summary, rounds: int, *, papers: bool) -> None:
    from rich.console import Console
    from rich.table import Table

    from laconic.privacy.statement import statement_lines
    from laconic.report.summary_lines import ledger_lines, not_better, result_lines

    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    privacy = statement_lines(summary["statement"], papers=papers)
    for heading, text in [*result_lines(summary), *privacy, *ledger_lines(summary["ledger"], papers=papers)]:
        table.add_row(heading, text)
    ranks = f", {summary['ranks']} ranks" if "ranks" in summary else ""
    table.add_row("Time", f"{summary['seconds']:.1f} s{ranks}")
    for name, seconds in (summary["profile"] or {}).items():
        table.add_row(f"  {name}", f"{seconds:.3f} s, {seconds / max(1, rounds):.4f} s a round")
    if summary["folder"] is not None:
        table.add_row("Run folder", summary["folder"])
        table.add_row("Report", str(Path(summary["folder"]) / "report.html"))
    console = Console(soft_wrap=False)
    console.print(table)
    if said := not_better(summary):
        console.print(f"Attention: the model is {said}", markup=False, highlight=False)


def joined_ranks() -> Ranks | None:
    """The processes that torchrun started for this run; None if it did not."""
    if not under_torchrun():
        return None
    from laconic.ranks.group import Ranks

    stop_once()
    return Ranks.join(when_lost=ignore_signals)


def train_for_rank_0(ranks: Ranks) -> NoReturn:
    """Any other rank, until it ends. It says nothing, unless rank 0 is gone and cannot."""
    from laconic.errors import RankLost
    from laconic.ranks.start import follow

    try:
        follow(ranks)
    except KeyboardInterrupt:
        sys.exit(130)
    except RankLost as lost:
        print(f"laconic: error: rank {ranks.rank}: {lost}", file=sys.stderr)
        sys.exit(lost.exit_code)
    sys.exit(0)


def stop_once() -> None:
    """The first signal stops the run, and no other disturbs it while it saves: torchrun hands on Ctrl-C, too."""

    def interrupt(*_: Any) -> None:
        ignore_signals()
        raise KeyboardInterrupt

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, interrupt)


def ignore_signals() -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)


def stop_like_ctrl_c() -> None:
    """A polite kill leaves a resumable run too."""

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, interrupt)
