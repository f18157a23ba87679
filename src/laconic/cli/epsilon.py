"""`laconic epsilon` and `laconic calibrate`: the accountant on its own. No torch is imported."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from laconic.cli.options import NUMBER, AllMissing, papers_option
from laconic.figures import at_most, rounded_up

if TYPE_CHECKING:
    from laconic.privacy.accounting.accountant import RunAccountant


def _sampler_options(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in reversed(
        (
            click.option("--sampling-rate", type=NUMBER, help="Poisson sampling: each client's probability per round."),
            click.option(
                "--cohort-size", type=int, help="Fixed-size sampling: clients per round (with --num-clients)."
            ),
            click.option("--separation", type=int, help="Clients take turns: each in every so many rounds."),
            click.option(
                "--noise-bands",
                type=int,
                default=1,
                help="With --separation: noise that the server adds, correlated over so many rounds.  [1]",
            ),
            click.option("--momentum", type=NUMBER, default=0.0, help="With --noise-bands: that of the server.  [0]"),
            click.option("--num-clients", type=int, help="Population: for fixed-size sampling, and to check δ."),
            click.option("--as-published", is_flag=True, help="Account a fixed size as Poisson, as the papers do."),
            click.option(
                "--record-rate",
                type=NUMBER,
                help="Protect single records: the largest probability of a record to be drawn in a client's step.",
            ),
            click.option("--local-steps", type=int, default=1, help="With --record-rate: a client's steps.  [1]"),
            click.option("--rounds", type=int, required=True, help="Number of rounds."),
            click.option("--delta", type=NUMBER, default=1e-5, show_default=True, help="δ."),
            click.option("--allow-large-delta", is_flag=True, help="Take a δ of 1/clients or more."),
            papers_option,
            click.option("--json", "as_json", is_flag=True, help="Print JSON."),
        )
    ):
        command = option(command)
    return command


@click.command(cls=AllMissing)
@_sampler_options
@click.option("--noise-multiplier", type=NUMBER, required=True, help="σ: the noise in the sum is σ·S.")
@click.option("--participations", type=int, multiple=True, help="Rounds one client takes part in (repeatable).")
def epsilon(
    sampling_rate: float | None,
    cohort_size: int | None,
    separation: int | None,
    noise_bands: int,
    momentum: float,
    num_clients: int | None,
    as_published: bool,
    record_rate: float | None,
    local_steps: int,
    rounds: int,
    delta: float,
    allow_large_delta: bool,
    papers: bool,
    as_json: bool,
    noise_multiplier: float,
    participations: tuple[int, ...],
) -> None:
    """ε of a run before it is run: against an outsider, and against the server.

    Example: laconic epsilon --sampling-rate 1/60 --noise-multiplier 1.54 --rounds 200 --delta 1e-5
    """
    from laconic.parts import positive_int

    sampler, population = _sampler(sampling_rate, cohort_size, separation, num_clients, as_published)
    made = _accountant(
        sampler, population, delta, record_rate, local_steps, _bands(sampler, noise_bands, rounds, momentum)
    )
    accountant = made(noise_multiplier)
    _check_delta(accountant, delta, allow_large_delta)
    positive_int(rounds=rounds)
    for count in participations:
        positive_int(participations=count)
    expected = sampler.usual_participations(rounds, population)
    counts = sorted(set(participations) or {1, expected})
    released, published = accountant.released(rounds).to_dict(), accountant.published(rounds)
    promise, caveat = accountant.promise, "; ".join(accountant.promise.caveats)
    participant = {count: accountant.participant(count).to_dict() for count in counts}
    warned = _cautions(
        accountant, delta, num_clients, accountant.released_epsilon(rounds), accountant.participant_epsilon(counts[-1])
    )
    if as_json:
        result = {
            "sampler": sampler.to_dict(),
            "unit": promise.one,
            "adjacency": promise.relation,
            "noise_multiplier": noise_multiplier,
            "rounds": rounds,
            "delta": delta,
            "released": released,
            "participant": {str(count): figures for count, figures in participant.items()},
            "published": published,
            "caveat": caveat or None,
            "cautions": warned,
        }
        click.echo(_json(result))
        return
    head = (
        f"δ = {rounded_up(delta)}, σ = {noise_multiplier:g}, {rounds} rounds, {_described(sampler)},"
        f" {promise.relation} adjacency"
    )
    click.echo(head + "\n")
    outsider = "sees all sums and models but not who took part"
    if promise.one == "record":
        click.echo(f"Protected is {promise.unit}.")
    if promise.one == "record" or not promise.covers_server:
        outsider = promise.released
    click.echo(f"ε against an outsider, who {outsider}:")
    click.echo(f"  after {rounds} rounds:  {_figures(released, None if papers else accountant.method)}")
    if papers and published is not None:
        click.echo(f"  as published (CHIL'21, Theorem 3.1; not proven):  moments: {at_most(published)}")
    if not promise.covers_server:
        click.echo("ε against the server: none, as it adds the noise itself (central)")
        participant = {}
    else:
        click.echo("ε against the server, which knows who took part:")
    for count, figures in participant.items():
        usual = "the average client" if sampler.amplifies else "the busiest client"
        note = f" ({usual})" if count == expected and not participations else ""
        click.echo(
            f"  after {count} participation{'s' * (count > 1)}{note}:  {_figures(figures, None if papers else 'pld')}"
        )
    if caveat:
        click.echo(f"Caveat: {caveat}.")
    for text in warned:
        click.echo(f"Caution: {text}.")


@click.command(cls=AllMissing)
@_sampler_options
@click.option("--epsilon", type=NUMBER, required=True, help="The ε to keep, against an outsider.")
def calibrate(
    sampling_rate: float | None,
    cohort_size: int | None,
    separation: int | None,
    noise_bands: int,
    momentum: float,
    num_clients: int | None,
    as_published: bool,
    record_rate: float | None,
    local_steps: int,
    rounds: int,
    delta: float,
    allow_large_delta: bool,
    papers: bool,
    as_json: bool,
    epsilon: float,
) -> None:
    """The smallest noise multiplier σ that keeps a promised ε, of continuous noise.

    Integer noise needs up to 0.2 % more: `laconic run --epsilon` counts that in.

    Example: laconic calibrate --epsilon 1 --sampling-rate 1/60 --rounds 200 --delta 1e-5
    """
    from laconic.errors import PrivacyError
    from laconic.parts import probability
    from laconic.privacy.accounting.calibrate import smallest_noise
    from laconic.privacy.accounting.releases import METHODS

    probability(delta=delta)
    sampler, population = _sampler(sampling_rate, cohort_size, separation, num_clients, as_published)
    bands = _bands(sampler, noise_bands, rounds, momentum)
    accountant = _accountant(sampler, population, delta, record_rate, local_steps, bands)
    example = accountant(1.0)
    _check_delta(example, delta, allow_large_delta)
    warned = _cautions(example, delta, num_clients, epsilon, 0.0)
    sigmas: dict[str, float | None] = dict.fromkeys(METHODS)
    for method in example.figures if papers or as_json else (example.method,):
        try:
            sigmas[method] = smallest_noise(accountant, epsilon=epsilon, rounds=rounds, method=method)
        except PrivacyError:
            if method != "moments":  # moments cannot show a small ε at all; the others may
                raise
    if as_json:
        result = {"epsilon": epsilon, "delta": delta, "rounds": rounds, "sampler": sampler.to_dict()}
        click.echo(_json(result | {"noise_multiplier": sigmas, "cautions": warned}))
        return
    terms = f"{_described(sampler)}, {example.promise.relation} adjacency"
    if not papers:
        click.echo(
            f"σ = {sigmas[example.method]:.4f} for ε = {rounded_up(epsilon)}, δ = {rounded_up(delta)} after {rounds}"
            f" rounds, {terms}"
        )
    else:
        click.echo(f"σ for ε = {rounded_up(epsilon)}, δ = {rounded_up(delta)} after {rounds} rounds, {terms}:")
    for method, sigma in sigmas.items() if papers else ():
        click.echo(f"  {method}: {'not available' if sigma is None else f'{sigma:.4f}'}")
    for caveat in example.promise.caveats:
        click.echo(f"Caveat: {caveat}.")
    for text in warned:
        click.echo(f"Caution: {text}.")


def _check_delta(accountant: RunAccountant, delta: float, allowed: bool) -> None:
    from laconic.privacy.statement.cautions import check_delta

    check_delta(delta, units=accountant.units, one=accountant.promise.one, allowed=allowed)


def _cautions(
    accountant: RunAccountant, delta: float, num_clients: int | None, released: float, participant: float
) -> list[str]:
    from laconic.privacy.statement.cautions import LARGE_UNCHECKED, cautions

    found = cautions(accountant, delta=delta, released=released, participant=participant, known=num_clients is not None)
    if num_clients is None and delta >= LARGE_UNCHECKED:
        found.append(
            f"δ = {rounded_up(delta)} means nothing for {1 / delta:.6g} clients or more: --num-clients has it checked"
        )
    return found


def _bands(sampler: Any, noise_bands: int, rounds: int, momentum: float) -> tuple[int, ...] | None:
    """The bands of correlated noise, as a run would choose them; None where the noise is independent."""
    from laconic.errors import ConfigError
    from laconic.privacy.accounting.cyclic import Cyclic
    from laconic.privacy.mechanism.bands import choose_bands

    if noise_bands == 1:
        if momentum:
            raise ConfigError("--momentum means nothing without --noise-bands: leave it out")
        return None
    if not isinstance(sampler, Cyclic):
        raise ConfigError("--noise-bands needs clients that take turns: give --separation")
    return choose_bands(bands=noise_bands, separation=sampler.separation, rounds=rounds, momentum=momentum)


def _accountant(
    sampler: Any,
    num_clients: int,
    delta: float,
    record_rate: float | None,
    local_steps: int,
    bands: tuple[int, ...] | None,
) -> Callable[[float], RunAccountant]:
    """From σ to the accountant of one client, or of one record if there is a rate for records."""
    from laconic.errors import ConfigError
    from laconic.privacy.accounting.accountant import RunAccountant
    from laconic.privacy.accounting.releases import EACH, RECORD, Release, release_of
    from laconic.privacy.mechanism.correlated import CorrelatedGaussian
    from laconic.privacy.mechanism.gaussian import Gaussian, Noise

    if record_rate is not None and not sampler.amplifies:
        raise ConfigError("for single records no accountant answers where clients take turns: leave out --separation")

    about = {"sampler": sampler, "num_clients": num_clients}

    def release(noise_multiplier: float) -> Release:
        if record_rate is not None:
            return Release(
                unit=RECORD,
                added_by=EACH,
                noise_multiplier=noise_multiplier,
                coins=record_rate,
                steps=local_steps,
                **about,
            )
        noise: Noise = Gaussian(noise_multiplier=noise_multiplier)
        if bands is not None:
            noise = CorrelatedGaussian(noise_multiplier=noise_multiplier, coefficients=bands)
        return release_of(noise, **about)

    return lambda sigma: RunAccountant(releases=(release(sigma),), delta=delta)


def _sampler(
    sampling_rate: float | None,
    cohort_size: int | None,
    separation: int | None,
    num_clients: int | None,
    as_published: bool,
) -> Any:
    """(sampler, population)."""
    from laconic.errors import ConfigError
    from laconic.privacy.accounting.cyclic import Cyclic
    from laconic.privacy.accounting.sampling import AsPublished, FixedSize, Poisson

    if [sampling_rate, cohort_size, separation].count(None) != 2:
        raise ConfigError(
            "give either --sampling-rate (Poisson) or --cohort-size with --num-clients (fixed size) or --separation"
            " (clients take turns)"
        )
    if separation is not None:
        if as_published:
            raise ConfigError("--as-published goes with --cohort-size and --num-clients, not with --separation")
        turns = Cyclic(separation=separation)
        turns.check(separation if num_clients is None else num_clients)
        return turns, separation if num_clients is None else num_clients
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
    from laconic.store.folder import json_text

    return json_text(result)


def _described(sampler: Any) -> str:
    options = sampler.to_dict()
    kind = options.pop("kind")
    values = ", ".join(f"{key} {value:g}" for key, value in options.items())
    return f"{kind} sampling ({values})"


def _figures(figures: dict[str, float | None], only: str | None) -> str:
    """Those of all accountants, or of one."""
    if only is not None:
        return at_most(figures[only])
    return "   ".join(f"{name}: {'not available' if v is None else at_most(v)}" for name, v in figures.items())
