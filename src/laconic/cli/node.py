"""`laconic node`: who a node is, and what it took part in."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click


@click.command()
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--policy", type=click.Path(path_type=Path), help="Check a policy file, too.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def node(folder: Path, policy: Path | None, as_json: bool) -> None:
    """The public identity of the node in FOLDER, and its log: runs, participations, ε, refusals.

    \b
    laconic node /srv/laconic
    laconic node /srv/laconic --policy policy.toml

    A new folder gets a new identity. Servers have one, too: the same file, as server-key. docs/flower.md says who needs
    to know which.
    """
    from laconic.runtime.federation.node_folder import NodeFolder
    from laconic.runtime.federation.policy import read_policy

    if policy is not None:
        read_policy(policy)
    files = NodeFolder(folder)
    identity, runs = files.identity().public_key().public_bytes_raw().hex(), _runs(files.log.rows())
    if as_json:
        click.echo(json.dumps({"identity": identity, "runs": runs}, ensure_ascii=False))
        return
    click.echo(f"identity  {identity}")
    if policy is not None:
        click.echo(f"policy    {policy} is in order")
    for run, row in runs.items():
        epsilon = (
            "" if row["participant_epsilon"] is None else f", ε against the server {row['participant_epsilon']:.3f}"
        )
        click.echo(f"run       {run}  {row['scheme'] or 'not joined'}: {row['participations']} participations{epsilon}")
        for refusal in row["refused"]:
            click.echo(f"  refused {refusal['time']}  {refusal['reason']}")


def _runs(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """What the log says, by run."""
    runs: dict[str, Any] = {}
    for row in rows:
        empty: dict[str, Any] = {
            "scheme": None,
            "participations": 0,
            "participant_epsilon": None,
            "last": None,
            "refused": [],
        }
        run = runs.setdefault(row["run"], empty)
        run["last"] = row["time"]
        if row["what"] == "joined":
            run["scheme"] = row["scheme"]
        elif row["what"] == "uploaded":
            run |= {name: row[name] for name in ("participations", "participant_epsilon")}
        elif row["what"] == "refused":
            run["refused"].append({"time": row["time"], "reason": row["reason"]})
    return runs
