"""One run of the experiment itself with canaries among its clients: who was in is guessed from what was released.

All others train as usual. The codes of other canaries are in the way of the guesses, so the bounds are below what
a stronger adversary could show; they are valid all the same, and do not assume that canaries are independent of each
other.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from laconic.audit.bounds import (
    fitted_epsilon,
    gdp_epsilon,
    one_run_epsilon,
    one_run_mu,
    one_run_p_value,
    outsider_scores,
    server_scores,
)
from laconic.audit.canaries import Canaries, CanaryClients, RandomDirections, code_when_out, unit_holders
from laconic.audit.result import Bound, rounds_of
from laconic.audit.setups import Seen, claim_of, coins_of, watch, with_canaries
from laconic.experiment.experiment import Experiment
from laconic.observers.observer import Row
from laconic.runner.run import Run

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


def server_bounds(whole: WholeRun, delta: float, error: float) -> list[Bound]:
    """Of the server, who knows the cohorts; the claim is that of the canary that took part most often."""
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


def outsider_bounds(whole: WholeRun, delta: float, error: float) -> list[Bound]:
    """Of an outsider, who sees all sums; and of one who sees the last model alone."""
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
