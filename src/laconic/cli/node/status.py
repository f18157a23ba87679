"""`laconic node`: the commands of a data owner; its `status` and `identity`."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from laconic.cli.main import LazyGroup
from laconic.figures import at_most, rounded_up
from laconic.parts import probability

if TYPE_CHECKING:
    from laconic.guard.folder import NodeFolder
    from laconic.guard.policy import Policy


_SUBCOMMANDS = {
    "identity": ("laconic.cli.node.status", "identity"),
    "predict": ("laconic.cli.node.predict", "predict"),
    "serve": ("laconic.cli.node.serve", "serve"),
    "status": ("laconic.cli.node.status", "status"),
    "courier": ("laconic.cli.node.serve", "courier"),
}


class NodeCommands(LazyGroup):
    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in _SUBCOMMANDS and ("/" in args[0] or "." in args[0]):
            raise click.UsageError(f"'{args[0]}' is no command: did you mean 'laconic node status {args[0]}'?", ctx)
        return super().resolve_command(ctx, args)


@click.group(cls=NodeCommands, subcommands=_SUBCOMMANDS)
def node() -> None:
    """A node of a federation: the process of a data owner, which holds the data, the keys, the policy and the log.

    docs/federation.md goes from an exported table to a node that answers, host by host.
    """


_HELLO = 10.0
"""Seconds for a process that hangs: monitoring must not hang with it."""


@click.command()
@click.argument("folder", type=click.Path(path_type=Path))
@click.option(
    "--policy",
    type=click.Path(path_type=Path),
    help="Check a policy file, too.  [the one that it is served with]",
)
@click.option(
    "--delta",
    type=float,
    default=None,
    help="δ of the ε over all runs.  [default: max_delta of the policy, or 1e-5]",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--check", is_flag=True, help="For monitoring: end with exit code 5 if no process answers for the node.")
def status(folder: Path, policy: Path | None, delta: float | None, as_json: bool, check: bool) -> None:
    """How the node in FOLDER is: does its process answer, what did it take part in, ε of each run and of all, refusals.

    \b
    laconic node status /srv/laconic
    laconic node status /srv/laconic --policy policy.toml
    laconic node status /srv/laconic --check > /dev/null || alarm
    """
    from laconic.errors import RunFolderError
    from laconic.guard.folder import NodeFolder
    from laconic.guard.limits import unlimited
    from laconic.guard.policy import Policy, read_policy

    if not (folder.expanduser() / "identity.key").exists():
        raise RunFolderError(f"{folder} is no folder of a node: laconic node identity {folder} makes one")
    process = _process(folder.expanduser())
    named = policy or (process.get("policy") if process["answers"] else None)
    limits = Policy() if named is None else read_policy(named)
    if delta is not None:
        probability(delta=delta)
    files = NodeFolder(folder)
    rows = files.log.rows()
    identity, runs = files.public_identity(), _runs(rows)
    gaps = [] if named is None else unlimited(limits)
    lifetime = _lifetime(rows, limits, delta or limits.max_delta or 1e-5)
    if as_json:
        told: dict[str, Any] = {"identity": identity, "process": process, "runs": runs, "lifetime": lifetime}
        told |= {"attention": files.copied or files.attention, "records": files.bad_records, "unlimited": gaps}
        click.echo(json.dumps(told, ensure_ascii=False))
    else:
        _show(identity, process, policy, gaps, lifetime, files, runs)
    if check and not process["answers"]:
        sys.exit(RunFolderError.exit_code)


@click.command()
@click.argument("folder", type=click.Path(path_type=Path))
def identity(folder: Path) -> None:
    """Print the public identity of the node in FOLDER. A new folder gets a new identity.

    \b
    laconic node identity /srv/laconic

    Servers have one, too: the same file, as server-key. docs/federation.md says who needs to know which.
    """
    from laconic.guard.folder import NodeFolder

    click.echo(NodeFolder(folder).public_identity())


def _process(folder: Path) -> dict[str, Any]:
    """What is known of the process that serves the folder."""
    from laconic.federation.node.serve.hand_over import HELLO, hand_over
    from laconic.federation.node.serve.place import serving
    from laconic.federation.node.serve.served_node import read_state

    state = read_state(folder)
    if serving(folder) is None:
        return {"answers": False}
    answers = "socket" in state and HELLO in hand_over(state["socket"], HELLO, {}, timeout=2.0, within=_HELLO)
    return {"answers": answers, **state}


def _show(
    identity: str,
    process: dict[str, Any],
    policy: Path | None,
    gaps: list[str],
    lifetime: dict[str, Any],
    files: NodeFolder,
    runs: dict[str, Any],
) -> None:
    click.echo(f"identity  {identity}")
    if process["answers"]:
        click.echo(f"process   {process['process']} answers on {process['socket']}, since {process['started']}")
    elif "process" in process:
        click.echo(f"process   {process['process']} is there, but does not answer on {process['socket']}")
    else:
        click.echo("process   none: start it with laconic node serve")
    if policy is not None:
        click.echo(f"policy    {policy} can be read")
    for gap in gaps:
        click.echo(f"policy    {gap}")
    click.echo(_in_words(lifetime))
    for unit in ("patient", "record"):
        if any(row["unit"] == unit for row in runs.values()) or any(lifetime[unit]["limits"].values()):
            click.echo(_of_one(unit, lifetime[unit]))
    if files.copied is not None:
        click.echo(f"attention it takes part in nothing: {files.copied}")
    elif files.attention is not None:
        click.echo(
            f"attention it takes part in nothing until you remove {files.path / 'attention.txt'}: {files.attention}"
        )
    if files.bad_records is not None:
        click.echo(
            f"records   noise alone was sent, as they could not be used: {files.bad_records} (mend them, then remove"
            f" {files.path / 'records.txt'})"
        )
    for run, row in runs.items():
        of = f" of a {row['unit']}" if row["unit"] in ("patient", "record") else ""
        figure = row["participant_epsilon"]
        epsilon = "" if figure is None else f", ε{of} against the server {at_most(figure)}"
        click.echo(f"run       {run}  {row['scheme'] or 'not joined'}: {row['participations']} participations{epsilon}")
        if row["own_metrics"] is not None:
            click.echo(f"  here    {_own(row['own_metrics'])}")
        for refusal in row["refused"]:
            click.echo(f"  refused {refusal['time']}  {refusal['detail'] or refusal['reason']}")


def _own(metrics: dict[str, Any]) -> str:
    """How good the model is on this node's own records, which only its owner sees."""
    named = [f"{name.replace('_', ' ')} {metrics[name]:.4f}" for name in metrics if name not in ("round", "records")]
    what = ", ".join(named) or "nothing"
    return f"{what} on {metrics['records']} records of this node, which it never trains on (round {metrics['round']})"


def _lifetime(rows: list[dict[str, Any]], limits: Policy, delta: float) -> dict[str, Any]:
    """What all runs together have cost, beside what the policy allows; None where it is no finite number."""
    from laconic.federation.node.lifetime import logged_costs, spent

    costs = logged_costs(rows).values()
    figures = spent(costs, delta)
    limited = ("epsilon", "participant_epsilon")

    def of_one(unit: str) -> dict[str, Any]:
        of_unit = spent(costs, delta, unit)
        return {
            **{name: _finite(getattr(of_unit, name)) for name in limited},
            "limits": {name: getattr(limits, f"lifetime_{unit}_{name}") for name in limited},
        }

    return {
        "participations": figures.participations,
        "delta": delta,
        "epsilon": _finite(figures.epsilon),
        "participant_epsilon": _finite(figures.participant_epsilon),
        "limits": {
            name: getattr(limits, f"lifetime_{name}") for name in ("participations", "epsilon", "participant_epsilon")
        },
        **{unit: of_one(unit) for unit in ("patient", "record")},
    }


def _in_words(lifetime: dict[str, Any]) -> str:
    return (
        f"all runs  {_shown(lifetime, 'participations')} participations,"
        f" ε against the servers {_shown(lifetime, 'participant_epsilon')},"
        f" against an outsider {_shown(lifetime, 'epsilon')} (δ = {rounded_up(lifetime['delta'])})"
    )


def _of_one(unit: str, figures: dict[str, Any]) -> str:
    return (
        f"{f'a {unit}':9} ε against the servers {_shown(figures, 'participant_epsilon')},"
        f" against an outsider {_shown(figures, 'epsilon')}"
    )


def _shown(figures: dict[str, Any], name: str) -> str:
    value, limit = figures[name], figures["limits"][name]
    figure = f"{value}" if isinstance(value, int) else at_most(value)
    return figure if limit is None else f"{figure} of {rounded_up(limit)}"


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _runs(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """What the log says, by run."""
    runs: dict[str, Any] = {}
    for row in rows:
        empty: dict[str, Any] = {
            "scheme": None,
            "participations": 0,
            "participant_epsilon": None,
            "unit": None,
            "last": None,
            "own_metrics": None,
            "refused": [],
        }
        run = runs.setdefault(row["run"], empty)
        run["last"] = row["time"]
        if row["what"] == "joined":
            run["scheme"] = row["scheme"]
        elif row["what"] == "uploaded":
            run |= {name: row.get(name) for name in ("participations", "participant_epsilon", "unit")}
        elif row["what"] == "measured":
            run["own_metrics"] = {"round": row["round"], **row["own_metrics"]}
        elif row["what"] == "refused":
            run["refused"].append({"time": row["time"], "reason": row["reason"], "detail": row.get("detail")})
    return runs
