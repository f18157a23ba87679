"""A run with canaries in it, and what server and outsider saw of each canary in every round."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from laconic.audit.canaries import Canaries, OrthogonalDirections
from laconic.audit.planted import RELEASED, CanaryClients
from laconic.plan import RoundPlan
from laconic.privacy.accounting.sampling import FixedSize
from laconic.runner.run import Run


@dataclass(frozen=True)
class View:
    """What one of the two saw, in units of S: along the canaries' directions, and along free ones.

    What honest clients sent is subtracted: who sees the sums may know them. (Not for the outsider where cohorts have a
    fixed size: who else took part would tell of the canary.)
    """

    along: np.ndarray
    """(rounds, canaries)"""
    free: np.ndarray
    """(rounds, free directions): noise alone; none in a run with honest codes."""
    claimed: np.ndarray
    """(rounds, 1): the variance that the noise must have in each direction."""
    measured: np.ndarray
    """(rounds, 1): the mean square in any direction, with the codes of all canaries in it."""
    norm: np.ndarray
    """(rounds, 1): that of the whole sum."""


@dataclass(frozen=True)
class Seen:
    """What was seen in a run: by the server (sums before its own noise), and by an outsider (released sums)."""

    coins: np.ndarray
    there: np.ndarray
    """(rounds, canaries): whose message was in the opened sum."""
    drawn: np.ndarray
    """(rounds, canaries): who was drawn into the cohort."""
    cohorts: np.ndarray
    """(rounds): how many clients were."""
    server: View
    outsider: View
    last: np.ndarray
    """(canaries): the cosine of each direction with the change of the weights over the whole run."""

    @property
    def rounds(self) -> int:
        return len(self.drawn)

    @property
    def most(self) -> int:
        """How often the busiest canary was drawn."""
        return int(self.drawn.sum(0).max(initial=0))


def watch(run: Run, clients: CanaryClients, canaries: Canaries, *, last: bool = False) -> Seen:
    """Have all rounds, and note what is seen. The run must be new."""
    clients.work.canaries = canaries
    run.begin()
    initial, rows = run.state.weights, []
    plan = None
    for number in range(1, run.experiment.rounds + 1):
        plan = run.begin_round(number)
        if plan is None:
            break
        clients.opened = None
        run.finish_round(plan, clients.collect(plan, run.state.weights) if plan.viable else run.nothing())
        rows.append(_row(run, clients, canaries, plan))
    assert rows, "a run has a round"
    views = {}
    for who in ("server", "outsider"):
        some = [row[who] for row in rows]
        views[who] = View(*(np.stack([part[i] for part in some]) for i in range(5)))
    return Seen(
        coins=canaries.coins,
        there=np.stack([row["there"] for row in rows]),
        drawn=np.stack([row["drawn"] for row in rows]),
        cohorts=np.array([row["cohort"] for row in rows]),
        server=views["server"],
        outsider=views["outsider"],
        last=_last(run, canaries, initial, rows[-1]["plan"]) if last else np.zeros(len(canaries.coins)),
    )


def _row(run: Run, clients: CanaryClients, canaries: Canaries, plan: RoundPlan) -> dict[str, Any]:
    scheme = run.experiment.scheme
    sigma = scheme.noise_multiplier or 0.0
    survivors = 0 if clients.opened is None else len(clients.work.uploaded)
    present = survivors / max(1, len(plan.cohort) - plan.slack)
    there = np.zeros(len(canaries.coins), dtype=bool)
    if survivors:
        there[clients.work.uploaded[canaries.among(clients.work.uploaded)] - canaries.first] = True
    drawn = np.zeros(len(canaries.coins), dtype=bool)
    drawn[plan.cohort[canaries.among(plan.cohort)] - canaries.first] = True
    released, known = run.state.rule[RELEASED].double(), clients.work.known if survivors else None
    opened = clients.opened if clients.opened is not None else released * np.nan
    if known is not None:
        opened = opened - known
        released = released if isinstance(run.experiment.sampler, FixedSize) else released - known
    return {
        "server": _view(run, canaries, plan, opened, sigma**2 * present),
        "outsider": _view(run, canaries, plan, released, sigma**2 * plan.released_variance),
        "there": there,
        "drawn": drawn,
        "cohort": len(plan.cohort),
        "plan": plan,
    }


def _view(run: Run, canaries: Canaries, plan: RoundPlan, total: Tensor, claimed: float) -> tuple[np.ndarray, ...]:
    """The parts of a `View`, of one round."""
    total = total / run.experiment.sensitivity
    square = float((total**2).sum())
    free = np.zeros(0)
    if isinstance(canaries.directions, OrthogonalDirections):
        free = (canaries.directions.rows[len(canaries.coins) :].double() @ total).cpu().numpy()
    numbers = (claimed, square / total.numel(), square**0.5)
    return canaries.along(plan, total), free, *(np.array([number]) for number in numbers)


def _last(run: Run, canaries: Canaries, initial: Tensor, plan: RoundPlan) -> np.ndarray:
    codec, change = run.experiment.scheme.codec, run.state.weights - initial
    if codec.linear:
        change = codec.encode(change[None], plan, [])[0]
    along = canaries.along(plan, change.double())
    return along / max(float(change.double().norm()), 1e-30)
