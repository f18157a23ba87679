"""Checks that name what is off: the noise, the clip, and who takes part, each against what the accountant assumes.

A check has a p-value: how likely it is to find what was found, or worse, if everything is as claimed. It calls a
violation below a level that is fixed beforehand, so that level is its false-alarm rate. More noise than claimed, and
codes shorter than S, violate nothing; they are said.
"""

from __future__ import annotations

import math

import numpy as np

from laconic.audit.canaries import OVERSHOOT, code_when_out
from laconic.audit.result import Check
from laconic.audit.runs import ManyRuns, participations
from laconic.audit.setups import Seen, View, coins_of
from laconic.experiment.experiment import Experiment
from laconic.privacy.accounting.sampling import FixedSize
from laconic.train.local import UnitGradients

_WEAK = 1e-9
"""A canary's code is called too short only where chance is no excuse."""


def noise_checks(many: ManyRuns, level: float, *, server: bool, outsider: bool) -> list[Check]:
    """Whether there is as much noise as claimed, and new noise in every round."""
    views = {"server": [one.server for one in many.seen], "outsider": [one.outsider for one in many.seen]}
    wanted = [name for name, asked in (("server", server), ("outsider", outsider)) if asked]
    found = [_scale(name, views[name], level) for name in wanted]
    return [*found, _independence([one.outsider for one in many.seen], level)]


def _scale(who: str, views: list[View], level: float) -> Check:
    """Σx² over free directions, in units of the claimed variance, is χ² with as many degrees of freedom."""
    from scipy.stats import chi2

    values = _free(views).ravel()
    if not len(values):
        return _nothing(f"noise, {who}", level)
    square, freedom = float((values**2).sum()), len(values)
    low, high = math.sqrt(square / chi2.ppf(0.995, freedom)), math.sqrt(square / chi2.ppf(0.005, freedom))
    return Check(
        name=f"noise, {who}",
        found=f"{math.sqrt(square / freedom):.4f} times the claimed σ (99 % interval {low:.4f} to {high:.4f})",
        expected="1, or more",
        p_value=float(chi2.cdf(square, freedom)),
        level=level,
    )


def _independence(views: list[View], level: float) -> Check:
    """The noise of one release and the next: Σxy/√n is standard normal if they have nothing in common."""
    from scipy.stats import norm

    values = _free(views)
    if len(values) < 2:
        return _nothing("noise, next release", level)
    products = (values[1:] * values[:-1]).ravel()
    count = max(1, len(products))
    scale = max(float((values**2).mean()), 1e-300)
    score = float(products.sum() / scale / math.sqrt(count))
    return Check(
        name="noise, next release",
        found=f"correlation {score / math.sqrt(count):+.4f}",
        expected=f"0, up to {norm.isf(level / 2) / math.sqrt(count):.4f} by chance",
        p_value=float(2 * norm.sf(abs(score))),
        level=level,
    )


def _nothing(name: str, level: float) -> Check:
    """No sum was opened in which anything could be seen."""
    return Check(name=name, found="no sum was opened", expected="sums", p_value=1.0, level=level, weak=True)


def _free(views: list[View]) -> np.ndarray:
    """(sums, free directions), in units of the claimed standard deviation."""
    return np.concatenate([view.free for view in views])


def clip_check(many: ManyRuns, level: float) -> Check:
    """How far apart the sums with a canary in and out are, in units of S."""
    from scipy.stats import norm

    seen, coins, variance = participations(many, drawn=True)
    if not 0 < coins.sum() < len(coins):
        return _nothing("clip", level)
    apart = float(seen[coins].mean() - seen[~coins].mean())
    error = math.sqrt(float(variance.mean()) * (1 / coins.sum() + 1 / (~coins).sum()))
    allowed = 1 - code_when_out(many.experiment.sampler, many.experiment.scheme.unit)
    score = (apart - allowed) / error
    usual = allowed * _arriving(many.experiment)
    short = bool(norm.cdf((apart - usual) / error) < _WEAK and apart < 0.99 * usual)
    found = f"sums with and without a canary differ by {apart:.4g}·S"
    if short:
        found += ": the canaries do not arrive in full, so the bounds say little"
    return Check(
        name="clip",
        found=found,
        expected=f"{allowed:g}·S at most, though canaries hand in codes of {OVERSHOOT:g}·S",
        p_value=float(norm.sf(score)),
        level=level,
        weak=short,
    )


def _arriving(experiment: Experiment) -> float:
    """The share of S that a drawn canary adds on average: of several owners, not all draw it at once."""
    train = experiment.scheme.train
    return train.rate / coins_of(experiment) if isinstance(train, UnitGradients) else 1.0


def sampler_checks(experiment: Experiment, runs: list[Seen], level: float) -> list[Check]:
    """How often canaries were drawn, how that spreads over them, and how large the cohorts were."""
    sampler, clients = experiment.sampler, experiment.population.num_clients
    rate = sampler.rate_in(clients)
    capped = experiment.budget is not None and experiment.budget.max_participations is not None
    drawn = np.concatenate([one.drawn for one in runs])
    sizes = np.concatenate([one.cohorts for one in runs])
    fixed = isinstance(sampler, FixedSize)
    inside = experiment.scheme.sums_units
    unit_rate = rate * coins_of(experiment) if inside else rate
    checks = [_rate(drawn, unit_rate, clients, level, fixed=fixed and not inside, capped=capped)]
    if capped:
        return checks
    if 0 < unit_rate < 1:
        checks.append(_spread(runs, drawn, unit_rate, level))
    if fixed or rate >= 1:
        right = bool((sizes == round(rate * clients)).all())
        p_value, law = (1.0 if right else 0.0), f"{round(rate * clients)} in every round"
    else:
        p_value = _dispersion(sizes, clients, rate)
        law = f"a standard deviation of {math.sqrt(clients * rate * (1 - rate)):.3g} around {clients * rate:.4g}"
    checks.append(
        Check(
            name="cohort sizes",
            found=f"{sizes.mean():.4g} on average, with a standard deviation of {sizes.std():.3g}",
            expected=law,
            p_value=p_value,
            level=level,
        )
    )
    return checks


def _rate(drawn: np.ndarray, rate: float, clients: int, level: float, *, fixed: bool, capped: bool) -> Check:
    """Canaries are drawn at the rate of the sampler; with a cap on participations, at no more than that."""
    from scipy.stats import binom, norm

    total, places = int(drawn.sum()), drawn.size
    if rate >= 1:
        p_value = 1.0 if total == places or capped else 0.0
    elif fixed:
        # In a round the number of canaries is hypergeometric: its variance is smaller than a binomial one.
        canaries = drawn.shape[1]
        each = canaries * rate * (1 - rate) * (clients - canaries) / max(1, clients - 1)
        error = math.sqrt(max(each * len(drawn), 1e-12))
        p_value = float(2 * norm.sf(max(0.0, abs(total - places * rate) - 0.5) / error)) if each > 0 else 1.0
    else:
        more = float(binom.sf(total - 1, places, rate))
        p_value = more if capped else min(1.0, 2 * min(more, float(binom.cdf(total, places, rate))))
    return Check(
        name="sampling rate",
        found=f"{total / places:.5g} of {places:,} draws",
        expected=f"{rate:.5g}" + (" at most" if capped else ""),
        p_value=p_value,
        level=level,
    )


def _spread(runs: list[Seen], drawn: np.ndarray, rate: float, level: float) -> Check:
    """Whether each draw is new: within a run, and from run to run."""
    found, p_values = [], []
    rounds = min(one.rounds for one in runs)
    if rounds > 1:
        counts = np.concatenate([one.drawn[:rounds].sum(0) for one in runs])
        p_values.append(_dispersion(counts, rounds, rate))
        found.append(f"{counts.std():.3g} in {rounds} rounds of a run")
    if len(runs) > 1:
        counts = drawn.sum(0)
        p_values.append(_dispersion(counts, len(drawn), rate))
        found.append(f"{counts.std():.3g} over all {len(drawn)} rounds")
    each = [rounds] * (rounds > 1) + [len(drawn)] * (len(runs) > 1)
    return Check(
        name="sampling, spread",
        found="a standard deviation over clients of " + " and ".join(found or ["nothing to see in one round"]),
        expected=" and ".join(f"{math.sqrt(n * rate * (1 - rate)):.3g}" for n in each) or "–",
        p_value=min([1.0, *(len(p_values) * p for p in p_values)]),
        level=level,
    )


def _dispersion(counts: np.ndarray, places: int, rate: float) -> float:
    """Two-sided p-value of the spread of counts that should be Binomial(places, rate).

    Σ(n − E)²/V over k counts has the mean k and the variance k·(2 + (1 − 6q(1 − q))/V), with V = places·q·(1 − q). A
    scaled χ² with the same mean and variance stands for its distribution.
    """
    from scipy.stats import chi2

    variance = places * rate * (1 - rate)
    total = float(((counts - places * rate) ** 2).sum() / variance)
    each = 2 + (1 - 6 * rate * (1 - rate)) / variance
    if each < 1e-9:
        return 1.0
    freedom, scale = 2 * len(counts) / each, each / 2
    low = float(chi2.cdf(total / scale, freedom))
    return min(1.0, 2 * min(low, float(chi2.sf(total / scale, freedom))))
