"""`laconic federate`: the same run over separate processes on this machine, on Flower."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from laconic.cli.options import config_values, papers_option, requested_config, run_options
from laconic.cli.run import check_folder, default_folder, display_for, print_cautions, print_summary, stop_like_ctrl_c

if TYPE_CHECKING:
    from laconic.experiment.experiment import Experiment
    from laconic.privacy.released import Summary
    from laconic.settings.config import RunConfig
    from laconic.store.folder import RunFolder


@click.command()
@click.argument("what", metavar="SCHEME|CONFIG.toml", required=False)
@click.option(
    "--nodes",
    type=int,
    default=None,
    help="How many nodes to start, each with one client's data.  [as many clients as the data have, or 5]",
)
@click.option(
    "--policy",
    "policies",
    multiple=True,
    metavar="[NODE=]FILE",
    help="The policy of all nodes, or of one (0, 1, …).  [one that allows this run]",
)
@run_options
@click.option("--out", type=click.Path(path_type=Path), help="Run folder.  [runs/SCHEME-DATASET-federation]")
@click.option("--resume", is_flag=True, help="Go on with the run in --out (or start it, if there is none yet).")
@click.option("--json", "as_json", is_flag=True, help="Print the summary as JSON; progress goes to stderr.")
@papers_option
@click.option("--quiet", is_flag=True, help="No progress display.")
def federate(
    what: str | None,
    nodes: int | None,
    policies: tuple[str, ...],
    out: Path | None,
    resume: bool,
    as_json: bool,
    papers: bool,
    quiet: bool,
    sets: tuple[str, ...],
    model_options: tuple[str, ...],
    **options: Any,
) -> None:
    """Run a federation of separate processes on this machine: Flower's SuperLink and SuperNodes, with TLS.

    \b
    laconic federate fl-std-dp --clip-norm 0.5 --noise-multiplier 1 --sampling-rate 1 --rounds 3
    laconic federate examples/federation.toml --nodes 5
    laconic federate --out runs/fl-std-dp-digits-federation --resume

    It is a trial: certificates and keys are made for it, and end with it. docs/federation.md says how to run the
    same on real hosts.
    """
    stop_like_ctrl_c()
    given = {} if nodes is None else {"federation.nodes": nodes}
    config, asked = requested_config(what, config_values(options, sets, model_options) | given)
    config = _dealt_to(config, nodes)
    path = out or default_folder(config, resume, "-federation")
    summary = _federated(config, asked, path, policies, resume, what, show=not (quiet or as_json), quiet=quiet)
    if as_json:
        from laconic.store.folder import json_text

        click.echo(json_text(summary))
    else:
        print_summary(summary, summary["rounds"], papers=papers)
    _check_complete(summary)


def _federated(
    config: RunConfig,
    asked: dict[str, Any],
    path: Path,
    policies: tuple[str, ...],
    resume: bool,
    what: str | None,
    *,
    show: bool,
    quiet: bool,
) -> Summary:
    """Start or go on with the federation in the folder."""
    from laconic.settings.build import resumed_config, tracked
    from laconic.store.folder import RunFolder

    _need_flower()
    folder = RunFolder(path)
    left = (".lock", "checkpoint", "config.toml.new", "federation", "failure.json", "notices.jsonl", "process.json")
    check_folder(folder, resume, what, left)
    if folder.exists:
        config = resumed_config(folder, asked)
    tracked(config)  # the server does it; what is not installed is said here
    experiment, config = _checked(config)
    print_cautions(experiment)
    folder.make()
    return _supervised(experiment, config, folder, _policies(policies), show=show, quiet=quiet)


def _supervised(
    experiment: Experiment,
    config: RunConfig,
    folder: RunFolder,
    policies: dict[int | None, str],
    *,
    show: bool,
    quiet: bool,
) -> Summary:
    from laconic.federation.server.members import Settings
    from laconic.federation.trial.processes import Processes
    from laconic.federation.trial.trial import Supervisor, Trial, trial_policy
    from laconic.own_code import needed

    display = display_for(experiment, show=show, quiet=quiet)

    def notice(text: str) -> None:
        if not quiet:
            display.note(text)

    supervisor = None
    try:
        with Processes(folder.path / "federation" / "lock") as processes, display:
            nodes = experiment.population.num_clients
            trial = Trial(folder.path / "federation", nodes, processes)
            spare = Settings.of(config.federation).spare_rounds
            default = policies.get(None) or trial_policy(experiment, trial.server_name(), spare)
            trial.write_policies({n: text for n, text in policies.items() if n is not None}, default)
            notice(_allowance(experiment, spare))
            notice(f"starting a SuperLink and {nodes} nodes on this machine")
            trial.start(config)
            supervisor = Supervisor(trial, folder, on_row=display.row, on_notice=notice)
            return supervisor.run(config)
    except KeyboardInterrupt:
        finished = supervisor.finished_rounds if supervisor else 0
        command = shlex.join(["laconic", "federate", "--out", str(folder.path), "--resume", *needed(sys.argv)])
        print(f"laconic: interrupted after round {finished}; go on with: {command}", file=sys.stderr)
        sys.exit(130)


def _allowance(experiment: Experiment, spare: int) -> str:
    """What the nodes are asked to agree to."""
    from laconic.federation.node.refusals import planned_epsilons
    from laconic.figures import at_most

    text = f"{experiment.rounds} rounds, and {spare} spare ones for rounds that are repeated after a crash"
    if experiment.budget is None:
        return text
    outsider, server = planned_epsilons(experiment.mechanism, spare)
    return f"{text}: ε is at most {at_most(outsider)} against an outsider and {at_most(server)} against the server"


def _check_complete(summary: Summary) -> None:
    """A run whose planned model was not trained is no success."""
    from laconic.errors import Incomplete

    missing = summary["federation"]["incomplete"] if "federation" in summary else ""
    if missing:
        print(f"laconic: error: the planned model was not trained: {missing}", file=sys.stderr)
        sys.exit(Incomplete.exit_code)


def _dealt_to(config: RunConfig, nodes: int | None) -> RunConfig:
    """With --nodes, records that are dealt out are dealt to these nodes."""
    from laconic.settings.data.datasets import says_its_clients

    if nodes is None or says_its_clients(config.data):
        return config
    return config.with_values({"data.num_clients": nodes})


def _checked(config: RunConfig) -> tuple[Experiment, RunConfig]:
    """The experiment, for the display and for mistakes that can be seen before anything is started."""
    from laconic.errors import ConfigError
    from laconic.federation.server.members import Settings, resolve_federated
    from laconic.runner.progress import Spending
    from laconic.settings.data.datasets import says_its_clients

    nodes = Settings.of(config.federation).nodes
    natural = says_its_clients(config.data)
    if not natural and config.data.num_clients is None:
        config = config.with_values({"data.num_clients": nodes})
    experiment = resolve_federated(config).experiment
    found = experiment.population.num_clients
    if found != nodes and (not natural or config.federation.nodes is not None):
        raise ConfigError(f"{nodes} nodes, but the data are of {found} clients: give --nodes {found}")
    config = config.with_values({"federation.nodes": found})
    Spending(experiment).check_first_round()
    return experiment, config


def _policies(given: tuple[str, ...]) -> dict[int | None, str]:
    """The text of each policy, by node; None is everyone's."""
    from laconic.errors import ConfigError
    from laconic.guard.policy import read_policy

    found: dict[int | None, str] = {}
    for text in given:
        head, equals, tail = text.partition("=")
        number = int(head) if equals and head.isdecimal() else None
        path = Path(tail if number is not None else text).expanduser()
        read_policy(path)
        try:
            found[number] = path.read_text()
        except OSError as error:
            raise ConfigError(f"--policy {text}: {error.strerror}") from None
    return found


def _need_flower() -> None:
    from importlib.util import find_spec

    from laconic.errors import ConfigError, how_to_install

    if find_spec("flwr") is None:
        raise ConfigError(f"laconic federate needs Flower: {how_to_install('flower')}")
