"""`auto`: everything that a private run on a table needs, chosen from public facts alone.

The model is linear, and one step of gradient descent is taken in each round, on all records of all owners. What is
chosen follows from three numbers: n units (records, patients or clients), the promise as that of one Gaussian release
with sensitivity 1 and standard deviation 1/μ (Dong, Roth and Su 2022), and the number of rounds T.

*Scale.* Columns are scaled so that a record has the norm 1 on average (`codecs.scaling`). So a gradient of the logistic
loss is shorter than 1, the clip is S = 0.7 whatever the table, and few are cut off.

*How far.* With steps of length η over T rounds, the noise that all rounds leave in the score of a record is about
κ = η·T·S/(μ·n), whatever the number of columns and of rounds. The signal grows with η·T as well, but its main part
comes early: what comes late are directions in which the records hardly differ. So the right η·T is where the noise is a
fair part of the scores' own spread, which is about 1 for log-odds. κ = 0.6·0.7 was the
best of a few on the named tables and on random ones (docs/results/auto.md judges it on others).

*Stability.* Gradient descent with momentum ρ is stable while η·λ < 2·(1 + ρ), λ the largest curvature: p·(1 − p) times
the largest eigenvalue of the records' second moments, of which all add up to 1. ρ is the smallest that allows η·T;
where none does, η·T is cut, or T is doubled.

*Scaling.* It is worth a noisy sum of its own if that sum is precise enough. Else public ranges must do.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from laconic.codecs.scaling import largest_answer
from laconic.data.federated import FederatedData
from laconic.data.population import patients_of, units_of
from laconic.errors import ConfigError, option_named
from laconic.figures import rounded_up
from laconic.options.sections import AutoSection
from laconic.privacy.accounting.budget import calibrate_noise
from laconic.privacy.accounting.releases import CLIENT, PATIENT, RECORD
from laconic.privacy.accounting.sampling import Poisson
from laconic.settings.config import RunConfig

ROUNDS, FEWEST, MORE = 40, 8, 80
REACH, CLIP = 0.6, 0.7
"""κ/S, and S of a loss whose derivative by a score is at most 1."""
AVERAGED = 0.3
"""Of the rounds, at the end, whose models are averaged."""
RARE = 800.0
"""Shares of ones below (so many times 1/(μ·n))^1.5 are hidden by noise."""
PRECISE = 0.15
"""The standard deviation of a mean of quantities within [−1, 1] above which private scaling is not worth its noise."""
SCALING_PART = 0.1
"""Of μ², for private scaling: about 0.3 of ε by itself."""
EIGENVALUE = 0.5
"""The part of the largest eigenvalue in the second moments of records, at most, as is assumed."""
RARELY = 0.05
"""p·(1 − p) of two classes of which one is the rarer by far, as outcomes in clinical tables are."""
_SET_ASIDE = "on the records that are set aside; none of ε is spent on it (⟨evaluate-every⟩ measures privately)"
_MEASURED = "also private, in some rounds and inside ε, as asked for"
_PACES = ((ROUNDS, 0.0), (ROUNDS, 0.5), (ROUNDS, 0.8), (MORE, 0.8), (MORE, 0.9))
"""Rounds and momentum. Momentum goes farther with the same rounds, but the last models have more noise."""
_MANY = 3000
"""Units, of a run without privacy."""
_SECONDS = 1.2e-8
"""A round of a simulation takes about so long for each number that is not a zero, with one record in a unit."""


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What is publicly known of the data.

    Attributes:
        unit: 'record', 'patient' or 'client'.
        units: how many there are, about.
        owners: how many clients hold them.
        columns: of a record, after preparation.
        quantities: how many columns are quantities.
        ones: how many ones a record has in the others, about.
        classes: 1 for a quantity.
        prevalence: the share of the rarer of two classes, if that is declared.
        counted: whether the units were counted, not declared.
    """

    unit: str
    units: int
    owners: int
    columns: int
    quantities: int
    ones: int
    classes: int
    prevalence: float | None = None
    counted: bool = False

    @property
    def outputs(self) -> int:
        """Of the model."""
        return 1 if self.classes <= 2 else self.classes

    @property
    def weights(self) -> int:
        """Of the model."""
        return (self.columns + 1) * self.outputs

    @property
    def curvature(self) -> float:
        """p·(1 − p) of the classes, on average; the largest that there is where nothing is known."""
        if self.classes == 1:
            return 2.0  # of the squared error
        if self.classes == 2:
            return 0.25 if self.prevalence is None else self.prevalence * (1 - self.prevalence)
        return (self.classes - 1) / self.classes**2

    @property
    def spread(self) -> float:
        """Of the scores: log-odds have about 1, and quantities within [0, 1] about a fifth."""
        return 0.2 if self.classes == 1 else 1.0

    @property
    def longest(self) -> float:
        """Of a loss's derivative by a score: 1 for classes, and for quantities twice an error."""
        return 0.4 if self.classes == 1 else 1.0


@dataclass(frozen=True)
class Choice:
    """Values of the configuration, and why they are what they are."""

    values: dict[str, Any]
    lines: tuple[str, ...] = field(default=())


def gaussian_part(epsilon: float, delta: float) -> float:
    """μ: one Gaussian release with sensitivity 1 and standard deviation 1/μ has this ε at δ."""
    sigma = calibrate_noise(
        epsilon=epsilon, delta=delta, rounds=1, sampler=Poisson(sampling_rate=1.0), num_clients=1, method="pld"
    )
    return 1 / sigma


def usual_delta(units: int) -> float:
    """A power of ten, ten times smaller than one over the number of units at least, and 10⁻⁵ at most."""
    return min(1e-5, 10.0 ** -math.ceil(math.log10(10 * max(1, units))))


def private_choice(
    facts: Facts, *, epsilon: float, delta: float, most_rounds: int | None = None, every: int = 0
) -> Choice:
    """The configuration of a private run with this promise, in which rounds divisible by `every` are evaluations."""
    mu = gaussian_part(epsilon, delta)
    strength = mu * facts.units
    clip = CLIP * facts.longest
    if facts.unit == CLIENT:
        clip *= 0.5  # a mean over records is shorter than one record's gradient
    bound = largest_answer(quantities=facts.quantities, ones=facts.ones, classes=facts.classes)
    noise = bound / (math.sqrt(SCALING_PART) * strength)
    scaled = "private" if noise <= PRECISE else "public"
    reach = REACH * facts.spread * strength * CLIP / clip
    rounds, momentum, cut = _rounds(facts, reach, most_rounds, known=scaled == "private")
    reach = min(reach, cut)
    # Private scaling learns the shares of the classes, and shortens steps where the loss turns out to be steep.
    steepest = _farthest(rounds, momentum) / reach if scaled == "private" and facts.classes > 1 else None
    averaged = max(1, round(AVERAGED * rounds))
    asked = 1 if scaled == "private" else 0
    if every and (rounds + asked) % every == 0:
        rounds -= 1  # models are averaged up to the last round, so that one trains
    values: dict[str, Any] = {
        "scheme.name": "fl-std-dp",
        "scheme.unit": facts.unit,
        "scheme.clip_norm": round(clip, 4),
        "scheme.server_lr": _short(reach * (1 - momentum) / rounds),
        "scheme.momentum": momentum,
        "run.rounds": rounds + asked,
        "run.eval_every": max(1, rounds // 8),
        "server.average_last": averaged,
        "sampler.sampling_rate": 1.0,
        "scaling.kind": scaled,
        "model.name": "logistic",
        "model.zero": True,
        "privacy.epsilon": epsilon,
        "privacy.delta": delta,
    }
    if facts.unit == CLIENT:
        values |= {"scheme.local_steps": 1, "scheme.local_lr": 1.0, "scheme.batch_size": "all"}
    else:
        values |= {"scheme.num_units": facts.units}
        values |= {"auto.counted": facts.units} if facts.counted else {}
        known = facts.prevalence is not None and facts.classes == 2 and scaled == "public"
        values |= {"scheme.prevalence": facts.prevalence} if known else {}
    if scaled == "private":
        values |= {"scaling.rare": _short((RARE / strength) ** 1.5)}
        values |= {} if steepest is None else {"scaling.steepest": _short(steepest)}
    lines = (
        f"protected: one {facts.unit}{_at_one(facts.unit)}; {facts.units:,} of them, declared or counted once and"
        " rounded, are taken as publicly known",
        f"promise: ε = {rounded_up(epsilon)} at δ = {rounded_up(delta)}, against the server and outsiders alike, as"
        f" {_all_owners(facts.owners)} in every round",
        f"model: {_model_words(facts)}; noise is added to every weight, so few weights lose least",
        f"scaling: {_scaling_words(scaled, noise)}",
        f"clip: S = {clip:.2g}, as a scaled record has the norm 1 and its gradient is shorter",
        f"rounds: {rounds}{' and one for scaling' if asked else ''}; each is one step on all records",
        f"steps: {values['scheme.server_lr']:g} with momentum {momentum:g}, so far that the noise in a score is about"
        f" {reach * clip / strength:.2g}, beside a spread of about {facts.spread:g} that is to be learnt",
        f"result: the mean of the last {averaged} models, which averages noise out",
        f"evaluation: {_MEASURED if every else _SET_ASIDE}",
        "other settings: give any option, or ⟨set⟩; what is given is kept",
    )
    return Choice(values, lines)


def plain_choice(facts: Facts, *, most_rounds: int | None = None) -> Choice:
    """The configuration of a run without privacy: gradient descent to the end."""
    # Few records would be learnt by heart, so the way is shorter. No table is half as steep as the worst case.
    rounds, momentum, times = (800, 0.98, 2.0) if facts.units >= _MANY else (400, 0.95, 1.0)
    rounds = most_rounds or rounds
    # Of many classes a few may have most records, and are then as steep as two.
    step = (1 + momentum) / max(0.1, 2 * facts.curvature) if facts.classes > 2 else times * (1 + momentum) / 0.25
    step = step if facts.classes > 1 else (1 + momentum) / facts.curvature * times
    values: dict[str, Any] = {
        "scheme.name": "fl-std",
        "scheme.local_steps": 1,
        "scheme.local_lr": 1.0,
        "scheme.batch_size": "all",
        "scheme.server_lr": _short(step),
        "scheme.momentum": momentum,
        "run.rounds": rounds + 1,
        "run.eval_every": max(1, rounds // 8),
        "sampler.sampling_rate": 1.0,
        "scaling.kind": "private",
        "model.name": "logistic",
        "model.zero": True,
    }
    lines = (
        "WITHOUT privacy, as ε is infinite: the server sees every update in the clear",
        f"model: {_model_words(facts)}",
        "scaling: columns have mean 0 and spread 1, by sums over all owners in the first round",
        f"rounds: {rounds}, each one step of gradient descent on all records, with momentum {momentum:g}",
    )
    return Choice(values, lines)


def facts_of(config: RunConfig, federation: FederatedData) -> Facts:
    """What a run may know before it begins. The number of units is declared, or counted and rounded."""
    columns = math.prod(federation.input_shape)
    found = federation.facts
    if found is None:
        raise ConfigError(
            "auto chooses for tables whose columns are described: give a table with a ⟨schema⟩ (laconic schema init"
            " drafts one). For pictures and texts, ask laconic advise, or see the page on front ends"
        )
    unit = config.scheme.options.get("unit") or _usual_unit(federation)
    declared = config.scheme.options.get("num_units")
    known = unit != CLIENT and isinstance(declared, int | float)
    units = int(declared) if isinstance(declared, int | float) and known else _count(federation, unit)
    prevalence = config.scheme.options.get("prevalence")
    if prevalence is None and federation.preprocessing is not None:
        prevalence = federation.preprocessing.schema.prevalence
    return Facts(
        unit=unit,
        units=units,
        counted=not known,
        owners=federation.population.num_clients,
        columns=columns,
        quantities=found[0],
        ones=found[1],
        classes=federation.num_classes,
        prevalence=float(prevalence) if isinstance(prevalence, int | float) else None,
    )


def chosen(config: RunConfig, federation: FederatedData) -> tuple[RunConfig, tuple[str, ...]]:
    """The configuration with everything decided that the user left open, and why, in lines.

    Without an ε it is a run without privacy.
    """
    epsilon = config.privacy.epsilon
    facts = facts_of(config, federation)
    if epsilon is None:
        choice = plain_choice(facts, most_rounds=config.auto.max_rounds)
    else:
        delta = usual_delta(facts.units) if config.privacy.delta is None else config.privacy.delta
        most, every = _most_rounds(config, facts), config.evaluation.every
        choice = private_choice(facts, epsilon=epsilon, delta=delta, most_rounds=most, every=every)
    kept = [path for path in choice.values if path != "scheme.name" and _said(config, path) != _said(RunConfig(), path)]
    values = {path: value for path, value in choice.values.items() if path not in kept}
    changed = [path for path in kept if _said(config, path) != choice.values[path]]
    said = (f"kept as given: {', '.join(option_named(path.partition('.')[2]) for path in changed)}",) if changed else ()
    return dataclasses.replace(config, auto=AutoSection()).with_values(values), (*choice.lines, *said)


def _said(config: RunConfig, path: str) -> Any:
    """What a configuration has in a place."""
    name, _, key = path.partition(".")
    section = getattr(config, name)
    return section.options.get(key) if key in getattr(section, "options", {}) else getattr(section, key, None)


def _most_rounds(config: RunConfig, facts: Facts) -> int | None:
    """By all limits that are given."""
    limits, given = [], config.auto
    if given.max_rounds is not None:
        limits.append(given.max_rounds - 1)
    if given.max_megabytes is not None:
        limits.append(int(given.max_megabytes * 1e6 / (4 * facts.weights + 100)) - 1)
    if given.max_minutes is not None:
        numbers = facts.units * (facts.quantities + facts.ones) * facts.outputs
        limits.append(int(60 * given.max_minutes / (0.02 + _SECONDS * numbers)))
    if limits and min(limits) < FEWEST:
        raise ConfigError(
            f"the limits leave {max(0, min(limits))} rounds, and auto needs {FEWEST + 1}: raise ⟨max-rounds⟩,"
            " ⟨max-megabytes⟩ or ⟨max-minutes⟩"
        )
    return min(limits) if limits else None


def _rounds(facts: Facts, reach: float, most: int | None, *, known: bool) -> tuple[int, float, float]:
    """(T, ρ, the largest η·T that is stable)."""
    learnt = known and facts.classes == 2 and facts.prevalence is None  # the shares of the classes, before training
    steep = RARELY if learnt else facts.curvature
    for rounds, momentum in _PACES:
        rounds = rounds if most is None else min(rounds, most)
        if reach * steep <= _farthest(rounds, momentum):
            break
    # Where the shares of the classes will be known, steps are cut by them and not here.
    return rounds, momentum, math.inf if learnt else _farthest(rounds, momentum) / steep


def _farthest(rounds: int, momentum: float) -> float:
    """The largest product of η·T and the curvature with which descent is stable, to half of what is possible."""
    return rounds * (1 + momentum) / ((1 - momentum) * EIGENVALUE)


def _usual_unit(federation: FederatedData) -> str:
    whose = patients_of(federation.population, 0) if federation.population.num_clients else None
    return RECORD if whose is None else PATIENT


def _count(federation: FederatedData, unit: str) -> int:
    """How many units there are, to two digits."""
    population = federation.population
    clients = range(population.num_clients)
    if unit == CLIENT:
        return population.num_clients
    if unit == PATIENT:
        units_of(population, 0, unit)  # an error if nothing says whose the records are
        each = [patients_of(population, client) for client in clients]
        count = len(np.unique(np.concatenate([some for some in each if some is not None])))
    else:
        count = sum(population.size(client) for client in clients)
    return int(float(f"{max(1, count):.1e}"))


def _all_owners(owners: int) -> str:
    return "its one owner takes part" if owners == 1 else f"all {owners:,} owners take part"


def _at_one(unit: str) -> str:
    return " with all records at one owner" if unit == PATIENT else ""


def _model_words(facts: Facts) -> str:
    kind = "linear regression" if facts.classes == 1 else "logistic regression"
    return f"{kind} with {facts.weights:,} weights, which start at 0"


def _scaling_words(kind: str, noise: float) -> str:
    if kind == "private":
        return (
            "one noisy sum in the first round measures mean and spread of the columns and the shares of the classes,"
            " inside ε"
        )
    return (
        f"by public ranges alone; a noisy sum would miss the means by {noise:.2g} of half a range, which is too much to"
        " be worth its part of ε"
    )


def _short(value: float) -> float:
    return float(f"{value:.4g}")
