"""The runs of an audit: many short ones with a client in or out, or one of the experiment itself; and their bounds.

*Many short runs* have canaries that are in or out, along orthogonal directions, and all others send nothing. Every
canary is a trial of the whole run. Directions are orthogonal and the noise of each is drawn by itself, so trials are
independent if the noise is what it should be. That is enough for a verdict: if the mechanism is as claimed, the audit
says otherwise with the stated probability at most.

*One whole run* has canaries among its clients: who was in is guessed from what was released. All others train as usual.
The codes of other canaries are in the way of the guesses, so the bounds are below what a stronger adversary could show;
they are valid all the same, and do not assume that canaries are independent of each other.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from laconic.audit.bounds import (
    count,
    epsilon_by_threshold,
    fitted_epsilon,
    gdp_epsilon,
    one_run_epsilon,
    one_run_mu,
    one_run_p_value,
    outsider_scores,
    server_scores,
)
from laconic.audit.canaries import (
    Canaries,
    CanaryClients,
    OrthogonalDirections,
    RandomDirections,
    code_when_out,
    unit_holders,
)
from laconic.audit.result import Bound, rounds_of
from laconic.audit.setups import Seen, claim_of, coins_of, short_runs, watch, with_canaries
from laconic.experiment.experiment import Experiment
from laconic.observers.observer import Row
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


def server_bounds_of_many(many: ManyRuns, delta: float, error: float) -> list[Bound]:
    """Bounds on the server's ε: for one participation, and for as many as are usual in the run."""
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


def outsider_bounds_of_many(many: ManyRuns, delta: float, error: float) -> list[Bound]:
    """Bounds on the outsider's ε over the run: at its δ, and at a larger one where fewer trials show more."""
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
    """Each canary in each of its rounds: what the server saw, whether the canary was in, and s².

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


_SHARES = (0.1, 0.15, 0.2, 0.3, 0.5, 0.7, 1.0)
"""Of the canaries: how many are guessed."""


@dataclass(frozen=True)
class WholeRun:
    """The audited experiment, and what was seen."""

    experiment: Experiment
    seen: Seen


def watch_whole_run(experiment: Experiment, canaries: int, observer: Callable[[Row], None]) -> WholeRun:
    """Have the run with so many canaries."""
    audited = with_canaries(experiment, canaries)
    clients = CanaryClients(audited)
    coins = clients.streams.numpy("canary coins").random(canaries) < 0.5
    first = experiment.population.num_clients
    planted = Canaries(
        first,
        coins,
        code_when_out(audited.sampler, audited.scheme.unit),
        RandomDirections(clients),
        unit_holders(audited, canaries),
    )
    return WholeRun(audited, watch(Run(audited, clients=clients, observer=observer), clients, planted, last=True))


def server_bounds_of_whole(whole: WholeRun, delta: float, error: float) -> list[Bound]:
    """Bounds on the server's ε, who knows the cohorts; the claim is that of the busiest canary."""
    e, seen = whole.experiment, whole.seen
    out, most = code_when_out(e.sampler, e.scheme.unit), max(1, seen.most)
    rate = coins_of(e)
    scores = server_scores(seen.server.along[:, 0], seen.there, seen.server.measured[:, 0], out, rate)
    guesses = _guesses(e, len(seen.coins), delta, error, lambda x, there, s2: server_scores(x, there, s2, out, rate))
    correct = _correct(scores, seen.coins, guesses)
    cosines = np.where(seen.there, seen.server.along[:, 0] / seen.server.norm[:, 0], 0.0)
    count = np.sqrt(np.maximum(1, seen.there.sum(0)))
    numbers: dict[str, float] = {"canaries": len(seen.coins), "guesses": guesses, "correct": correct}
    claimed = claim_of(e).participant_epsilon(most)
    about = f"{rounds_of(most)} (busiest)"
    lower = one_run_epsilon(canaries=len(seen.coins), guesses=guesses, correct=correct, delta=delta, error=error)
    mu = one_run_mu(canaries=len(seen.coins), guesses=guesses, correct=correct, error=error)
    return [
        Bound(
            adversary="server",
            about=about,
            how="one run",
            delta=delta,
            claimed=claimed,
            lower=lower,
            trials=len(seen.coins),
            estimate=fitted_epsilon(cosines.sum(0) / count, seen.coins, delta),
            numbers=numbers,
        ),
        Bound(
            adversary="server",
            about=about,
            how="one run, GDP",
            delta=delta,
            claimed=claimed,
            lower=gdp_epsilon(mu, delta),
            trials=len(seen.coins),
            holds_for="Gaussian noise",
            numbers=numbers | {"mu": mu},
        ),
    ]


def outsider_bounds_of_whole(whole: WholeRun, delta: float, error: float) -> list[Bound]:
    """Bounds on the ε of an outsider who sees all sums, and of one who sees the last model alone."""
    e, seen = whole.experiment, whole.seen
    out, rate = code_when_out(e.sampler, e.scheme.unit), e.sampler.rate_in(e.population.num_clients) * coins_of(e)
    scores = outsider_scores(seen.outsider.along, rate, seen.outsider.measured, out)
    guesses = _guesses(
        e, len(seen.coins), delta, error, lambda x, there, s2: outsider_scores(x[:, None], rate, s2[:, None], out)
    )
    budget = e.budget
    assert budget is not None
    claimed = claim_of(e).released_epsilon(seen.rounds, budget.accountant, seen.most)
    cosines = (seen.outsider.along / seen.outsider.norm).max((0, 1))
    found = []
    for how, values, cosine in (
        ("one run", scores, cosines),
        ("one run, last model", seen.last, seen.last),
    ):
        correct = _correct(values, seen.coins, guesses)
        lower = one_run_epsilon(canaries=len(seen.coins), guesses=guesses, correct=correct, delta=delta, error=error)
        found.append(
            Bound(
                adversary="outsider",
                about=f"run of {seen.rounds}",
                how=how,
                delta=delta,
                claimed=claimed,
                lower=lower,
                trials=len(seen.coins),
                estimate=fitted_epsilon(cosine, seen.coins, delta),
                numbers={"canaries": len(seen.coins), "guesses": guesses, "correct": correct},
            )
        )
    return found


Score = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]
"""(what is seen (rounds, canaries), who took part, variance (rounds, 1)) → (canaries)"""


def _guesses(e: Experiment, canaries: int, delta: float, error: float, score: Score) -> int:
    """How many coins to guess: the number that does best if everything is as claimed. It does not look at the run."""
    rng = np.random.default_rng(0)
    rate, sigma = e.sampler.rate_in(e.population.num_clients) * coins_of(e), e.scheme.noise_multiplier or 0.0
    coins, shape = rng.random(canaries) < 0.5, (e.rounds, canaries)
    there = rng.random(shape) < rate
    others = rate * canaries / e.code_size
    variance = np.full((e.rounds, 1), sigma**2 + others)
    means = np.where(coins, 1.0, code_when_out(e.sampler, e.scheme.unit))
    scores = score(there * means + np.sqrt(variance) * rng.standard_normal(shape), there, variance)

    def worth(guesses: int) -> tuple[float, float]:
        numbers = {"canaries": canaries, "guesses": guesses, "correct": _correct(scores, coins, guesses)}
        return one_run_epsilon(**numbers, delta=delta, error=error), -one_run_p_value(
            **numbers, epsilon=0.0, delta=delta
        )

    return max((round(share * canaries) for share in _SHARES), key=worth)


def _correct(scores: np.ndarray, coins: np.ndarray, guesses: int) -> int:
    """How many of the surest guesses are right.

    The scores are taken from their median on, so that guesses are good also where sums differ by more than claimed.
    """
    scores = scores - np.median(scores)
    surest = np.argsort(-np.abs(scores), kind="stable")[:guesses]
    return int(((scores > 0) == coins)[surest].sum())
