"""Many short runs: each has canaries that are in or out, along orthogonal directions, and all others send nothing.

Every canary is a trial of the whole run. Directions are orthogonal and the noise of each is drawn by itself, so trials
are independent if the noise is what it should be. That is enough for a verdict: if the mechanism is as claimed, the
audit says otherwise with the stated probability at most.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from laconic.audit.bounds import count, epsilon_by_threshold, gdp_epsilon, outsider_scores, server_scores
from laconic.audit.canaries import Canaries, CanaryClients, OrthogonalDirections, code_when_out, unit_holders
from laconic.audit.result import Bound, rounds_of
from laconic.audit.setups import Seen, claim_of, coins_of, short_runs, watch
from laconic.experiment.experiment import Experiment
from laconic.runner.run import Run
from laconic.streams import Streams

_LARGE_DELTA = 0.05


@dataclass(frozen=True)
class ManyRuns:
    """The audited federation, and what was seen in each of its runs."""

    experiment: Experiment
    seen: list[Seen]


def watch_many_runs(experiment: Experiment, trials: int, tick: Callable[[int, int], None]) -> ManyRuns:
    """Have as many short runs as so many trials take. Each has a seed of its own."""
    short = short_runs(experiment)
    runs, streams, seen = -(-trials // short.lanes), Streams(experiment.seed), []
    for number in range(runs):
        one = replace(short.experiment, seed=streams.public_seed("audit", number))
        clients = CanaryClients(one, bystanders=True)
        coins = clients.streams.numpy("canary coins").random(short.lanes) < 0.5
        canaries = Canaries(
            0,
            coins,
            code_when_out(one.sampler, one.scheme.unit),
            OrthogonalDirections(clients),
            unit_holders(one, short.lanes),
        )
        seen.append(watch(Run(one, clients=clients), clients, canaries))
        tick(number + 1, runs)
    return ManyRuns(short.experiment, seen)


def server_bounds(many: ManyRuns, delta: float, error: float) -> list[Bound]:
    """Of the server: for one participation, and for as many as are usual in the run."""
    usual = usual_participations(many.experiment)
    bounds = [_gdp(many, 1, delta, error)]
    if usual > 1:
        bounds.append(_gdp(many, usual, delta, error))
    scores, coins = _of_participants(many, usual)
    lower, test = epsilon_by_threshold(scores, coins, delta, error)
    bounds.append(
        Bound(
            adversary="server",
            about=rounds_of(usual),
            how="short runs",
            delta=delta,
            claimed=claim_of(many.experiment).participant_epsilon(usual),
            lower=lower,
            trials=len(scores),
            numbers={"hits": test.hits, "ins": test.ins, "false": test.false, "outs": test.outs},
        )
    )
    return bounds


def outsider_bounds(many: ManyRuns, delta: float, error: float) -> list[Bound]:
    """Of an outsider, over the whole run: at the δ of the run, and at a larger one where fewer trials show more."""
    e = many.experiment
    out, rate = code_when_out(e.sampler, e.scheme.unit), e.sampler.rate_in(e.population.num_clients) * coins_of(e)
    scores = np.concatenate([outsider_scores(one.outsider.along, rate, one.outsider.claimed, out) for one in many.seen])
    coins = np.concatenate([one.coins for one in many.seen])
    rounds, most = max(one.rounds for one in many.seen), max(one.most for one in many.seen)
    assert e.budget is not None
    bounds = []
    for at, how in ((delta, "short runs"), (max(delta, _LARGE_DELTA), "short runs, large δ")):
        lower, test = epsilon_by_threshold(scores, coins, at, error)
        bounds.append(
            Bound(
                adversary="outsider",
                about=f"run of {rounds}",
                how=how,
                delta=at,
                claimed=replace(claim_of(e), delta=at).released_epsilon(rounds, e.budget.accountant, most),
                lower=lower,
                trials=len(scores),
                numbers={"hits": test.hits, "ins": test.ins, "false": test.false, "outs": test.outs},
            )
        )
    return bounds


def usual_participations(experiment: Experiment) -> int:
    """How often a client takes part in the run, on average; once at least, and never more often than it may."""
    rate = experiment.sampler.rate_in(experiment.population.num_clients)
    usual = max(1, int(rate * experiment.rounds))
    cap = None if experiment.budget is None else experiment.budget.max_participations
    return usual if cap is None else min(usual, cap)


def participations(many: ManyRuns, *, drawn: bool = False) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of every canary in every round in which it took part: what the server saw, whether it was in, and s².

    With `drawn` only of rounds in which a client drew it, if it is a unit inside clients: the server does not know.
    """
    which = [one.there & one.drawn if drawn else one.there for one in many.seen]
    pairs = list(zip(many.seen, which, strict=True))
    seen = np.concatenate([one.server.along[:, 0][there] for one, there in pairs])
    coins = np.concatenate([np.broadcast_to(one.coins, there.shape)[there] for one, there in pairs])
    variance = np.concatenate([one.server.claimed[:, 0][there] for one, there in pairs])
    return seen, coins, variance


def _gdp(many: ManyRuns, often: int, delta: float, error: float) -> Bound:
    """By the middle threshold, where both worlds are equally likely: it is known beforehand, so all trials count."""
    if often == 1:
        seen, coins, variance = participations(many)
        out = code_when_out(many.experiment.sampler, many.experiment.scheme.unit)
        scores = server_scores(
            seen[None], np.ones_like(seen[None], dtype=bool), variance[None], out, coins_of(many.experiment)
        )
    else:
        scores, coins = _of_participants(many, often)
    test = count(scores, coins, 0.0)
    mu = test.mu(error)
    return Bound(
        adversary="server",
        about=rounds_of(often),
        how="short runs, GDP",
        delta=delta,
        claimed=claim_of(many.experiment).participant_epsilon(often),
        lower=gdp_epsilon(mu, delta),
        trials=len(scores),
        holds_for="Gaussian noise",
        numbers={"hits": test.hits, "ins": test.ins, "false": test.false, "outs": test.outs, "mu": mu},
    )


def _of_participants(many: ManyRuns, often: int) -> tuple[np.ndarray, np.ndarray]:
    """Scores and coins of the canaries that took part so often, by the first so many times."""
    out, scores, coins = code_when_out(many.experiment.sampler, many.experiment.scheme.unit), [], []
    for one in many.seen:
        enough = one.there.sum(0) >= often
        first = one.there & (one.there.cumsum(0) <= often)
        found = server_scores(one.server.along[:, 0], first, one.server.claimed[:, 0], out, coins_of(many.experiment))
        scores.append(found[enough])
        coins.append(one.coins[enough])
    return np.concatenate(scores), np.concatenate(coins)
