"""The two federations of an audit, and what server and outsider saw of each canary in every round of them.

One is the run itself with canaries among its clients, the others are short runs of a tiny model. In both the scheme, σ,
S, the rate of the sampler, the slack and the number of rounds are those of the run, and the claim is what the
accountant says of the federation that is audited. That differs from the run's claim in the grid of the integer noise
alone (by less than a five-hundredth of σ), or where a cohort's size is rounded.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor, nn

from laconic.audit.canaries import (
    Canaries,
    CanaryClients,
    OrthogonalDirections,
    Still,
    WithCanaries,
    released_sums,
    watched,
)
from laconic.codecs.base import Codec
from laconic.codecs.dct import LowPassDCT
from laconic.data.population import FunctionPopulation, Records
from laconic.errors import ConfigError
from laconic.experiment.experiment import Experiment
from laconic.plan import RoundPlan
from laconic.privacy.accounting.accountant import RunAccountant
from laconic.privacy.accounting.sampling import FixedSize, Sampler
from laconic.runner.run import Run
from laconic.train.local import UnitGradients

LANES = 128
"""Canaries of one short run, each with a direction of its own; as many directions are free."""
_LARGEST_MODEL = 1 << 14


def check_auditable(experiment: Experiment) -> None:
    """Refuse what this audit cannot judge."""
    scheme = experiment.scheme
    if not scheme.private:
        raise ConfigError(f"{scheme.name} promises no ε, so there is nothing to audit: use a scheme in -dp")
    if scheme.record_level:
        raise ConfigError(f"{scheme.name} protects single records, and canaries are clients: use a scheme in -dp")
    if scheme.noise.central or not experiment.sampler.amplifies:
        raise ConfigError(
            f"{scheme.name}: the audit plants canaries into rounds that are drawn by chance and have their own noise:"
            " leave out ⟨noise-bands⟩ and ⟨sampler⟩ cyclic"
        )
    if scheme.codec.vote_rounds:
        raise ConfigError(
            f"{scheme.name} begins with votes, which have another S and another noise than the rest, and an audit takes"
            " rounds that are all alike: leave out ⟨top-selection⟩ votes, and choose with public records"
        )
    for query in scheme.asked:
        raise ConfigError(
            f"an audit takes rounds that are all alike, and {query.name} have another S and another noise:"
            f" {query.without}"
        )
    if experiment.group_testing:
        raise ConfigError(
            "an audit takes rounds that are all alike, and with ⟨group-testing⟩ they change with what was found: audit"
            " the run without it, whose sums have the same noise"
        )
    if experiment.attack is not None:
        raise ConfigError(
            "an audit asks whether the promise holds where clients keep to the protocol: leave out ⟨attack⟩"
        )


def with_canaries(experiment: Experiment, canaries: int) -> Experiment:
    """The run with canaries besides its clients, sampled at the same rate; those that are units come to its clients."""
    if experiment.scheme.sums_units:
        return replace(_plain(experiment), scheme=watched(experiment.scheme))
    clients = experiment.population.num_clients
    return replace(
        _plain(experiment),
        scheme=watched(experiment.scheme),
        population=WithCanaries(experiment.population, canaries),
        sampler=at_same_rate(experiment.sampler, clients, clients + canaries),
    )


@dataclass(frozen=True)
class ShortRuns:
    """How the short runs are laid out: so many canaries, the first clients of so many."""

    experiment: Experiment
    lanes: int


def short_runs(experiment: Experiment) -> ShortRuns:
    """Short runs without training: canaries have codes of their own directions, all others the code 0.

    An adversary that knows all other clients can do no better than where they are 0. The model is so small that a round
    takes milliseconds, and its code has a direction for every canary, orthogonal to the others.
    """
    codec = watched(experiment.scheme).codec
    size = tiny_size(codec)
    order = 1 << (codec.code_size(size).bit_length() - 1)
    lanes = min(LANES, order // 2)
    scheme, inside = experiment.scheme, experiment.scheme.sums_units
    if isinstance(scheme.train, UnitGradients):
        clients, sampler = experiment.population.num_clients, experiment.sampler
        scheme = replace(scheme, train=replace(scheme.train, class_weights=(), prevalence=()))
    else:
        clients, sampler = _few_clients(experiment, lanes)
        lanes = min(lanes, clients)
    record = Records(torch.zeros(1, size), torch.zeros(1, 1))
    generator = torch.Generator().manual_seed(0)
    public = Records(torch.randn(4, size, generator=generator), torch.ones(4, 1))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = nn.Linear(size, 1, bias=False)
    if inside:
        nn.init.zeros_(model.weight)  # the gradient of a canary's record is then known: `CanaryWork`
    return ShortRuns(
        replace(
            _plain(experiment),
            scheme=watched(replace(scheme, rule=Still(), downlink="weights")),
            model=model,
            front_end=None,
            loss="mean-squared-error",
            population=FunctionPopulation(
                clients,
                lambda client: record,
                size=lambda client: 1,
                patients=lambda client: np.zeros(1, dtype=np.int64),
            ),
            sampler=sampler,
            public=public,
            secagg="simulated",
            noise_draws="per-sum" if experiment.draws_per_sum else "per-client",
            engine="one-by-one",
            workers=1,
        ),
        lanes,
    )


def tiny_size(codec: Codec) -> int:
    """The number of weights of the tiny model: so many that the code has 2·LANES values, but never too many."""
    wanted = 2 * LANES
    while (size := _smallest(codec, wanted)) > _LARGEST_MODEL and wanted > 32:
        wanted //= 2
    # A DCT pads the last chunk: sizes that fill all of them come first.
    if isinstance(codec, LowPassDCT):
        for some in range(size, 2 * size):
            chunks, length, _ = codec.chunk_sizes(some)
            if chunks * length == some:
                return some
    return size


def _smallest(codec: Codec, wanted: int) -> int:
    size = wanted
    while codec.code_size(size) < wanted:
        size = max(size + 1, int(size * wanted / codec.code_size(size)))
    return size


def claim_of(experiment: Experiment) -> RunAccountant:
    """What answers for the ε of an audited federation."""
    accountant = experiment.accountant
    assert accountant is not None
    return accountant


def coins_of(experiment: Experiment) -> float:
    """The probability of coins that neither server nor outsider knows: that a unit inside clients is drawn."""
    return claim_of(experiment).main.rate if experiment.scheme.sums_units else 1.0


def at_same_rate(sampler: Sampler, before: int, now: int) -> Sampler:
    """The sampler for another number of clients."""
    if not isinstance(sampler, FixedSize):
        return sampler
    return replace(sampler, cohort_size=max(1, round(sampler.cohort_size * now / before)))


def _few_clients(experiment: Experiment, lanes: int) -> tuple[int, Sampler]:
    """How many clients the short runs have: no more than the canaries where that changes nothing."""
    sampler, clients = experiment.sampler, experiment.population.num_clients
    if experiment.max_dropouts + experiment.max_colluders or experiment.dropout_rate or experiment.scheme.groups > 1:
        few = max(clients, lanes)
        return few, at_same_rate(sampler, clients, few)
    if not isinstance(sampler, FixedSize):
        return lanes, sampler
    rate = sampler.rate_in(clients)
    cohort = max(1, round(rate * lanes))
    return max(cohort, round(cohort / rate)), replace(sampler, cohort_size=cohort)


def _plain(experiment: Experiment) -> Experiment:
    """Without looking at anything but the sums; the number of rounds is that of the run, not one that a budget ends.

    The run was refused if its δ is too large. With more clients beside it, it may be larger than one over their number.
    """
    budget = experiment.budget
    assert budget is not None
    return replace(
        experiment,
        test=None,
        test_clients=None,
        holdout=None,
        patience=None,
        budget=replace(budget, epsilon=None),
        allow_large_delta=True,
        eval_every=experiment.rounds + 1,
        best_by="auto",
        profile=False,
    )


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
        run.finish_round(plan, clients.collect(plan, run.state.weights) if plan.viable else run.empty_collection(plan))
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
    # In which sum each of them is, and how much noise that has: each client that came brought a share of the variance.
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
    if canaries.holders is not None:
        there = np.isin(canaries.holders, uploaded).any(1) & ~lost[0]
        own = np.zeros(len(there), dtype=np.int64)
        return _Row(plan, there, clients.work.draw(plan), _of_own_sum(every, own, there), outsider)
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
