"""A run with canaries in it, and what server and outsider saw of each canary in every round."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from laconic.audit.canaries import Canaries, OrthogonalDirections
from laconic.audit.planted import CanaryClients, released_sums
from laconic.plan import RoundPlan
from laconic.privacy.accounting.sampling import FixedSize
from laconic.runner.run import Run


@dataclass(frozen=True)
class View:
    """What one of the two saw, in units of S: (rounds, sums, canaries), or what is broadcast to it.

    The server looks at the one sum that a canary is in, the outsider at all sums of a round: there are several if the
    cohort is summed in groups. What honest clients sent is subtracted: who sees the sums may know them. (Not for the
    outsider where cohorts have a fixed size: who else took part would tell of the canary.)
    """

    along: np.ndarray
    """What the sums have along the canaries' directions."""
    claimed: np.ndarray
    """The variance that the noise must have in each direction."""
    measured: np.ndarray
    """The mean square of the sums in any direction, with the codes of all canaries in it."""
    norm: np.ndarray
    """That of the whole sum."""
    free: np.ndarray
    """(sums, free directions): noise alone, in units of the claimed standard deviation; only of short runs."""


@dataclass(frozen=True)
class Seen:
    """What was seen in a run: by the server (sums before its own noise), and by an outsider (released sums)."""

    coins: np.ndarray
    there: np.ndarray
    """(rounds, canaries): whose message was in an opened sum."""
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


@dataclass(frozen=True)
class _Row:
    """A round: as in `Seen`."""

    plan: RoundPlan
    there: np.ndarray
    drawn: np.ndarray
    server: View
    outsider: View


def watch(run: Run, clients: CanaryClients, canaries: Canaries, *, last: bool = False) -> Seen:
    """Have all rounds, and note what is seen. The run must be new."""
    clients.work.canaries = canaries
    run.begin()
    initial, rows = run.state.weights, list[_Row]()
    for number in range(1, run.experiment.rounds + 1):
        plan = run.begin_round(number)
        if plan is None:
            break
        clients.opened = None
        run.finish_round(plan, clients.collect(plan, run.state.weights) if plan.viable else run.nothing(plan))
        rows.append(_row(run, clients, canaries, plan))
    assert rows, "a run has a round"
    return Seen(
        coins=canaries.coins,
        there=np.stack([row.there for row in rows]),
        drawn=np.stack([row.drawn for row in rows]),
        cohorts=np.array([len(row.plan.cohort) for row in rows]),
        server=_stacked([row.server for row in rows]),
        outsider=_stacked([row.outsider for row in rows]),
        last=_last(run, canaries, initial, rows[-1].plan) if last else np.zeros(len(canaries.coins)),
    )


def _stacked(views: list[View]) -> View:
    return View(
        along=np.stack([view.along for view in views]),
        claimed=np.stack([view.claimed for view in views]),
        measured=np.stack([view.measured for view in views]),
        norm=np.stack([view.norm for view in views]),
        free=np.concatenate([view.free for view in views]),
    )


def _row(run: Run, clients: CanaryClients, canaries: Canaries, plan: RoundPlan) -> _Row:
    e, sums = run.experiment, plan.sums
    variance = (e.scheme.noise_multiplier or 0.0) ** 2
    released = released_sums(run.state.rule, plan)
    opened = clients.opened if clients.opened is not None else torch.full_like(released, torch.nan)
    lost = opened[:, 0].isnan().cpu().numpy()
    uploaded = clients.work.uploaded if not lost.all() else plan.cohort[:0]
    # In which sum each of them is, and how much noise that has: everybody who came brought a share of the variance.
    places = plan.group_of(uploaded) if plan.groups else np.zeros(len(uploaded), dtype=np.int64)
    came = np.bincount(places, minlength=len(sums))
    present = np.array([n / max(1, len(one.cohort) - one.slack) for n, one in zip(came, sums, strict=True)])
    known = clients.work.known if not lost.all() else None
    if known is not None:
        known = known * torch.from_numpy(~lost).to(known.device)[:, None]
        opened = opened - known
        released = released if isinstance(e.sampler, FixedSize) else released - known
    outsider = _view(e.sensitivity, canaries, plan, released, np.full(len(sums), variance * plan.released_variance))
    every = _view(e.sensitivity, canaries, plan, opened, variance * present)
    mine = canaries.among(uploaded)
    there, own = np.zeros(len(canaries.coins), dtype=bool), np.zeros(len(canaries.coins), dtype=np.int64)
    own[uploaded[mine] - canaries.first] = places[mine]
    there[uploaded[mine] - canaries.first] = ~lost[places[mine]]
    drawn = np.zeros(len(canaries.coins), dtype=bool)
    drawn[plan.cohort[canaries.among(plan.cohort)] - canaries.first] = True
    return _Row(plan, there, drawn, _of_own_sum(every, own, there), outsider)


def _view(sensitivity: float, canaries: Canaries, plan: RoundPlan, totals: Tensor, claimed: np.ndarray) -> View:
    """Of one round: (sums, canaries), or (sums, 1)."""
    totals = totals / sensitivity
    square = (totals**2).sum(1).cpu().numpy()
    free = np.zeros((0, 0))
    if isinstance(canaries.directions, OrthogonalDirections):
        rows = canaries.directions.rows[len(canaries.coins) :].double()
        noise = (totals @ rows.T).cpu().numpy()
        there = np.isfinite(square) & (claimed > 0)
        free = noise[there] / np.sqrt(claimed[there])[:, None]
    return View(
        along=np.stack([canaries.along(plan, total) for total in totals]),
        claimed=claimed[:, None],
        measured=square[:, None] / totals.shape[1],
        norm=np.sqrt(square)[:, None],
        free=free,
    )


def _of_own_sum(every: View, own: np.ndarray, there: np.ndarray) -> View:
    """What the server looks at: the sum that each canary is in; zeros, and a variance of 1, where it is in none."""
    chosen = {
        name: np.where(there, np.broadcast_to(values, every.along.shape)[own, np.arange(len(own))], missing)[None]
        for name, values, missing in (
            ("along", every.along, 0.0),
            ("claimed", every.claimed, 1.0),
            ("measured", every.measured, 1.0),
            ("norm", every.norm, 1.0),
        )
    }
    return View(**chosen, free=every.free)


def _last(run: Run, canaries: Canaries, initial: Tensor, plan: RoundPlan) -> np.ndarray:
    codec, change = run.experiment.scheme.codec, run.state.weights - initial
    if codec.linear:
        change = codec.encode(change[None], plan, [])[0]
    along = canaries.along(plan, change.double())
    cosines: np.ndarray = along / max(float(change.double().norm()), 1e-30)
    return cosines
