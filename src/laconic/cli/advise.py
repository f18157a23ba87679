"""`laconic advise`: which settings to run, from what can be had and what is promised."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import click

from laconic.cli.options import NUMBER, AllMissing, Number
from laconic.figures import rounded_up

if TYPE_CHECKING:
    from laconic.advice.answer import Advice
    from laconic.advice.question import Setting

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

    advice = answer(**asked)
    if as_json:
        from laconic.store.folder import json_text

        click.echo(json_text(advice.to_dict()))
        return
    _print(advice)


def _print(advice: Advice) -> None:
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
