"""`laconic plan`: what a run will promise and cost, before anything is trained."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from laconic.cli.options import config_values, papers_option, requested_config, run_options

if TYPE_CHECKING:
    from collections.abc import Mapping

    from laconic.privacy.released import GroupFields
    from laconic.settings.forecast import Forecast


@click.command()
@click.argument("what", metavar="SCHEME|CONFIG.toml")
@run_options
@papers_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def plan(
    what: str, papers: bool, as_json: bool, sets: tuple[str, ...], model_options: tuple[str, ...], **options: Any
) -> None:
    """σ or ε, bytes and memory of a run, without running it. Takes the options of `laconic run`."""
    from laconic.settings.forecast import forecast
    from laconic.store.folder import json_text

    config, _ = requested_config(what, config_values(options, sets, model_options))
    result = forecast(config)
    if as_json:
        click.echo(json_text(result))
        return
    _print(result, papers)


def _print(result: Forecast, papers: bool) -> None:
    from rich.console import Console
    from rich.table import Table

    from laconic.figures import at_most, rounded_up
    from laconic.privacy.statement import bands_text, evaluations_text, grid_text, query_text, votes_text
    from laconic.report.ledger import human_bytes

    console = Console()
    console.print(
        f"[bold]{result['scheme']}[/bold]: model of {result['size']:,} weights, code of {result['code_size']:,} values,"
        f" {result['num_clients']:,} clients, {result['planned_cohort']:g} a round, {result['rounds']} rounds"
    )
    front_end = result["front_end"]
    if front_end:
        size = human_bytes(front_end["projection_bytes"])
        features = f"{front_end['features']:,} of {front_end['available']:,} {front_end['name']} features"
        projection = f", a public projection of {size} that is not sent" if front_end["projection_bytes"] else ""
        console.print(f"front end: {features}{projection}")
    privacy = result["privacy"]
    if privacy:
        clip = "measured before the first round" if privacy["clip_norm"] is None else f"{privacy['clip_norm']:g}"
        console.print(
            f"noise multiplier σ = {privacy['noise_multiplier']:g}, clip norm S = {clip},"
            f" δ = {rounded_up(privacy['delta'])}, {privacy['adjacency']} adjacency"
        )
        if privacy["unit"] != "client":
            console.print(f"protected is {privacy['protects']}")
        for title, found, unit, quoted in (
            ("ε against an outsider", privacy["released"], "rounds", privacy["accountant"]),
            ("ε against the server", privacy["participant"], "participations", "pld"),
        ):
            if unit == "participations" and privacy.get("server_covered") is False:
                console.print(f"{title}: none, as the server adds the noise itself (central)")
                continue
            shown = ["moments", "rdp", "pld"] if papers else [quoted]
            table = Table(unit, *shown if papers else ["ε"], title=title, title_justify="left", box=None)
            for count, figures in found.items():
                cells = ["not available" if (v := figures[name]) is None else at_most(v) for name in shown]
                table.add_row(str(count), *cells)
            console.print(table)
        if papers and privacy["published"] is not None:
            console.print(f"as published (CHIL'21, Theorem 3.1; not proven): moments {at_most(privacy['published'])}")
        if "correlation" in privacy:
            console.print(f"correlated noise: {bands_text(privacy['correlation'])}")
        if privacy["grid"]:
            console.print(f"grid: {grid_text(privacy['grid'], '·S' if privacy['clip_norm'] is None else '')}")
        elif privacy["unit"] == "client":
            console.print("continuous noise: float32, for studies; it cannot be masked")
        for text in privacy["cautions"]:
            console.print(f"Caution: {text}.")
        if privacy["caveat"]:
            console.print(f"Caveat: {privacy['caveat']}.")
    else:
        console.print("No differential privacy: this scheme adds no noise.")
    if result["groups"]:
        console.print(groups_text(result["groups"]))
    if result["group_testing"]:
        console.print(testing_text(result["group_testing"]))
    if result["votes"]:
        console.print(f"{votes_text(result['votes'])}.")
        console.print(
            f"votes up: {result['votes']['bytes_up_per_client_and_round']:,} bytes per client and round"
            f" ({result['votes']['bits_up_per_value']} bits a value); the chosen weights are told to a client once, in"
            f" {result['votes']['bytes_once_per_client']:,} bytes"
        )
    if result["evaluations"]:
        console.print(f"{evaluations_text(result['evaluations'])}.")
        console.print(
            f"evaluations up: {result['evaluations']['bytes_up_per_client_and_round']:,} bytes per client and round"
            f" ({result['evaluations']['bits_up_per_value']} bits a value)"
        )
    for name, query in result.get("queries", {}).items():
        console.print(f"{query_text(query)}.")
        console.print(f"{name} up: {query['bytes_up_per_client_and_round']:,} bytes per client and round")
    costs: Mapping[str, Any] = result
    for direction in ("up", "down"):
        bits = f"{costs[f'bits_{direction}_per_value']} bits a value"
        if papers and direction == "up" and privacy and privacy["bits_by_the_papers"] != result["bits_up_per_value"]:
            bits += f", {privacy['bits_by_the_papers']:g} by the papers' formula"
        each, total = costs[f"bytes_{direction}_per_client_and_round"], costs[f"bytes_{direction}_in_all"]
        formula = costs[f"formula_bytes_{direction}_per_client_in_all"]
        theirs = f"; papers' formula per client over the run: {human_bytes(formula)}" if papers else ""
        console.print(f"{direction}: {each:,} bytes per client and round ({bits}), {human_bytes(total)} in all{theirs}")
    memory = result["memory_bytes"]
    what = "data and training" if result["noise_seconds_per_round"] is None else "data, training and noise"
    console.print(f"memory: about {human_bytes(memory)} for {what} ({result['engine']} engine)")
    if result["noise_seconds_per_round"] is not None:
        each, total = result["noise_seconds_per_round"], result["noise_seconds_per_round"] * result["rounds"]
        console.print(f"noise: about {each:.2g} s a round on this machine, {total:.2g} s in all; training comes on top")


def groups_text(groups: GroupFields) -> str:
    """What groups cost and what they stand, in a sentence each."""
    kind = groups["aggregator"]["kind"]
    count, size, of_mean = groups["groups"], groups["planned_size"], groups["noise_factor_of_the_mean"]
    return (
        f"{count} groups of {size:g} clients, each with the whole noise: in a step the noise is"
        f" {groups['noise_factor']:.3g} times that of one sum ({of_mean:.3g} for the mean of the groups). One attacker"
        f" spoils one group; {kind} stands {groups['spoilt_groups_tolerated']} spoilt groups, for any vectors sent."
    )


def testing_text(testing: dict[str, Any]) -> str:
    """What group testing notices, how soon, and what an attacker below that can do."""
    rounds = testing["rounds_to_exclude"]
    found = ", ".join(
        f"{norm}·S {'never' if count is None else f'after about {count:.0f} rounds'}" for norm, count in rounds.items()
    )
    return (
        f"group testing: a group is taken for spoilt from about {testing['noticed_from']:.3g}·S on that one attacker"
        f" sends ({testing['noticed_in_one_sum_from']:.3g}·S in one sum), and honest ones in"
        f" {100 * testing['false_alarms_per_round']:g} % of the rounds at most. {testing['attackers']} attackers that"
        f" send so much are excluded: {found}; and {testing['false_exclusions']:g} honest clients or fewer, on average."
        f" One that stays below moves the mean by about {testing['hidden_bias']:.3g}·S in a round of groups,"
        f" {testing['hidden_bias_to_noise']:.3g} times the norm of the noise in it"
        f" ({testing['hidden_bias_at_most']:.3g}·S if it sends against honest clients that all agree), and by"
        f" {testing['hidden_bias_in_one_sum']:.3g}·S in a round of one sum."
    )
