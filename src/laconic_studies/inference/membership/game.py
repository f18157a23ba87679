"""Membership inference: was a client in the cohort, was it in the run, was a record in a client's data?

The adversary follows the protocol. It knows the weights and the target's own records, and it can train: so it plays
rounds with and without the target, fits a Gaussian to a statistic in each world, and compares the likelihoods of what
it sees in the round that counts (Carlini et al. 2022). It does not know whose else's codes are in a round, which
batches were drawn, and the noise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from laconic.errors import ConfigError, several, unknown
from laconic.experiment.experiment import Experiment
from laconic.parts import positive_int
from laconic_studies.inference.membership.likelihood_ratio import LikelihoodRatio
from laconic_studies.inference.membership.questions import (
    Numbers,
    Seen,
    clients_asked,
    drawn_clients,
    records_asked,
    replaced,
)
from laconic_studies.inference.membership.roc import Roc, roc
from laconic_studies.inference.membership.trade_off import Claim, claim_of
from laconic_studies.inference.membership.trials import VIEWS, Pool
from laconic_studies.inference.membership.whole_runs import WholeRun
from laconic_studies.inference.standing import Standing

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
        raise ConfigError("a cohort of one hides nobody: raise --sampling-rate or --cohort-size")
    available = min(game.pool, experiment.population.num_clients)
    if available <= standing.size:
        raise ConfigError(
            f"cohorts of {standing.size} from {available} clients leave nobody to draw from: lower --sampling-rate, or"
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
    """Noise shares protect the sum: nothing is promised to somebody who sees single codes."""
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
