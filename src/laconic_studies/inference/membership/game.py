"""Membership inference: was a client in the cohort, was it in the run, was a record in a client's data?

The adversary follows the protocol. It knows the weights and the target's own records, and it can train: so it plays
rounds with and without the target, fits a Gaussian to a statistic in each world, and compares the likelihoods of what
it sees in the round that counts (Carlini et al. 2022). It does not know whose else's codes are in a round, which
batches were drawn, and the noise.

A *client* is there, or another one is in its place: the server counts messages, so a missing one would show. Under
a sum with noise it is there or not, as the ε has it (with cohorts of a fixed size, another client is there). A
*record* is among the client's records, or another one is in its place; under record-level privacy it is there or not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from laconic.data.population import PooledPopulation, pooled_records
from laconic.errors import ConfigError, several, unknown
from laconic.experiment.experiment import Experiment
from laconic.parts import positive_int
from laconic.privacy.accounting.sampling import FixedSize
from laconic_studies.inference.membership.roc import Claim, Roc, claim_of, roc
from laconic_studies.inference.membership.trials import VIEWS, Pool, Trials, Victim, WholeRun, filters_for, statistics
from laconic_studies.inference.standing import Standing

_SMALLEST = 1e-12
"""A spread below this share of the statistic's size is none: the two worlds are then told apart without a doubt."""


@dataclass(frozen=True, kw_only=True)
class GaussianFit:
    """Mean and standard deviation of a statistic in one world."""

    mean: float
    std: float

    @classmethod
    def to(cls, statistic: np.ndarray, least: float) -> GaussianFit:
        return cls(mean=float(statistic.mean()), std=max(float(statistic.std()), least))

    def log_density(self, statistic: np.ndarray) -> np.ndarray:
        """Without the constant that all Gaussians share."""
        density: np.ndarray = -0.5 * ((statistic - self.mean) / self.std) ** 2 - np.log(self.std)
        return density


@dataclass(frozen=True, kw_only=True)
class LikelihoodRatio:
    """The test of one target."""

    inside: GaussianFit
    outside: GaussianFit

    @classmethod
    def fitted(cls, ins: np.ndarray, outs: np.ndarray) -> LikelihoodRatio:
        """From the statistics of trials in which the target was there, and in which it was not."""
        size = float(np.abs(np.concatenate([ins, outs])).max(initial=0.0))
        least = max(_SMALLEST * size, np.finfo(float).tiny ** 0.25)
        return cls(inside=GaussianFit.to(ins, least), outside=GaussianFit.to(outs, least))

    def scores(self, statistic: np.ndarray) -> np.ndarray:
        ratio: np.ndarray = self.inside.log_density(statistic) - self.outside.log_density(statistic)
        return ratio


_RECORD_DRAWS = 1 << 20
"""Batches of a victim are drawn under numbers from here on, apart from those of all clients."""

Seen = dict[tuple[str, bool], dict[str, np.ndarray]]
"""By part ("shadow", "test") and whether the target is there: the statistics of each view."""


@dataclass(frozen=True, kw_only=True)
class Numbers:
    """For each target and each of the two worlds, with and without it."""

    targets: int = 10
    shadows: int = 200
    """Rounds that the adversary plays for its fits and thresholds."""
    trials: int = 200
    """Rounds that are counted."""
    draws: int = 8
    """Draws of all clients' batches: for the direction that is looked at, for shadows, and for trials."""


def replaced(experiment: Experiment) -> bool:
    """Whether another client is in the place of one that is not there."""
    return isinstance(experiment.sampler, FixedSize) or not experiment.scheme.noise.private


def drawn_clients(standing: Standing, available: int, count: int) -> list[int]:
    drawn = standing.clients.streams.numpy("membership", "clients").permutation(available)[:count]
    return [int(client) for client in drawn]


@dataclass(frozen=True, kw_only=True)
class Question:
    """One target, and its trials in both worlds: of the adversary, and of the test."""

    victim: Victim
    worlds: dict[tuple[str, bool], Trials]

    def play(self, pool: Pool, views: tuple[str, ...], training: slice) -> Seen:
        """All of them. `training` are the draws of batches from which the directions come that are looked at."""
        others = self.worlds["shadow", True].others
        filters = filters_for(pool, self.victim, others, training)
        return {name: statistics(pool, trials, views, filters) for name, trials in self.worlds.items()}


def _halves(pool: Pool, numbers: Numbers, *name: str | int) -> Iterator[tuple[str, bool, np.ndarray]]:
    """Part, whether the target is there, and which draw of batches each trial uses."""
    streams = pool.standing.clients.streams
    for place, (part, count) in enumerate((("shadow", numbers.shadows), ("test", numbers.trials)), start=1):
        for member in (True, False):
            rng = streams.numpy("membership", *name, part, int(member), "draws")
            yield part, member, place * numbers.draws + rng.integers(numbers.draws, size=count)


def clients_asked(pool: Pool, numbers: Numbers) -> Iterator[Question]:
    """Clients of the pool, drawn at random."""
    standing = pool.standing
    swapped = replaced(standing.experiment)
    for client in drawn_clients(standing, pool.num_clients, numbers.targets):
        sent = pool.codes[:, client]
        own = sent[: numbers.draws].mean(0)
        common = pool.codes[: numbers.draws, pool.all_but(client)].mean((0, 1))
        expected = own - common if swapped else own
        victim = Victim(expected=expected, own=own, records=standing.records(client), client=client)
        yield Question(
            victim=victim,
            worlds={
                (part, member): Trials(
                    victim=victim,
                    codes=sent[torch.from_numpy(draws)] if member else None,
                    others=standing.size - (0 if swapped and not member else 1),
                    draws=draws,
                    size=int(pool.sizes[client]),
                    name=("membership", "client", client, part, int(member)),
                )
                for part, member, draws in _halves(pool, numbers, "client", client)
            },
        )


def records_asked(pool: Pool, numbers: Numbers) -> Iterator[Question]:
    """Records of clients of the pool. The victim's other records are drawn from all clients', anew in each trial."""
    standing = pool.standing
    e, streams = standing.experiment, standing.clients.streams
    every = pooled_records(e.population)
    sizes = [e.population.size(client) for client in range(e.population.num_clients)]
    owners = np.repeat(np.arange(len(sizes)), sizes)
    theirs = np.flatnonzero(owners < pool.num_clients)
    chosen = streams.numpy("membership", "records").permutation(theirs)[: numbers.targets]
    for number, record in enumerate(chosen.tolist()):
        owner = int(owners[record])
        held = sizes[owner]
        seen = standing.clients.seen(every.some(np.array([record])))
        assert seen is not None

        def sent(
            name: str, count: int, member: bool, draw: int, record: int = record, number: int = number, held: int = held
        ) -> Tensor:
            """What the victim sends with so many different data sets; the same ones for the same name."""
            rng = streams.numpy("membership", "record", record, name, "data")
            rows = _data_sets(rng, len(every.targets), record, held, count, member, removed=e.scheme.record_level)
            draw += _RECORD_DRAWS + 5 * number
            return standing.bounded(PooledPopulation(every, rows), np.arange(count), draw)

        # With all else the same, down to the batches: what is left is what the record does to a code.
        with_it, without = (sent("expected", numbers.shadows, member, 0) for member in (True, False))
        victim = Victim(expected=(with_it - without).mean(0), own=None, records=seen, client=owner)
        worlds = {}
        for place, (part, member, draws) in enumerate(_halves(pool, numbers, "record", record), start=1):
            codes = sent(f"{part} {int(member)}", len(draws), member, place)
            worlds[part, member] = Trials(
                victim=victim,
                codes=codes,
                others=standing.size - 1,
                draws=draws,
                size=held,
                name=("membership", "record", record, part, int(member)),
            )
        yield Question(victim=victim, worlds=worlds)


def _data_sets(
    rng: np.random.Generator, available: int, record: int, held: int, count: int, member: bool, *, removed: bool
) -> np.ndarray:
    """The victim's records in each trial, (trials, records); without the record another is there, or none."""
    rows = np.stack([rng.choice(available - 1, size=max(2, held), replace=False) for _ in range(count)])
    rows += rows >= record
    if member:
        rows[:, 0] = record
    return rows[:, 1:] if removed and not member else rows


LEVELS = ("client", "record", "run")
Progress = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class MembershipGame(Numbers):
    """How often it is played, and what is looked at."""

    pool: int = 1000
    """Clients that may be in a round, at most."""
    after: int = 0
    """Rounds of training before the one that is asked about."""
    rounds: int = 1
    """Rounds in all of which the target is, or in none: only of a run."""
    views: tuple[str, ...] = tuple(VIEWS)

    def __post_init__(self) -> None:
        counts = {"targets": self.targets, "shadows": self.shadows, "trials": self.trials, "draws": self.draws}
        positive_int(**counts, pool=self.pool, rounds=self.rounds)
        problems = [unknown("view", view, VIEWS) for view in self.views if view not in VIEWS]
        if self.after < 0:
            problems.append(f"--after {self.after}: give a number of rounds, 0 or more")
        if min(self.shadows, self.trials) < 2:
            problems.append("--shadows and --trials must be 2 or more: one number has no spread")
        if not self.views:
            problems.append(f"name a view: {', '.join(VIEWS)}")
        if problems:
            raise ConfigError(several(problems))


@dataclass(frozen=True, kw_only=True)
class Membership:
    """What one view tells of who was there."""

    scheme: str
    level: str
    view: str
    roc: Roc
    claim: Claim | None
    """What is promised against this view; None if nothing is."""

    def row(self) -> dict[str, Any]:
        """Plain numbers, for a table."""
        row: dict[str, Any] = {"scheme": self.scheme, "level": self.level, "view": self.view}
        row |= dict(zip(("auc", "auc_low", "auc_high"), self.roc.auc, strict=True))
        row |= {"trials": self.roc.points[0].ins}
        for point in self.roc.points:
            name = f"at_{100 * point.rate:g}%"
            row |= {f"{key}_{name}": value for key, value in point.to_dict().items() if key != "rate"}
            row[f"bound_{name}"] = None if self.claim is None else self.claim.tpr_bound(point.rate)
            row[f"gaussian_bound_{name}"] = None if self.claim is None else self.claim.gaussian_bound(point.rate)
        row["epsilon"] = None if self.claim is None else self.claim.epsilon
        row["delta"] = None if self.claim is None else self.claim.delta
        return row

    def exceeds(self, false_alarm: float) -> bool:
        """Whether some point disproves the claim; a true one is disproved with this probability at most."""
        if self.claim is None:
            return False
        each = false_alarm / len(self.roc.points)
        return any(self.claim.exceeded(point, each) for point in self.roc.points)


def membership(
    experiment: Experiment,
    *,
    level: str = "client",
    game: MembershipGame | None = None,
    progress: Progress = lambda text: None,
) -> list[Membership]:
    """Play the game for one scheme; one result for each view."""
    game = game or MembershipGame()
    if level not in LEVELS:
        raise ConfigError(unknown("level", level, LEVELS))
    progress(f"{experiment.scheme.name}: training")
    standing = Standing.after(experiment, game.after)
    if standing.size < 2:
        raise ConfigError("a cohort of one hides no client: raise --sampling-rate or --cohort-size")
    available = min(game.pool, experiment.population.num_clients)
    if available <= standing.size:
        raise ConfigError(
            f"cohorts of {standing.size} from {available} clients leave none to draw from: lower --sampling-rate, or"
            " raise --num-clients or --pool"
        )
    scored: dict[str, list[_Scores]] = {view: [] for view in game.views}
    for number, found in enumerate(_targets(standing, level, game), start=1):
        progress(f"{experiment.scheme.name}, {level} {number} of {game.targets}")
        for view, scores in found.items():
            scored[view].append(scores)
    return [
        Membership(
            scheme=experiment.scheme.name,
            level=level,
            view=view,
            roc=_joined(scores),
            claim=_claim(standing, view, level, game.rounds if level == "run" else 1),
        )
        for view, scores in scored.items()
    ]


def _claim(standing: Standing, view: str, level: str, rounds: int) -> Claim | None:
    """Noise shares protect the sum: nothing is promised against an adversary who sees single codes."""
    if view == "single" and not standing.experiment.scheme.record_level:
        return None
    return claim_of(standing.experiment, rounds, record=level == "record")


@dataclass(frozen=True)
class _Scores:
    """Likelihood ratios of one target's trials, and of the shadows without it, for thresholds."""

    ins: np.ndarray
    outs: np.ndarray
    calibration: np.ndarray


def _joined(scores: list[_Scores]) -> Roc:
    """One curve of all targets: a likelihood ratio means the same for each."""
    ins, outs, calibration = (
        np.concatenate([getattr(one, name) for one in scores]) for name in ("ins", "outs", "calibration")
    )
    return roc(ins, outs, calibration=calibration)


def _targets(standing: Standing, level: str, game: MembershipGame) -> Iterator[dict[str, _Scores]]:
    """The scores of one target after another, by view."""
    if level == "run":
        yield from _runs(standing, game)
        return
    pool = Pool.of(standing, 3 * game.draws, game.pool)
    for question in clients_asked(pool, game) if level == "client" else records_asked(pool, game):
        yield _scores(question.play(pool, game.views, slice(game.draws)), game.views)


def _scores(seen: Seen, views: tuple[str, ...]) -> dict[str, _Scores]:
    """Fit to the shadows, score the tests."""
    found = {}
    for view in views:
        outs = seen["shadow", False][view]
        test = LikelihoodRatio.fitted(seen["shadow", True][view], outs)
        found[view] = _Scores(
            test.scores(seen["test", True][view]), test.scores(seen["test", False][view]), test.scores(outs)
        )
    return found


def _runs(standing: Standing, game: MembershipGame) -> Iterator[dict[str, _Scores]]:
    """Clients drawn at random, each with whole runs of its own."""
    available = min(game.pool, standing.experiment.population.num_clients)
    for client in drawn_clients(standing, available, game.targets):
        run = WholeRun(
            start=standing, target=client, rounds=game.rounds, replaced=replaced(standing.experiment), pool=available
        )
        seen: Seen = {}
        for part, count in (("shadow", game.shadows), ("test", game.trials)):
            for member in (True, False):
                name = ("membership", "run", client, part, int(member))
                rows = [run.statistics(game.views, member, (*name, trial)) for trial in range(count)]
                seen[part, member] = {view: np.array([row[view] for row in rows]) for view in game.views}
        yield _scores(seen, game.views)
