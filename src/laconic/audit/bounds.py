"""From what canaries show to lower bounds on ε, or on the μ of Gaussian DP.

**Scores.** Along the direction of a canary, a sum in units of S is normal with the standard deviation s. Its mean is c
if the canary took part in the round: c = 1 if it is in; and if it is out c = 0 (zero-out adjacency: its code is 0), or
c = −1 (replace-one: its code is the opposite one). Let ℓ(x, c) = (c·x − c²/2)/s².

*The server* knows who took part: Σ over the canary's rounds of ℓ(x, in) − ℓ(x, out).
*The outsider* does not: Σ over all rounds of ln(1 − q + q·e^ℓ(x, in)) − ln(1 − q + q·e^ℓ(x, out)), for the rate q.
Where a cohort is summed in groups, it does not know the group either: e^ℓ is the mean over the sums of all groups.

By the Neyman–Pearson lemma no test tells the two worlds apart better than a threshold on these sums, as long as nothing
else is in the way (codes of others).

**Many runs.** The trials must be independent of each other. A test says "in" or "out". Of the trials with the canary
in, it says "in" with probability T; of those without, with probability F. An (ε, δ)-DP mechanism has T ≤ e^ε·F + δ and
1 − F ≤ e^ε·(1 − T) + δ (Kairouz, Oh and Viswanath 2015), so

    ε ≥ ln max((T − δ)/F, (1 − F − δ)/(1 − T))

A mechanism that is μ-GDP has Φ⁻¹(T) − Φ⁻¹(F) ≤ μ (Dong, Roth and Su 2022). The bounds of Clopper and Pearson (1934), of
T from below and of F from above, at half the error each, make both right with the stated confidence, at all δ at once.

**One run.** The canaries need not be independent of each other. Each of m canaries is in or out by a fair coin of its
own. An adversary who sees what was released guesses r of the coins, a number that is fixed beforehand, and says nothing
of the others. Let v be the correct guesses.

*Steinke, Nasr and Jagielski 2023.* If the run is (ε, δ)-DP for each canary, then with W ~ Binomial(r, p),
p = e^ε/(1 + e^ε),

    P[at least v correct] ≤ P[W ≥ v] + 2mδ · max over i = 1 … v of P[v − i ≤ W < v]/i

*Mahloujifar, Melis and Chaudhuri 2024.* If the run is f-DP for each canary, write p_i for the probability of exactly i
correct guesses, r_i = Σ_{j≥i} (j/m)·p_j and h_i = Σ_{j≥i} ((r − j)/m)·p_j. Flip the coin of one random canary that was
guessed: what was a correct guess among at least i + 1 is now a wrong one beside at least i correct others. So
r_{i+1} ≤ 1 − f(h_i) = f̄(h_i), that is h_i ≥ f̄⁻¹(r_{i+1}). From a tail of probability τ on, these inequalities bound
r_0 + h_0 from below. If the bound is more than the true value, r/m, then the tail is less likely than τ.

**An estimate without a proof**, from the cosines of canaries in one run (after Andrew et al. 2023). In high dimensions
the cosine between a canary's direction and what was released is nearly normal, with and without the canary. The
distance of the two means in units of the standard deviation is taken for the μ of a Gaussian mechanism, and its ε at δ
is the estimate. It is no bound: neither the fit nor the sampling error is accounted for. (The paper fits two variances.
From some hundred canaries that makes the tails, and so an ε at a small δ, unstable; here there is one.)
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from laconic.privacy.accounting.tight import gaussian_epsilon


def at_least(seen: int, trials: int, error: float) -> float:
    """A lower bound of the probability; it is too large with probability `error` at most."""
    from scipy.special import betaincinv

    return float(betaincinv(seen, trials - seen + 1, error)) if seen else 0.0


def at_most(seen: int, trials: int, error: float) -> float:
    """An upper bound of the probability; it is too small with probability `error` at most."""
    from scipy.special import betainccinv

    return float(betainccinv(seen + 1, trials - seen, error)) if seen < trials else 1.0


_CANDIDATES = 200


@dataclass(frozen=True, kw_only=True)
class Test:
    """How often a test said "in", of so many trials with and without the canary."""

    __test__ = False  # pytest: this is no test of ours

    hits: int
    ins: int
    false: int
    outs: int

    def rates(self, error: float) -> tuple[float, float]:
        """(T at least, F at most): both are right but for a chance of `error`."""
        return at_least(self.hits, self.ins, error / 2), at_most(self.false, self.outs, error / 2)

    def epsilon(self, delta: float, error: float) -> float:
        """A lower bound on ε at this δ; 0 if the test shows nothing."""
        least, most = self.rates(error)
        return max(0.0, _log_ratio(least - delta, most), _log_ratio(1 - most - delta, 1 - least))

    def mu(self, error: float) -> float:
        """A lower bound on μ; 0 if the test shows nothing."""
        from scipy.special import ndtri

        least, most = self.rates(error)
        return max(0.0, float(ndtri(least) - ndtri(most))) if least > 0 and most < 1 else 0.0


def count(scores: np.ndarray, coins: np.ndarray, threshold: float) -> Test:
    """The test that says "in" above the threshold; `coins` say who was in."""
    said = scores > threshold
    return Test(
        hits=int(said[coins].sum()),
        ins=int(coins.sum()),
        false=int(said[~coins].sum()),
        outs=int((~coins).sum()),
    )


def epsilon_by_threshold(scores: np.ndarray, coins: np.ndarray, delta: float, error: float) -> tuple[float, Test]:
    """A lower bound on ε: the threshold is chosen on one half of the trials, and judged on the other."""
    half = len(scores) // 2
    chosen = best_threshold(scores[:half], coins[:half], delta, error)
    test = count(scores[half:], coins[half:], chosen)
    return test.epsilon(delta, error), test


def best_threshold(scores: np.ndarray, coins: np.ndarray, delta: float, error: float) -> float:
    """The threshold with the largest bound on these trials."""
    finite = scores[np.isfinite(scores)]
    if not len(finite):
        return 0.0
    candidates = np.unique(np.quantile(finite, np.linspace(0, 1, _CANDIDATES)))
    return max((count(scores, coins, float(t)).epsilon(delta, error), float(t)) for t in candidates)[1]


def gdp_epsilon(mu: float, delta: float) -> float:
    """The ε at this δ of a mechanism that is μ-GDP and no better."""
    return gaussian_epsilon(1 / mu, delta) if mu > 0 else 0.0


def _log_ratio(above: float, below: float) -> float:
    if above <= 0:
        return -math.inf
    return math.log(above / below) if below > 0 else math.inf


_FEWEST = 10


def fitted_epsilon(scores: np.ndarray, coins: np.ndarray, delta: float) -> float | None:
    """The estimate; None with too few canaries that were in, or out."""
    inside, outside = scores[coins], scores[~coins]
    if min(len(inside), len(outside)) < _FEWEST:
        return None
    pooled = np.concatenate([inside - inside.mean(), outside - outside.mean()])
    spread = np.sqrt((pooled**2).sum() / (len(pooled) - 2))
    return gdp_epsilon(float((inside.mean() - outside.mean()) / spread), delta) if spread > 0 else None


def server_scores(
    seen: np.ndarray, there: np.ndarray, variance: np.ndarray, out: float, rate: float = 1.0
) -> np.ndarray:
    """(rounds, canaries) → (canaries): `there` says who took part, `variance` is s².

    `rate` is that of coins that the server does not know: of units inside clients.
    """
    ratio = (1 - out) * (seen - (1 + out) / 2) / variance
    if rate < 1:
        ratio = _mixed(ratio[:, None], rate)
    scores: np.ndarray = np.where(there, ratio, 0.0).sum(0)
    return scores


def outsider_scores(seen: np.ndarray, rate: float, variance: np.ndarray, out: float) -> np.ndarray:
    """(rounds, sums, canaries) → (canaries)."""
    inside = _mixed((seen - 0.5) / variance, rate)
    if out:
        inside = inside - _mixed((out * seen - out**2 / 2) / variance, rate)
    scores: np.ndarray = inside.sum(0)
    return scores


def _mixed(ratio: np.ndarray, rate: float) -> np.ndarray:
    """ln(1 − q + q·e^ℓ), also where e^ℓ is too large for a float: (rounds, sums, canaries) → (rounds, canaries)."""
    ratio = np.logaddexp.reduce(ratio, axis=1) - np.log(ratio.shape[1])
    if rate >= 1:
        return ratio
    mixed: np.ndarray = np.logaddexp(np.log1p(-rate), np.log(rate) + ratio)
    return mixed


_LARGEST, _ACCURACY = 60.0, 1e-4


def one_run_p_value(*, canaries: int, guesses: int, correct: int, epsilon: float, delta: float) -> float:
    """At most how likely so many correct guesses are, if the run is (ε, δ)-DP for each canary."""
    from scipy.stats import binom

    chance = 1 / (1 + math.exp(-epsilon))
    tail = float(binom.sf(correct - 1, guesses, chance))
    if correct == 0:
        return 1.0
    below = binom.pmf(np.arange(correct - 1, -1, -1), guesses, chance).cumsum() / np.arange(1, correct + 1)
    return min(1.0, tail + 2 * canaries * delta * float(below.max()))


def one_run_epsilon(*, canaries: int, guesses: int, correct: int, delta: float, error: float) -> float:
    """The largest ε that is refuted: a lower bound on ε, too large with probability `error` at most."""

    def refuted(epsilon: float) -> bool:
        found = one_run_p_value(canaries=canaries, guesses=guesses, correct=correct, epsilon=epsilon, delta=delta)
        return found <= error

    return _largest(refuted)


def one_run_gdp_p_value_below(*, canaries: int, guesses: int, correct: int, mu: float, error: float) -> bool:
    """Whether so many correct guesses are less likely than `error`, if the run is μ-GDP for each canary."""
    from scipy.special import ndtr, ndtri

    # f̄(x) = 1 − f(x) = Φ(Φ⁻¹(x) + μ)
    return _less_likely(lambda x: float(ndtr(ndtri(x) - mu)), canaries, guesses, correct, error)


def one_run_mu(*, canaries: int, guesses: int, correct: int, error: float) -> float:
    """The largest μ that is refuted, up to 60."""

    def refuted(mu: float) -> bool:
        return one_run_gdp_p_value_below(canaries=canaries, guesses=guesses, correct=correct, mu=mu, error=error)

    return _largest(refuted, accuracy=1e-3)


def _less_likely(inverse: Callable[[float], float], canaries: int, guesses: int, correct: int, tail: float) -> bool:
    """Whether a tail of this probability, from `correct` on, leads to a contradiction."""
    right = tail * correct / canaries
    wrong = tail * (guesses - correct) / canaries
    whole = guesses / canaries
    for i in range(correct - 1, -1, -1):
        least = max(wrong, inverse(min(right, 1.0)))
        right += i / (guesses - i) * (least - wrong)
        wrong = least
        if right + wrong > whole:
            return True
    return False


def _largest(refuted: Callable[[float], bool], accuracy: float = _ACCURACY) -> float:
    if not refuted(0.0):
        return 0.0
    low, high = 0.0, 1.0
    while refuted(high):
        low, high = high, 2 * high
        if high > _LARGEST:
            return low
    while high - low > accuracy:
        middle = (low + high) / 2
        low, high = (middle, high) if refuted(middle) else (low, middle)
    return low
