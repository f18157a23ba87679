"""Before a run: `laconic plan`, what it will promise and cost; `laconic advise`, which settings to use."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import click

from laconic.cli.options import NUMBER, AllMissing, Number, config_values, papers_option, requested_config, run_options
from laconic.figures import rounded_up

if TYPE_CHECKING:
    from collections.abc import Mapping

    from laconic.advice.answer import Advice
    from laconic.advice.question import Setting
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

    from laconic.errors import worded
    from laconic.figures import at_most, rounded_up
    from laconic.privacy.statement import bands_text, evaluations_text, grid_text, query_text, votes_text
    from laconic.report.ledger import human_bytes

    console = Console()
    console.print(
        f"[bold]{result['scheme']}[/bold]: model of {result['size']:,} weights, code of {result['code_size']:,} values,"
        f" {result['num_clients']:,} clients, {result['planned_cohort']:g} a round, {result['rounds']} rounds"
    )
    for line in result.get("chosen", ()):
        console.print(f"auto: {worded(line)}")
    if result["outlook"] is not None:
        light = result["outlook"]["light"]
        console.print(f"[bold {light}]{light}[/]: {worded(result['outlook']['text'])}.")
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


_UNITS = {"kib": 1024, "mib": 1024**2, "kb": 1e3, "mb": 1e6, "gb": 1e9, "k": 1e3, "m": 1e6, "g": 1e9, "b": 1}


class Bytes(Number):
    """A number of bytes; 110.88kB and 2MB are some, too."""

    name = "bytes"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        text = str(value).strip().lower().replace(",", "").replace(" ", "")
        unit = next((unit for unit in _UNITS if text.endswith(unit)), "")
        try:
            return float(text.removesuffix(unit)) * _UNITS.get(unit, 1)
        except ValueError:
            self.fail(f"{value!r} is not a number of bytes (write 110880 or 110.88kB)", param, ctx)


BYTES = Bytes()


@click.command(cls=AllMissing)
@click.option("--num-clients", type=int, required=True, help="Clients in the whole population.")
@click.option("--epsilon", type=NUMBER, required=True, help="The ε to keep.")
@click.option("--delta", type=NUMBER, default=1e-5, show_default=True, help="δ.")
@click.option(
    "--against",
    default="server",
    show_default=True,
    help="server, which knows who took part, or outsider, who does not.",
)
@click.option("--weights", type=int, help="Trained weights of the model.")
@click.option(
    "--classes", type=int, help="Instead: classes of a linear layer behind the front end; features are chosen."
)
@click.option("--features", type=int, help="With --classes: the most features.  [820]")
@click.option("--records", type=int, help="Records of a client: they make one batch.")
@click.option("--bytes-up", type=BYTES, help="Bytes that a client may send in the whole run, on average (110.88kB).")
@click.option("--bytes-down", type=BYTES, help="Bytes that it may receive.")
@click.option("--cohort", type=int, help="How many clients can be had at a time.  [all]")
@click.option("--max-participations", type=int, help="In how many rounds one client can take part.")
@click.option("--max-rounds", type=int, default=1000, show_default=True, help="The most rounds.")
@click.option("--round-seconds", type=NUMBER, help="How long a round takes, as you measured it.")
@click.option("--max-seconds", type=NUMBER, help="With --round-seconds: how long the run may take.")
@click.option(
    "--num-units",
    type=int,
    help="About how many patients all clients hold together: then protecting these, not whole clients, is looked at.",
)
@click.option("--dataset", help="Is put into the command.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def advise(as_json: bool, **asked: Any) -> None:
    """Which settings to run: cohort, rounds, noise and step for a promised ε within bytes and clients.

    Nothing is trained. Every ε is computed by the accountants; settings are ranked by a model of the error that was
    fitted to runs. It also says which limit binds, and what twice as much of it would buy.

    Example: laconic advise --num-clients 6000 --classes 10 --records 10 --epsilon 1 --bytes-up 110.88kB
    --bytes-down 110.88kB --dataset fashion-mnist
    """
    from laconic.advice.answer import advise as answer

    if (command := _auto_command(asked)) is not None:
        text = "The ranking is one of settings for pictures. For a table, this chooses all of them, and says why:"
        click.echo(json.dumps({"command": command}) if as_json else f"{text}\n{command}")
        return
    advice = answer(**asked)
    if as_json:
        from laconic.store.folder import json_text

        click.echo(json_text(advice.to_dict()))
        return
    _print_advice(advice)


def _auto_command(asked: dict[str, Any]) -> str | None:
    """What to run for a table, for which nothing has to be ranked; None for other data."""
    import shlex

    from laconic.data.ehr.blocks import SUFFIXES
    from laconic.data.ehr.sources import EHR_SOURCES
    from laconic.figures import as_flag

    data = asked["dataset"]
    if data is None or not (data in EHR_SOURCES or data.lower().endswith(SUFFIXES)):
        return None
    words = ["laconic", "run", "auto", "--dataset", data, "--epsilon", as_flag(asked["epsilon"])]
    for name in ("delta", "num_units", "max_rounds"):
        value = asked[name]
        if value is not None and value != {"delta": 1e-5, "max_rounds": 1000}.get(name):
            words += [f"--{name.replace('_', '-')}", f"{value:g}"]
    return shlex.join(words)


def _print_advice(advice: Advice) -> None:
    from rich.console import Console
    from rich.table import Table

    question, console = advice.question, Console()
    console.print(
        f"{question.num_clients:,} clients, ε = {rounded_up(question.epsilon)} against the {question.against},"
        f" δ = {rounded_up(question.delta)}\n"
    )
    table = Table(title="Settings, the advised one first", title_justify="left", box=None, show_header=False)
    for name, *cells in _lines([advice.best, *advice.others]):
        table.add_row(name, *cells)
    console.print(table)
    console.print(
        "\nnoise/reach: norm of the noise in the sum of all steps, relative to how far the weights can go. error: by"
        " which settings are ranked, fitted to Fashion-MNIST; other data have other errors. Of all settings but the"
        " first, σ is close to the smallest that keeps the promise."
    )
    console.print(f"\nWhat binds: {', '.join(advice.binding) or 'nothing: more of anything would buy little'}.")
    relaxed = Table(title="Twice as much", title_justify="left", box=None)
    for column in ("of", "to", "lowers the error by", "clients", "rounds", "features"):
        relaxed.add_column(column, justify="left" if column == "of" else "right")
    for r in advice.relaxed:
        relaxed.add_row(
            r.what,
            r.to,
            f"{r.gain:.4f}",
            f"{r.cohort:,}",
            str(r.rounds),
            "–" if r.features is None else str(r.features),
        )
    console.print(relaxed)
    console.print("\nThe run:" if advice.inside is None else "\nThe run that protects whole clients:")
    click.echo(advice.command)
    if advice.whom:
        console.print(f"\n{advice.whom}.")
    if advice.inside is not None:
        found = advice.inside
        console.print(
            f"\nThe run that protects patients (σ = {found.noise_multiplier:g}, {found.rounds} rounds, ε ="
            f" {rounded_up(found.epsilon, 3)} against server and outsider, noise/reach {found.noise_ratio:.2g}). For a"
            " table of your own add --patient-column; of two classes also --prevalence, the publicly known share of the"
            " positives:"
        )
        click.echo(found.command)


def _lines(settings: list[Setting]) -> Iterator[list[str]]:
    """A line for each quantity, with its value in every setting."""

    def line(name: str, shown: Callable[[Setting], str]) -> list[str]:
        return [name, *(shown(setting) for setting in settings)]

    yield line("clients in a round", lambda s: f"{s.cohort:,}")
    yield line("rounds", lambda s: str(s.rounds))
    yield line("participations of a client", _times)
    if settings[0].features is not None:
        yield line("features", lambda s: str(s.features))
    yield line("trained weights", lambda s: f"{s.weights:,}")
    yield line("noise multiplier σ", lambda s: f"{s.noise_multiplier:g}")
    yield line("noise/reach", lambda s: f"{s.noise_ratio:.3f}")
    yield line("ε against the server", lambda s: rounded_up(s.epsilon_server, 3))
    yield line("ε against an outsider", lambda s: rounded_up(s.epsilon_outsider, 3))
    yield line("kB up", lambda s: f"{s.bytes_up / 1000:,.2f}")
    yield line("kB down", lambda s: f"{s.bytes_down / 1000:,.2f}")
    if settings[0].seconds is not None:
        yield line("seconds", lambda s: f"{s.seconds:,.0f}")
    yield line("error", lambda s: f"{s.expected_error:.4f}")


def _times(setting: Setting) -> str:
    if setting.participations is None:
        return f"about {setting.rounds * setting.sampling_rate:.3g}"
    return f"{'≤ ' * (setting.sampling_rate < 1)}{setting.participations}"
