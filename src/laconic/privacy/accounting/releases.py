"""What a run releases, as data, and one function that says what it costs: `compose`.

A run has phases: votes, training, evaluations. Each phase says in a `Release` what one round of it shows, of which
unit, in which rounds, to whom, and who adds the noise. `RunAccountant` holds the releases of a run. It answers two
questions that concern all phases together: how many of the charged rounds belong to which phase, and whether sampling
amplifies. From the releases with these counts `compose` computes ε. It knows neither schemes nor phases, only releases,
so those of several runs are composed in the same way.

A new kind of private release is a new value. Correlated noise is a release with `bands`, DP-SGD of single records one
that every client noises by itself, and records or patients inside masked sums one with `coins`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from laconic.errors import ConfigError, PrivacyError
from laconic.figures import rounded_up
from laconic.parts import Part, any_coin, non_negative_int, one_of, positive_int, rate
from laconic.privacy.accounting.record_sampling import FirstThenLater, Occasional, RecordEvent
from laconic.privacy.accounting.sampling import REPLACE_ONE, Cyclic, Sampler
from laconic.privacy.accounting.tight import tight_epsilon
from laconic.privacy.mechanism.correlated import sensitivity_squared
from laconic.privacy.mechanism.gaussian import Noise
from laconic.privacy.mechanism.grid import SMALLEST_SUM, SMOOTHING

if TYPE_CHECKING:
    from dp_accounting import DpEvent

    from laconic.plan import RoundPlan

VOTES, EVALUATIONS, TRAINING = "votes", "evaluations", "training"
"""The phases of today's schemes. A phase has a name; nothing else depends on it."""
CLIENT, RECORD, PATIENT = UNITS = ("client", "record", "patient")
"""What is protected: all data of a client, one record of it, or all records of one person."""
OUTSIDER, SERVER = VIEWS = ("outsider", "server")
"""Who looks: an outsider who sees every release but no cohort, and the server, which knows who took part."""
SHARES, EACH, CENTRAL = ADDED_BY = ("shares", "each", "server")
"""Who adds the noise: the clients of a sum together, each client the whole of it, or the server."""

PARTS_OF = {CLIENT: (RECORD, PATIENT), PATIENT: (RECORD,), RECORD: ()}
"""What is a part of each unit: it is protected with it, if less well."""
METHODS = ("moments", "rdp", "pld")
_LARGEST_PLD = 100.0
_PAPER_ORDERS = tuple(range(2, 34))  # order λ + 1 for λ = 1..32


@dataclass(frozen=True, kw_only=True)
class Rounds(Part):
    """Which rounds a phase has: those after round `after` and up to `last` whose number is divisible by `every`."""

    after: int = 0
    last: int | None = None
    every: int = 1

    def __post_init__(self) -> None:
        non_negative_int(after=self.after)
        positive_int(every=self.every)

    def __contains__(self, round: int) -> bool:
        within = self.after < round and (self.last is None or round <= self.last)
        return within and round % self.every == 0

    def meets(self, other: Rounds) -> bool:
        """Whether the two have a round in common."""
        every, after = math.lcm(self.every, other.every), max(self.after, other.after)
        common = (after // every + 1) * every
        return all(rounds.last is None or common <= rounds.last for rounds in (self, other))

    def through(self, number: int) -> int:
        """How many of the rounds up to this number it has."""
        end = number if self.last is None else min(number, self.last)
        return max(0, end // self.every - self.after // self.every)


class Shown(NamedTuple):
    """What an adversary sees of a release: an event, how often, and whether neighbours differ by a replaced client."""

    event: DpEvent | RecordEvent
    times: int
    replace_one: bool = False


@dataclass(frozen=True, kw_only=True)
class Release(Part):
    """What one round of a phase releases of one unit, and how often that happened.

    The noise of a sum has the standard deviation `noise_multiplier` · S, where S bounds what one unit adds to it, and
    adjacent sums differ by at most `sensitivity_scale` · S. Noise on integers is a little weaker than continuous noise
    of the same size; how much follows from its scale in grid units.

    Args:
        phase: the name of the phase.
        unit: 'client', 'record' or 'patient'.
        noise_multiplier: σ.
        grid_scale: the least scale of a sum's noise in grid units; None for continuous noise.
        grid_unit: how many grid units S is at least; 0 where the grid is as coarse as it may be.
        sensitivity_scale: by how many S adjacent sums differ at most.
        added_by: 'shares' (the clients of a sum), 'each' (every client, all of it) or 'server'.
        noise_left: the part of the noise's variance that is there.
        bands: c_0, c_1, …, where the server adds noise that is correlated over rounds.
        sampler: which clients take part in a round.
        num_clients: the size of the population.
        coins: q, with which an owner draws each of its units by coins that only the owner knows.
        max_owners: h, how many owners one unit has at most. Each of them clips it to S/h.
        steps: releases in one participation.
        rounds: which rounds of the run belong to the phase; None: all that belong to no other phase.
        repeats: rounds of the phase that were charged again.
        delta_slack: what the sampler's finite precision adds to δ over the run.
        caveat: what the way in which units are drawn leaves unproven.
        charged: rounds of the phase that were released, with or without the unit.
        again: how many of them were repeated.
        taken: rounds of the phase in which the unit's owners took part, at most.
        amplified: whether the outsider does not know who took part, so that sampling lowers ε.
        reserved: the part of δ that is kept for cohorts that show themselves by being too small.
    """

    phase: str = TRAINING
    unit: str = CLIENT
    noise_multiplier: float
    grid_scale: float | None = None
    grid_unit: float = 0.0
    sensitivity_scale: float = 1.0
    added_by: str = SHARES
    noise_left: float = 1.0
    bands: tuple[float, ...] = (1.0,)
    sampler: Sampler
    num_clients: int
    coins: float = 1.0
    max_owners: int = 1
    steps: int = 1
    rounds: Rounds | None = None
    repeats: int = 0
    delta_slack: float = 0.0
    caveat: str = ""
    charged: int = 0
    again: int = 0
    taken: int = 0
    amplified: bool = False
    reserved: float = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "bands", tuple(self.bands))
        one_of(UNITS, unit=self.unit)
        one_of(ADDED_BY, added_by=self.added_by)
        rate(coins=self.coins)
        positive_int(num_clients=self.num_clients, steps=self.steps, max_owners=self.max_owners)
        self.sampler.check(self.num_clients)
        if self.added_by == CENTRAL:
            sensitivity_squared(self.bands, 1, self._separation)
        if self.unit == CLIENT and (self.coins < 1 or self.max_owners > 1):
            raise ConfigError("a client is drawn by the sampler and has no owner: coins are for units inside clients")

    @property
    def multiplier(self) -> float:
        """z: the noise of one release in units of what adjacent sums differ by, as the accountant counts on it.

        Smoothing takes 2² from the square of a grid's scale ξ (`discrete_gaussian`). Where a part of the noise is
        missing, it takes them from what is left of at least 32².
        """
        sigma = self.noise_multiplier
        if self.noise_left < 1:
            left = self.noise_left
            if self.grid_scale is not None:
                smoothed = (SMOOTHING / SMALLEST_SUM) ** 2
                left = max((left - smoothed) / (1 - smoothed), 1e-12)
            sigma *= math.sqrt(left)
        if self.grid_scale is not None:
            scale = max(self.grid_scale, self.grid_unit * sigma)
            sigma *= math.sqrt(1 - (SMOOTHING / scale) ** 2)
        return sigma / self.sensitivity_scale

    @property
    def rate(self) -> float:
        """The probability that a unit is in a round of its owners: that one coin or more of `max_owners` says so."""
        return any_coin(self.coins, self.max_owners)

    @property
    def covers_server(self) -> bool:
        """Whether there is an ε against the server at all."""
        return self.added_by != CENTRAL

    @property
    def figures(self) -> tuple[str, ...]:
        """The methods that can answer for the outsider's ε, the tightest last."""
        return self.sampler.figures if self.unit == CLIENT and self.covers_server else METHODS

    @property
    def step(self) -> DpEvent:
        """One release, for an adversary who knows that the unit's owners took part."""
        from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent

        noise = GaussianDpEvent(self.multiplier)
        return PoissonSampledDpEvent(self.rate, noise) if self.rate < 1 else noise

    def shown(self, against: str, unit: str) -> Shown | None:
        """What the adversary sees of one such unit; None where no ε holds."""
        if self.multiplier <= 0:
            return None
        if unit != self.unit:
            return self._of_another_unit(unit, against)
        if self.added_by == CENTRAL:
            return None if against == SERVER else self._of_all_rounds()
        if against == OUTSIDER and not self.sampler.proven and self.added_by == EACH:
            return Shown(self.published, self.charged)
        if against == SERVER or not self.amplified:
            return Shown(self.step, self.taken * self.steps, self._replaced)
        if self.added_by == EACH:
            return Shown(Occasional(self._cohort_rate, self.step, self.steps), self.charged)
        return Shown(self.sampler.released_event(self.step, self.num_clients), self.charged, self._replaced)

    def _of_another_unit(self, unit: str, against: str) -> Shown | None:
        """For a part of the unit: a change of it replaces a code of norm S by another, so sums differ by 2·S at most.

        Nothing amplifies that: what the rest of the unit adds hangs on the same coin. A larger unit has no bound.
        """
        if unit not in PARTS_OF[self.unit]:
            return None
        twice = 1 if self._replaced else 2
        scale = twice * self.sensitivity_scale
        part = replace(self, unit=unit, sensitivity_scale=scale, coins=1.0, max_owners=1, amplified=False)
        return part.shown(against, unit)

    def _of_all_rounds(self) -> Shown:
        """Correlated noise: all rounds together are one Gaussian mechanism (docs/maths.md#correlated-noise)."""
        from dp_accounting import GaussianDpEvent

        if self.charged < 1:
            return Shown(GaussianDpEvent(self.multiplier), 0)
        return Shown(GaussianDpEvent(self.multiplier / math.sqrt(self.moved_squared)), 1)

    @property
    def moved_squared(self) -> float:
        """By how much one client moves what all charged rounds release, squared and in units of S²."""
        once = sensitivity_squared(self.bands, self.charged - self.again, self._separation)
        return once + self.again * max(self.bands) ** 2

    @property
    def occasional(self) -> bool:
        """Whether all that the outsider does not know is in which rounds the client came."""
        return self.amplified and self.added_by == EACH and self.sampler.proven

    @property
    def published(self) -> FirstThenLater:
        """A round as CHIL'21, Theorem 3.1 accounts for it: not proven."""
        from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent

        first = PoissonSampledDpEvent(self._cohort_rate * self.rate, GaussianDpEvent(self.multiplier))
        return FirstThenLater(first if first.sampling_probability < 1 else first.event, self.step, self.steps)

    @property
    def _replaced(self) -> bool:
        return self.unit == CLIENT and self.sampler.adjacency == REPLACE_ONE

    @property
    def _cohort_rate(self) -> float:
        return self.sampler.rate_in(self.num_clients)

    @property
    def _separation(self) -> int:
        if not isinstance(self.sampler, Cyclic):
            raise ConfigError("noise that the server correlates over rounds needs clients that take turns")
        return self.sampler.separation


def compose(
    releases: Sequence[Release], delta: float, *, against: str, unit: str = CLIENT, figure: str = "pld"
) -> float:
    """ε of all releases together at this δ, for one `unit`, against one adversary; infinite where none holds.

    Args:
        releases: of one run or of several, with how often each was charged and taken.
        delta: δ, of which `delta_slack` and what is reserved are taken away first.
        against: 'outsider' or 'server'.
        unit: 'client', 'record' or 'patient'. A client's noise protects a part of its data, too, but not the reverse.
        figure: 'pld', 'rdp' or 'moments'.

    Returns:
        ε.
    """
    one_of(VIEWS, against=against)
    one_of(UNITS, unit=unit)
    left, shown = delta_left(releases, delta), []
    if left <= 0:
        return math.inf
    for release in releases:
        one = release.shown(against, unit)
        if one is None and release.taken:
            return math.inf
        shown += [] if one is None else [one]
    found = composed(shown, left, figure)
    if against == OUTSIDER and any(release.occasional for release in releases):
        # An adversary who knows the cohorts learns more, so that figure is a bound, too; with a cap it may be smaller.
        known = [replace(release, amplified=False) if release.occasional else release for release in releases]
        found = min(found, compose(known, delta, against=OUTSIDER, unit=unit, figure=figure))
    return found


def delta_left(releases: Sequence[Release], delta: float) -> float:
    """What of δ is left for the mechanisms."""
    *others, last = releases
    left = delta - (last.delta_slack + sum(release.delta_slack for release in others))
    return left * (1 - max(release.reserved for release in releases))


def composed(shown: Sequence[Shown], delta: float, figure: str) -> float:
    """ε of independent events at this δ: Rényi divergences add up, and so do privacy losses."""
    shown = [one for one in shown if one.times]
    one_of(METHODS, figure=figure)
    if not shown:
        return 0.0
    if figure == "moments":
        divergences = _summed(shown, _PAPER_ORDERS)
        return min(
            divergence - math.log(delta) / (order - 1)
            for order, divergence in zip(_PAPER_ORDERS, divergences, strict=True)
        )
    if figure == "rdp":
        from dp_accounting.rdp import rdp_privacy_accountant as rdp

        orders = tuple(rdp.DEFAULT_RDP_ORDERS)
        return float(rdp.compute_epsilon(orders, _summed(shown, orders), delta)[0])
    from dp_accounting import GaussianDpEvent

    # A privacy loss distribution grows with ε; where ε is that large, rdp's bound (never smaller) says enough.
    # Moments, never smaller than rdp, are quicker to ask.
    sampled = [one for one in shown if not isinstance(one.event, GaussianDpEvent)]
    if sampled and composed(shown, delta, "moments") > _LARGEST_PLD:
        bound = composed(shown, delta, "rdp")
        if bound > _LARGEST_PLD:
            return bound
    last = sampled[-1] if sampled else shown[-1]  # a closed form answers for Gaussians alone
    others = [(one.event, one.times) for one in shown if one is not last]
    return tight_epsilon(last.event, last.times, delta, *others)


def epsilon(event: DpEvent | RecordEvent, count: int, delta: float, method: str, *, replace_one: bool = False) -> float:
    """ε of `count` independent releases of the event at this δ."""
    return composed([Shown(event, count, replace_one)], delta, method)


def _summed(shown: Sequence[Shown], orders: tuple[float, ...]) -> list[float]:
    total = [0.0] * len(orders)
    for event, times, replace_one in shown:
        divergences = renyi_divergences(event, orders, replace_one)
        total = [known + times * more for known, more in zip(total, divergences, strict=True)]
    return total


def release_of(
    noise: Noise,
    *,
    sampler: Sampler,
    num_clients: int,
    sensitivity: float = 1.0,
    groups: int = 1,
    unit: str = CLIENT,
    **about: Any,
) -> Release:
    """What a round of a phase releases where one unit adds a vector of norm `sensitivity` at most to a sum.

    Args:
        noise: the noise in a sum.
        sampler: which clients take part in a round.
        num_clients: the size of the population.
        sensitivity: S. A unit with several owners has a part of S at each.
        groups: in how many groups a cohort is summed.
        unit: 'client', 'record' or 'patient'.
        about: what else a `Release` says.
    """
    largest = sampler.largest_cohort(num_clients, groups)
    return Release(
        **noise.counted(sensitivity=sensitivity, largest_cohort=largest)._asdict(),
        # Units inside clients are compared with none at all, however clients are drawn.
        sensitivity_scale=sampler.sensitivity_scale if unit == CLIENT else 1.0,
        sampler=sampler,
        num_clients=num_clients,
        unit=unit,
        **about,
    )


def draws_slack(
    noise: Noise,
    *,
    sampler: Sampler,
    num_clients: int,
    code_size: int,
    sensitivity: float,
    plan: RoundPlan,
    rounds: int,
    groups: int = 1,
    at_once: bool = True,
) -> float:
    """What the finite precision of draws adds to δ over so many rounds, for any ε up to 20: a distance counts so often.

    Args:
        noise: the noise in a sum.
        sampler: which clients take part in a round.
        num_clients: the size of the population.
        code_size: m, the values of a code.
        sensitivity: S.
        plan: that of the largest sum of the run.
        rounds: for how many.
        groups: in how many groups a cohort is summed.
        at_once: whether the shares of the noise in a sum are drawn at once, as a simulation can.
    """
    # For each coordinate one by each client; or one for each sum, and one by the server.
    draws = 2 * groups if at_once else max(1, round(sampler.planned_cohort(num_clients)))
    num_draws = float(code_size * draws * rounds)
    slack = noise.at_once_slack if at_once else noise.delta_slack
    return slack(code_size=code_size, num_draws=num_draws, sensitivity=sensitivity, plan=plan) * (1 + math.exp(20))


def most_rounds(rounds: int, spare: int = 0) -> int:
    """For how many rounds the draws are counted: twice as many as are planned, since cohorts vary and rounds repeat;
    more if more are agreed on."""
    return max(2 * rounds, rounds + spare)


def checked_slack(slack: float, delta: float) -> float:
    """What draws add to δ, refused where that is not negligible."""
    if slack > delta / 100:
        raise PrivacyError(
            f"the noise sampler would add {rounded_up(slack)} to delta {rounded_up(delta)}: raise ⟨delta⟩"
        )
    return slack


@functools.lru_cache(maxsize=256)
def renyi_divergences(event: DpEvent | RecordEvent, orders: tuple[float, ...], replace_one: bool) -> tuple[float, ...]:
    """The Rényi divergences of one release at the orders."""
    if isinstance(event, RecordEvent):
        return tuple(event.divergences(orders, [renyi_divergences(part, orders, replace_one) for part in event.parts]))
    from absl import logging
    from dp_accounting import NeighboringRelation
    from dp_accounting.rdp import RdpAccountant

    # Zero-out has the formulas of add-or-remove for a (sampled) Gaussian: one sum has the client's code, one has 0.
    relation = NeighboringRelation.REPLACE_ONE if replace_one else NeighboringRelation.ADD_OR_REMOVE_ONE
    accountant = RdpAccountant(orders=list(orders), neighboring_relation=relation)
    # An order whose series does not converge is left out, which only makes ε larger: no reason to alarm anyone. So
    # is one that is not a number (there is next to no noise): dp-accounting would take that for an ε of 0.
    verbosity = logging.get_verbosity()
    logging.set_verbosity(logging.ERROR)
    try:
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            accountant.compose(event)
    except ArithmeticError:  # a σ whose square is 0 as a float
        return (math.inf,) * len(orders)
    finally:
        logging.set_verbosity(verbosity)
    return tuple(math.inf if math.isnan(d) else float(d) for d in accountant._rdp)
