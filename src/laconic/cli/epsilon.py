"""`laconic epsilon` and `laconic calibrate`: the accountant on its own. No torch is imported."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from laconic.cli.options import NUMBER, AllMissing, papers_option
from laconic.figures import at_most, rounded_up

if TYPE_CHECKING:
    from laconic.privacy.accounting.accountant import RunAccountant
    from laconic.privacy.accounting.releases import Release
    from laconic.privacy.accounting.sampling import Sampler
    from laconic.privacy.mechanism.gaussian import Noise

_USUAL_SIZE = 10_000_000
"""m for which draws are counted unless it is given: shorter codes cost less, by less than is printed."""


@dataclass(frozen=True, kw_only=True)
class _Asked:
    """What both commands are told of a run."""

    sampling_rate: float | None
    cohort_size: int | None
    separation: int | None
    noise_bands: int
    momentum: float
    num_clients: int | None
    as_published: bool
    max_participations: int | None
    unit: str
    unit_rate: float
    max_owners_per_patient: int
    num_units: float | None
    record_rate: float | None
    local_steps: int
    noise: str | None
    noise_draws: str
    code_size: int | None
    signs: bool
    max_dropouts: int
    max_colluders: int
    groups: int
    rounds: int
    delta: float
    allow_large_delta: bool

    @functools.cached_property
    def sampler(self) -> Sampler:
        from laconic.errors import ConfigError
        from laconic.privacy.accounting.sampling import AsPublished, Cyclic, FixedSize, Poisson

        if self._inside and [self.sampling_rate, self.cohort_size, self.separation].count(None) == 3:
            return Poisson(sampling_rate=1.0)  # as in a run: hospitals all take part
        if [self.sampling_rate, self.cohort_size, self.separation].count(None) != 2:
            raise ConfigError(
                "give either --sampling-rate (Poisson) or --cohort-size with --num-clients (fixed size) or --separation"
                " (clients take turns)"
            )
        if self.as_published and self.cohort_size is None:
            given = "--separation" if self.separation is not None else "--sampling-rate"
            raise ConfigError(f"--as-published goes with --cohort-size and --num-clients, not with {given}")
        if self.separation is not None:
            return Cyclic(separation=self.separation)
        if self.sampling_rate is not None:
            return Poisson(sampling_rate=self.sampling_rate)
        if self.num_clients is None:
            raise ConfigError("--cohort-size needs --num-clients")
        assert self.cohort_size is not None
        return (AsPublished if self.as_published else FixedSize)(cohort_size=self.cohort_size)

    @property
    def _inside(self) -> bool:
        """Whether units inside clients are protected by shares of the noise."""
        return self.unit != "client"

    @property
    def population(self) -> int:
        """How many clients; the fewest that there can be, if not given. Of fewer the noise is on a coarser grid."""
        if self.num_clients is not None:
            return self.num_clients
        return 1 if self.separation is None else self.separation

    @property
    def kind(self) -> str:
        """Whether the noise is integer or continuous; unless given, as in a run."""
        return self.noise or ("integer" if self.record_rate is None else "continuous")

    @property
    def slack(self) -> int:
        return self.max_dropouts + self.max_colluders

    def check(self) -> None:
        """Refuse what no run could be."""
        from laconic.errors import ConfigError
        from laconic.parts import non_negative_int, one_of, positive_int
        from laconic.privacy.accounting.budget import Budget

        positive_int(rounds=self.rounds, groups=self.groups)
        non_negative_int(max_dropouts=self.max_dropouts, max_colluders=self.max_colluders)
        one_of(("per-sum", "per-client"), noise_draws=self.noise_draws)
        one_of(("integer", "continuous"), noise=self.kind)
        if self.code_size is not None:
            positive_int(code_size=self.code_size)
        self._check_units()
        needs = {
            "--max-dropouts": self.max_dropouts > 0,
            "--max-colluders": self.max_colluders > 0,
            "--groups": self.groups > 1,
            "--noise-draws per-client": self.noise_draws == "per-client",
        }
        for flag in [flag for flag, given in needs.items() if given and self.num_clients is None]:
            raise ConfigError(f"{flag} needs --num-clients")
        if self.signs and self.code_size is None:
            raise ConfigError("--signs needs --code-size: a bound on a vector of signs follows from its length")
        self.sampler.check(self.population)
        Budget(delta=self.delta, max_participations=self.max_participations).check(self.sampler)
        if self.slack:
            self.sampler.check_slack(self.population, self.slack, self.groups)

    def _check_units(self) -> None:
        """Refuse what is not said of a scheme whose units are inside clients."""
        from laconic.errors import ConfigError
        from laconic.parts import one_of
        from laconic.privacy.accounting.releases import UNITS
        from laconic.train.local import UnitGradients

        one_of(UNITS, unit=self.unit)
        others = {
            "--unit-rate": self.unit_rate != 1,
            "--max-owners-per-patient": self.max_owners_per_patient != 1,
            "--num-units": self.num_units is not None,
        }
        idle = [flag for flag, given in others.items() if given]
        if not self._inside:
            if idle:
                raise ConfigError(f"{', '.join(idle)} means nothing without --unit patient (or record): add it")
            return
        given = {
            "--record-rate": self.record_rate is not None,
            "--noise-bands": self.noise_bands > 1,
            "--groups": self.groups > 1,
            "--signs": self.signs,
            "--noise continuous": self.kind == "continuous",
        }
        for flag in [flag for flag, there in given.items() if there]:
            raise ConfigError(f"{flag} does not go with --unit {self.unit}: leave one of them out")
        UnitGradients(
            unit=self.unit, rate=self.unit_rate, max_owners=self.max_owners_per_patient, num_units=self.num_units
        )
        if self.max_owners_per_patient > 1 and self.sampler.rate_in(self.population) < 1:
            raise ConfigError(
                f"--max-owners-per-patient {self.max_owners_per_patient} is accounted for only if all clients take part"
                " in every round: use --sampling-rate 1"
            )

    def accountant(self, noise_multiplier: float) -> RunAccountant:
        """That of one client, or of one record if there is a rate for records."""
        from laconic.privacy.accounting.accountant import RunAccountant
        from laconic.privacy.accounting.releases import SHARES

        release = (
            self._of_clients(noise_multiplier)
            if self.record_rate is None
            else self._of_records(noise_multiplier, self.record_rate)
        )
        return RunAccountant(
            releases=(release,),
            delta=self.delta,
            slack=self.slack if release.added_by == SHARES else 0,
            groups=self.groups,
            max_participations=self.max_participations,
            horizon=self.rounds,
            num_units=None if self.num_units is None else max(1, round(self.num_units)),
        )

    def _of_clients(self, noise_multiplier: float) -> Release:
        from laconic.privacy.accounting.releases import draws_slack, most_rounds, release_of

        noise, code_size = self._noise(noise_multiplier), self.code_size or _USUAL_SIZE
        sensitivity = math.sqrt(code_size) if self.signs else 1.0
        inside: dict[str, Any] = {}
        if self._inside:
            inside = {"unit": self.unit, "coins": self.unit_rate, "max_owners": self.max_owners_per_patient}
        slack = draws_slack(
            noise,
            sampler=self.sampler,
            num_clients=self.population,
            code_size=code_size,
            sensitivity=sensitivity,
            plan=self.sampler.typical_plan(
                self.population,
                max_dropouts=self.max_dropouts,
                max_colluders=self.max_colluders,
                groups=self.groups,
                planned_units=None if self.num_units is None else self.num_units * self.unit_rate,
            ),
            rounds=most_rounds(self.rounds),
            groups=self.groups,
            at_once=self.noise_draws == "per-sum",
        )
        return release_of(
            noise,
            sampler=self.sampler,
            num_clients=self.population,
            sensitivity=sensitivity,
            groups=self.groups,
            delta_slack=self._checked(slack),
            **inside,
        )

    def _of_records(self, noise_multiplier: float, record_rate: float) -> Release:
        from laconic.errors import ConfigError
        from laconic.privacy.accounting.releases import EACH, RECORD, Release, most_rounds
        from laconic.privacy.mechanism.discrete_gaussian import record_delta_slack

        if not self.sampler.amplifies:
            raise ConfigError(
                "for single records no accountant answers where clients take turns: leave out --separation"
            )
        slack, steps = 0.0, most_rounds(self.rounds) * self.local_steps
        if self.kind == "integer":
            slack = record_delta_slack(self.code_size or _USUAL_SIZE, steps, noise_multiplier)
        return Release(
            unit=RECORD,
            added_by=EACH,
            noise_multiplier=noise_multiplier,
            coins=record_rate,
            steps=self.local_steps,
            sampler=self.sampler,
            num_clients=self.population,
            delta_slack=self._checked(slack),
        )

    def _checked(self, slack: float) -> float:
        """As in the run. Without the number of values it is at most what a run may have."""
        from laconic.privacy.accounting.releases import checked_slack

        return min(slack, self.delta / 100) if self.code_size is None else checked_slack(slack, self.delta)

    def _noise(self, noise_multiplier: float) -> Noise:
        from laconic.errors import ConfigError
        from laconic.privacy.mechanism.correlated import CorrelatedGaussian
        from laconic.privacy.mechanism.discrete_gaussian import DiscreteGaussian
        from laconic.privacy.mechanism.gaussian import Gaussian
        from laconic.privacy.mechanism.grid import MOST_BITS

        if self.bands is not None:
            if self.kind == "continuous" or self.signs:
                raise ConfigError(
                    "--noise-bands correlates integer noise in sums of codes: leave out what is against it"
                )
            return CorrelatedGaussian(noise_multiplier=noise_multiplier, coefficients=self.bands)
        if self.kind == "continuous":
            return Gaussian(noise_multiplier=noise_multiplier)
        bits = None if self.num_units is None else MOST_BITS  # as in a run
        return DiscreteGaussian(noise_multiplier=noise_multiplier, signs=self.signs, bits=bits)

    @functools.cached_property
    def bands(self) -> tuple[int, ...] | None:
        """The bands of correlated noise, as a run would choose them; None where the noise is independent."""
        from laconic.errors import ConfigError
        from laconic.privacy.mechanism.correlated import choose_bands

        if self.noise_bands == 1:
            if self.momentum:
                raise ConfigError("--momentum means nothing without --noise-bands: leave it out")
            return None
        if self.separation is None:
            raise ConfigError("--noise-bands needs clients that take turns: give --separation")
        return choose_bands(
            bands=self.noise_bands, separation=self.separation, rounds=self.rounds, momentum=self.momentum
        )


def _about_a_run(command: Callable[..., Any]) -> Callable[..., Any]:
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
            click.option(
                "--num-clients",
                type=int,
                help="Population: for fixed-size sampling, to check δ, and for the grid of the noise: without it the"
                " coarsest there is.",
            ),
            click.option("--as-published", is_flag=True, help="Account a fixed size as Poisson, as the papers do."),
            click.option("--max-participations", type=int, help="How often one client takes part at most (Poisson)."),
            click.option(
                "--unit",
                default="client",
                help="Whom the noise protects: client, or patient or record inside clients.  [client]",
            ),
            click.option(
                "--unit-rate",
                type=NUMBER,
                default=1.0,
                help="With --unit patient or record: the probability with which a client draws each in a round.  [1]",
            ),
            click.option(
                "--max-owners-per-patient",
                type=int,
                default=1,
                help="With --unit patient: at how many clients a patient is at most.  [1]",
            ),
            click.option(
                "--num-units",
                type=NUMBER,
                help="With --unit patient or record: about how many there are, to check δ and for the grid.",
            ),
            click.option(
                "--record-rate",
                type=NUMBER,
                help="Protect single records: the largest probability of a record to be drawn in a client's step.",
            ),
            click.option("--local-steps", type=int, default=1, help="With --record-rate: a client's steps.  [1]"),
            click.option(
                "--noise", help="integer or continuous.  [integer, as in a run; continuous with --record-rate]"
            ),
            click.option(
                "--noise-draws",
                default="per-sum",
                help="per-sum, as in a simulation, or per-client, as with masked sums.  [per-sum]",
            ),
            click.option(
                "--code-size",
                type=int,
                help=f"How many values a client sends: for the finite precision of the noise.  [{_USUAL_SIZE:,}]",
            ),
            click.option("--signs", is_flag=True, help="Clients send signs (fl-sign-dp); with --code-size."),
            click.option("--max-dropouts", type=int, default=0, help="Clients of a cohort that may drop out.  [0]"),
            click.option("--max-colluders", type=int, default=0, help="Clients of a cohort that may collude.  [0]"),
            click.option("--groups", type=int, default=1, help="In how many groups a cohort is summed.  [1]"),
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
@_about_a_run
@click.option("--noise-multiplier", type=NUMBER, required=True, help="σ: the noise in the sum is σ·S.")
@click.option("--participations", type=int, multiple=True, help="Rounds one client takes part in (repeatable).")
def epsilon(
    papers: bool, as_json: bool, noise_multiplier: float, participations: tuple[int, ...], **about: Any
) -> None:
    """ε of a run before it is run: against an outsider, and against the server.

    The figures are those of the run if it has the same clients, noise and slack. Votes, evaluations and how often each
    client really came are known to `laconic plan` and to the run alone.

    Example: laconic epsilon --sampling-rate 1/60 --noise-multiplier 1.54 --rounds 200 --delta 1e-5
    """
    from laconic.parts import positive_int

    asked = _Asked(**about)
    asked.check()
    sampler, rounds, delta = asked.sampler, asked.rounds, asked.delta
    accountant = asked.accountant(noise_multiplier)
    _check_delta(accountant, asked)
    for count in participations:
        positive_int(participations=count)
    expected = sampler.usual_participations(rounds, asked.population)
    counts = sorted(set(participations) or {1, expected})
    released, published = accountant.released(rounds).to_dict(), accountant.published(rounds)
    promise, caveat = accountant.promise, "; ".join(accountant.promise.caveats)
    participant = {count: accountant.participant(count).to_dict() for count in counts}
    warned = _cautions(
        accountant, asked, accountant.released_epsilon(rounds), accountant.participant_epsilon(counts[-1])
    )
    if as_json:
        result = {
            "sampler": sampler.to_dict(),
            "unit": promise.one,
            "protects": promise.unit,
            "adjacency": promise.relation,
            "noise": asked.kind,
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
        f" {promise.relation} adjacency, {asked.kind} noise"
    )
    click.echo(head + "\n")
    outsider = "sees all sums and models but not who took part"
    if promise.one != "client":
        click.echo(f"Protected is {promise.unit}.")
    if promise.one != "client" or not promise.covers_server:
        outsider = promise.released
    click.echo(f"ε against an outsider, who {outsider}:")
    click.echo(f"  after {rounds} rounds:  {_figures(released, None if papers else accountant.method)}")
    if papers and published is not None:
        click.echo(f"  as published (CHIL'21, Theorem 3.1; not proven):  moments: {at_most(published)}")
    if not promise.covers_server:
        click.echo("ε against the server: none, as it adds the noise itself (central)")
        participant = {}
    else:
        server = promise.participant if asked.unit != "client" else "knows who took part"
        click.echo(f"ε against the server, which {server}:")
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
@_about_a_run
@click.option("--epsilon", type=NUMBER, required=True, help="The ε to keep, against an outsider.")
def calibrate(papers: bool, as_json: bool, epsilon: float, **about: Any) -> None:
    """The smallest noise multiplier σ that keeps a promised ε: that of `laconic run --epsilon`, given the same.

    Example: laconic calibrate --epsilon 1 --sampling-rate 1/60 --rounds 200 --delta 1e-5
    """
    from laconic.errors import PrivacyError
    from laconic.parts import probability
    from laconic.privacy.accounting.budget import smallest_noise
    from laconic.privacy.accounting.releases import METHODS

    asked = _Asked(**about)
    probability(delta=asked.delta)
    asked.check()
    sampler, rounds, delta = asked.sampler, asked.rounds, asked.delta
    example = asked.accountant(1.0)
    _check_delta(example, asked)
    warned = _cautions(example, asked, epsilon, 0.0)
    sigmas: dict[str, float | None] = dict.fromkeys(METHODS)
    for method in example.figures if papers or as_json else (example.method,):
        try:
            sigmas[method] = smallest_noise(asked.accountant, epsilon=epsilon, rounds=rounds, method=method)
        except PrivacyError:
            if method != "moments":  # moments cannot show a small ε at all; the others may
                raise
    if as_json:
        result = {
            "epsilon": epsilon,
            "delta": delta,
            "rounds": rounds,
            "noise": asked.kind,
            "sampler": sampler.to_dict(),
            "protects": example.promise.unit,
        }
        click.echo(_json(result | {"noise_multiplier": sigmas, "cautions": warned}))
        return
    terms = f"{_described(sampler)}, {example.promise.relation} adjacency, {asked.kind} noise"
    if not papers:
        click.echo(
            f"σ = {sigmas[example.method]:.4f} for ε = {rounded_up(epsilon)}, δ = {rounded_up(delta)} after {rounds}"
            f" rounds, {terms}"
        )
    else:
        click.echo(f"σ for ε = {rounded_up(epsilon)}, δ = {rounded_up(delta)} after {rounds} rounds, {terms}:")
    for method, sigma in sigmas.items() if papers else ():
        click.echo(f"  {method}: {'not available' if sigma is None else f'{sigma:.4f}'}")
    if example.promise.one != "client":
        click.echo(f"Protected is {example.promise.unit}.")
    for caveat in example.promise.caveats:
        click.echo(f"Caveat: {caveat}.")
    for text in warned:
        click.echo(f"Caution: {text}.")


def _check_delta(accountant: RunAccountant, asked: _Asked) -> None:
    from laconic.privacy.statement import check_delta

    check_delta(asked.delta, units=accountant.units, one=accountant.promise.one, allowed=asked.allow_large_delta)


def _cautions(accountant: RunAccountant, asked: _Asked, released: float, participant: float) -> list[str]:
    from laconic.privacy.statement import LARGE_UNCHECKED, cautions

    known, delta = asked.num_clients is not None, asked.delta
    found: list[str] = [*cautions(accountant, delta=delta, released=released, participant=participant, known=known)]
    if not known and delta >= LARGE_UNCHECKED:
        found.append(
            f"δ = {rounded_up(delta)} means nothing for {1 / delta:.6g} clients or more: --num-clients has it checked"
        )
    return found


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
