"""`laconic epsilon` and `laconic calibrate`: the accountant on its own. No torch is imported."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from laconic.cli.options import NUMBER


def _sampler_options(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in reversed(
        (
            click.option("--sampling-rate", type=NUMBER, help="Poisson sampling: each client's probability per round."),
            click.option(
                "--cohort-size", type=int, help="Fixed-size sampling: clients per round (with --num-clients)."
            ),
            click.option("--num-clients", type=int, help="Population, for fixed-size sampling."),
            click.option("--as-published", is_flag=True, help="Account a fixed size as Poisson, as the papers do."),
            click.option("--rounds", type=int, required=True, help="Number of rounds."),
            click.option("--delta", type=NUMBER, default=1e-5, show_default=True, help="δ."),
            click.option("--json", "as_json", is_flag=True, help="Print JSON."),
        )
    ):
        command = option(command)
    return command


@click.command()
@_sampler_options
@click.option("--noise-multiplier", type=NUMBER, required=True, help="σ: the noise in the sum is σ·S.")
@click.option("--participations", type=int, multiple=True, help="Rounds one client takes part in (repeatable).")
def epsilon(
    sampling_rate: float | None,
    cohort_size: int | None,
    num_clients: int | None,
    as_published: bool,
    rounds: int,
    delta: float,
    as_json: bool,
    noise_multiplier: float,
    participations: tuple[int, ...],
) -> None:
    """ε of a run before it is run: against an outsider, and against the server.

    Example: laconic epsilon --sampling-rate 1/60 --noise-multiplier 1.54 --rounds 200 --delta 1e-5
    """
    from laconic.parts import positive_int
    from laconic.privacy.accountant import Accountant
    from laconic.privacy.gaussian import Gaussian

    sampler, population = _sampler(sampling_rate, cohort_size, num_clients, as_published)
    accountant = Accountant(
        sampler=sampler, noise=Gaussian(noise_multiplier=noise_multiplier), num_clients=population, delta=delta
    )
    positive_int(rounds=rounds)
    for count in participations:
        positive_int(participations=count)
    expected = max(1, round(rounds * sampler.rate_in(population)))
    counts = sorted(set(participations) or {1, expected})
    released = accountant.released(rounds).to_dict()
    participant = {count: accountant.participant(count).to_dict() for count in counts}
    if as_json:
        result = {
            "sampler": sampler.to_dict(),
            "adjacency": sampler.adjacency,
            "noise_multiplier": noise_multiplier,
            "rounds": rounds,
            "delta": delta,
            "released": released,
            "participant": {str(count): figures for count, figures in participant.items()},
            "caveat": sampler.caveat or None,
        }
        click.echo(_json(result))
        return
    click.echo(f"δ = {delta:g}, σ = {noise_multiplier:g}, {rounds} rounds, {_described(sampler)}\n")
    click.echo("ε against an outsider, who sees all sums and models but not who took part:")
    click.echo(f"  after {rounds} rounds:  {_figures(released)}")
    click.echo("ε against the server, which knows who took part:")
    for count, figures in participant.items():
        note = " (the average client)" if count == expected and not participations else ""
        click.echo(f"  after {count} participation{'s' * (count > 1)}{note}:  {_figures(figures)}")
    if sampler.caveat:
        click.echo(f"Caveat: {sampler.caveat}.")


@click.command()
@_sampler_options
@click.option("--epsilon", type=NUMBER, required=True, help="The ε to keep, against an outsider.")
def calibrate(
    sampling_rate: float | None,
    cohort_size: int | None,
    num_clients: int | None,
    as_published: bool,
    rounds: int,
    delta: float,
    as_json: bool,
    epsilon: float,
) -> None:
    """The smallest noise multiplier σ that keeps a promised ε, by each accountant.

    Example: laconic calibrate --epsilon 1 --sampling-rate 1/60 --rounds 200 --delta 1e-5
    """
    from laconic.errors import PrivacyError
    from laconic.parts import probability
    from laconic.privacy.accountant import METHODS
    from laconic.privacy.calibrate import calibrate_noise

    probability(delta=delta)
    sampler, population = _sampler(sampling_rate, cohort_size, num_clients, as_published)
    sigmas: dict[str, float | None] = dict.fromkeys(METHODS)
    for method in sampler.figures:
        try:
            sigmas[method] = calibrate_noise(
                epsilon=epsilon, delta=delta, rounds=rounds, sampler=sampler, num_clients=population, method=method
            )
        except PrivacyError:
            if method != "moments":  # moments cannot show a small ε at all; the others may
                raise
    if as_json:
        result = {"epsilon": epsilon, "delta": delta, "rounds": rounds, "sampler": sampler.to_dict()}
        click.echo(_json(result | {"noise_multiplier": sigmas}))
        return
    click.echo(f"σ for ε = {epsilon:g}, δ = {delta:g} after {rounds} rounds, {_described(sampler)}:")
    for method, sigma in sigmas.items():
        click.echo(f"  {method}: {'not available' if sigma is None else f'{sigma:.4f}'}")
    if sampler.caveat:
        click.echo(f"Caveat: {sampler.caveat}.")


def _sampler(sampling_rate: float | None, cohort_size: int | None, num_clients: int | None, as_published: bool) -> Any:
    """(sampler, population)."""
    from laconic.errors import ConfigError
    from laconic.privacy.sampling import AsPublished, FixedSize, Poisson

    if (sampling_rate is None) == (cohort_size is None):
        raise ConfigError("give either --sampling-rate (Poisson) or --cohort-size with --num-clients (fixed size)")
    if sampling_rate is not None:
        if as_published:
            raise ConfigError("--as-published goes with --cohort-size and --num-clients, not with --sampling-rate")
        return Poisson(sampling_rate=sampling_rate), num_clients if num_clients is not None else 1
    if num_clients is None:
        raise ConfigError("--cohort-size needs --num-clients")
    assert cohort_size is not None
    sampler = (AsPublished if as_published else FixedSize)(cohort_size=cohort_size)
    sampler.check(num_clients)
    return sampler, num_clients


def _json(result: dict[str, Any]) -> str:
    from laconic.runtime.folder import json_text

    return json_text(result)


def _described(sampler: Any) -> str:
    options = sampler.to_dict()
    kind = options.pop("kind")
    values = ", ".join(f"{key} {value:g}" for key, value in options.items())
    return f"{kind} sampling ({values}), {sampler.adjacency} adjacency"


def _figures(figures: dict[str, float | None]) -> str:
    return "   ".join(f"{name}: {'not available' if v is None else f'{v:.3f}'}" for name, v in figures.items())
