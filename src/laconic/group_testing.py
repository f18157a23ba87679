"""Group testing: which of the groups' noisy sums are spoilt, who spoils them, and who is left out from then on.

Whether a noisy sum can be one of honest clients.

The codes of s honest clients add up to a vector μ with ‖μ‖ ≤ s·S. The released sum is x = μ + Z, where every coordinate
of Z has the scale v, which is public. For Gaussian noise ‖x‖²/v² is noncentral χ² with m degrees of freedom and
λ = ‖μ‖²/v² ≤ (s·S/v)², and Birgé's bound (2001, Lemma 8.1) gives

    P(‖x‖² ≥ v²·(m + λ + 2·√((m + 2λ)·t) + 2t)) ≤ e^−t.

It follows from the moment generating function alone. That of a discrete Gaussian is no larger, so the bound holds for
noise on integers as well: E exp(a·‖μ + Z‖²) = E_G E_Z exp(√(2a)·⟨G, μ + Z⟩) for a normal G, and Z enters by
E exp(⟨h, Z⟩) ≤ exp(v²·‖h‖²/2). Less noise than planned (attackers that add none) makes the sum shorter.

A sum above the threshold τ is *spoilt*: it is left out of the step. A *clearly* spoilt one would be spoilt with any of
the honest clients were in it, so only this is evidence against those who are. To exchange two honest clients changes a
sum by d with ‖d‖ ≤ 2·S, and its norm by |⟨x, d⟩|/‖x‖ at most, taken before or after. A sum whose norm is x or less has
‖μ‖ ≤ v·√λ(x) but for a chance of e^−t, by Birgé's bound for the other tail, and |⟨Z, d⟩| ≤ v·‖d‖·√(2t) but for 2e^−t.
So the norm changes by 2·S·ρ at most, with

    ρ = min(1, (√λ(x) + 2·S/v + √(2t)) / (τ/v)),

and a clearly spoilt sum is twice that above τ. Noise makes most of a norm where codes are long, so ρ is well below 1.

What spoilt groups say of the clients in them, round by round.

Clients are dealt into new groups in every round, after all have chosen what to send. So an honest client sits in
some group by chance alone, and in a spoilt one with probability π for each, while an attacker spoils its own. Every
client has a likelihood ratio of "attacks, and is missed with probability β" against "honest". In a round it is
multiplied by

    (1 − β)/(W·π)   if its group is clearly spoilt, and W groups are spoilt with its own,
    β               if its group is not clearly spoilt, but another one is spoilt,
    1               if nothing is spoilt but perhaps its own group, and that is not clear,

and by 1/(1 + 6α) for false alarms, in calm rounds as well (`docs/maths.md` has the proof that it does not grow on
average for an honest client). The ratio that counts is a mean: over two β, and over when the attack may have begun: at
first, or after the (i − 1)-th spoilt round, with weight 1/(i·(i + 1)). So who behaves at first, or stops and comes
back, is not cleared for ever. By Ville's inequality an honest client's ratio ever reaches N/F with probability F/N at
most; so if clients are excluded there, no more than F honest ones are on average, in a run of any length.

What an attacker below the threshold can do, and how many rounds it takes to find one above it.

All of it follows from public numbers, before a run. B is the norm of what an attacker sends, in units of S. Boosted ×b,
an update as long as the clip has B = b.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from laconic.plan import RoundPlan
from laconic.privacy.accounting.sampling import Sampler
from laconic.scheme import Scheme

MARGIN = 4.0
"""How far a clearly spoilt sum is above the threshold, in units of ρ·S."""


@dataclass(frozen=True)
class Verdict:
    """Of every sum of a round: its norm, whether it is spoilt, and whether that is clear."""

    norms: np.ndarray
    spoilt: np.ndarray
    clear: np.ndarray


@dataclass(frozen=True, kw_only=True)
class Detector:
    """The test of a round with so many sums, of `largest` clients or fewer each.

    `noise` is the scale v of the noise in each of `code_size` coordinates, and `sensitivity` is S. `false_alarms` is
    the probability, at most, that some sum of honest clients alone is taken for spoilt in a round.
    """

    code_size: int
    sensitivity: float
    noise: float
    sums: int
    largest: int
    false_alarms: float

    @cached_property
    def threshold(self) -> float:
        """The norm above which a sum is spoilt."""
        squared = self.code_size + self.honest + self._above(self.honest)
        return self.noise * math.sqrt(squared)

    @cached_property
    def clear(self) -> float:
        """The norm above which it is clearly so: the least that is as far above as sums of that norm can be moved."""
        level = self.threshold
        for _ in range(50):
            level = self.threshold + MARGIN * self.sensitivity * self._moved(level)
        return level

    @property
    def honest(self) -> float:
        """λ: the squared norm of what honest clients send at most, in units of the noise."""
        return (self.largest * self.sensitivity / self.noise) ** 2

    @property
    def nats(self) -> float:
        """t: a bound fails with probability e^−t for one sum, and so `false_alarms` for all."""
        return math.log(self.sums / self.false_alarms)

    def _above(self, noncentrality: float) -> float:
        return 2 * math.sqrt((self.code_size + 2 * noncentrality) * self.nats) + 2 * self.nats

    def hidden(self, norm: float) -> float:
        """λ(x): the largest ‖μ‖²/v² of a sum whose noisy norm is x or less, but for a chance of e^−t.

        It solves m + λ − 2·√((m + 2λ)·t) = x²/v².
        """
        root = 2 * math.sqrt(self.nats)
        rest = max(0.0, root**2 + 2 * (norm / self.noise) ** 2 - self.code_size)
        return max(0.0, ((root + math.sqrt(rest)) ** 2 - self.code_size) / 2)

    def _moved(self, norm: float) -> float:
        """ρ at this norm."""
        longest = math.sqrt(self.hidden(norm)) + 2 * self.sensitivity / self.noise + math.sqrt(2 * self.nats)
        return min(1.0, longest * self.noise / self.threshold)

    def __call__(self, sums: Tensor) -> Verdict:
        """The verdict on released sums (sums, m). One that is not finite is no honest one."""
        norms = torch.stack([torch.linalg.vector_norm(one, dtype=torch.float64) for one in sums]).cpu().numpy()
        return Verdict(norms, ~(norms <= self.threshold), ~(norms <= self.clear))


def detector_of(
    scheme: Scheme,
    sampler: Sampler,
    plan: RoundPlan,
    *,
    sums: int,
    num_clients: int,
    code_size: int,
    false_alarms: float,
) -> Detector:
    """The test of a round with so many sums. All of it follows from public numbers, so it says nothing of who came.

    Args:
        scheme: what is run.
        sampler: draws cohorts and deals groups.
        plan: of any of the sums; only its public numbers are used.
        sums: how many there are in the round.
        num_clients: N.
        code_size: m.
        false_alarms: the chance that any sum of honest clients in a round is taken for spoilt.
    """
    sensitivity = scheme.clip.sensitivity(code_size)
    if sampler.dealt(num_clients):
        largest = math.ceil(sampler.planned_cohort(num_clients) / sums)
    else:  # half of the false alarms are for groups that are larger than that
        from scipy.stats import binom

        false_alarms /= 2
        largest = int(binom.isf(false_alarms / sums, num_clients, sampler.rate_in(num_clients) / sums))
    return Detector(
        code_size=code_size,
        sensitivity=sensitivity,
        noise=scheme.noise.released_scale(code_size=code_size, sensitivity=sensitivity, plan=plan),
        sums=sums,
        largest=max(1, largest),
        false_alarms=false_alarms,
    )


MISSES = (0.05, 0.5)
"""β: how often an attacker's group does not show. One that always attacks, and one that comes and goes."""
_ALARMS = 6
"""Bounds on which the ratio of a client rests in a round: on its own group and that of whom it is exchanged with."""
SUSPECT = 20.0
"""A client with this ratio is called a suspect, in the rows of a run."""


@dataclass(frozen=True, kw_only=True)
class Findings:
    """What is known after a round. `running` are the ratios that have begun, (β, clients)."""

    running: np.ndarray
    spoilt_rounds: int = 0
    calm: int = 0
    """Rounds in a row without a spoilt sum."""
    needed: int = 1
    """So many of them until there is one sum again."""
    one_sum: bool = False
    excluded: Mapping[int, int] = field(default_factory=dict)
    """Client → the round after which it is left out."""

    @property
    def ratios(self) -> np.ndarray:
        """The likelihood ratio of every client."""
        waiting = 1 / (self.spoilt_rounds + 2)
        ratios: np.ndarray = self.running.mean(axis=0) + waiting
        return ratios

    def excluded_before(self, round: int) -> np.ndarray:
        """Who does not take part in this round any more, sorted."""
        return np.array(sorted(c for c, last in self.excluded.items() if last < round), dtype=np.int64)

    @property
    def num_suspects(self) -> int:
        """How many have a large ratio, and are not excluded."""
        return int((self.ratios >= SUSPECT).sum()) - int((self.ratios[list(self.excluded)] >= SUSPECT).sum())


def first_findings(num_clients: int, calm_rounds: int) -> Findings:
    """Before the first round: no client is suspected, and cohorts are summed in groups."""
    return Findings(running=np.full((len(MISSES), num_clients), 0.5), needed=calm_rounds)


def chance_of_a_group(groups: int, cohort: int, *, dealt: bool) -> float:
    """π: how likely an honest client is in a given group that an attacker spoils, as long as no more than g attack.

    By coins that is 1/g. Where groups are dealt, the attacker takes one of its s places, and n − g places or more are
    left for honest clients.
    """
    if not dealt:
        return 1 / groups
    left, largest = cohort - groups, -(-cohort // groups)
    return min(1.0, max(largest - 1, 1) / left) if left > 0 else 1.0


def update_findings(
    findings: Findings,
    plan: RoundPlan,
    verdict: Verdict,
    *,
    chance: float,
    false_exclusions: float,
    false_alarms: float,
) -> Findings:
    """What is known after a round with this verdict. `chance` is π, of a round in groups."""
    spoilt = int(verdict.spoilt.sum())
    running = findings.running.copy()
    if plan.groups:
        running[:, plan.cohort] *= _factors(plan, verdict, chance) / (1 + _ALARMS * false_alarms)
    if not spoilt:
        calm = findings.calm + 1
        return replace(findings, running=running, calm=calm, one_sum=findings.one_sum or calm >= findings.needed)
    if not plan.groups:  # twice as long in groups as before: who attacks single sums alone gains ever less
        return replace(findings, calm=0, one_sum=False, needed=2 * findings.needed)
    rounds = findings.spoilt_rounds + 1
    running += 1 / ((rounds + 1) * (rounds + 2))
    after = replace(findings, running=running, spoilt_rounds=rounds, calm=0)
    found = np.flatnonzero(after.ratios >= running.shape[1] / false_exclusions).tolist()
    new = {client: plan.round for client in found if client not in findings.excluded}
    return replace(after, excluded={**findings.excluded, **new})


def _factors(plan: RoundPlan, verdict: Verdict, chance: float) -> np.ndarray:
    """By what a round in groups multiplies the ratios of its cohort, for each β, (β, clients)."""
    own = plan.group_of(plan.cohort)
    clear, others = verdict.clear[own], verdict.spoilt.sum() - verdict.spoilt[own]
    misses = np.array(MISSES)[:, None]
    factors: np.ndarray = np.where(others > 0, misses, 1.0)
    factors[:, clear] = (1 - misses) / np.minimum(1.0, (others[clear] + 1) * chance)
    return factors


_NEVER = 1e6


@dataclass(frozen=True, kw_only=True)
class Prospects:
    """A federation with group testing. `rate` is how often a client takes part, `chance` is π.

    `test` is that of a round in groups, and `one_sum` that of a round with one sum.
    """

    test: Detector
    one_sum: Detector
    chance: float
    rate: float
    num_clients: int
    planned_cohort: float
    false_exclusions: float

    @property
    def noticed(self) -> float:
        """B from which on a group is spoilt rather than not: B² = λ + 2·√((m + 2λ)·t) + 2t in units of the noise.

        An attacker below it may stay unseen in every second round or more.
        """
        return _norm_at(self.test, self.test.threshold)

    @property
    def noticed_in_one_sum(self) -> float:
        """The same where there is one sum."""
        return _norm_at(self.one_sum, self.one_sum.threshold)

    @property
    def hidden_bias(self) -> float:
        """By how much one attacker that is just not noticed moves the mean over the cohort in a round of groups, in S.

        Its group counts like every other one, so that is B/(q·N).
        """
        return self.noticed / self.planned_cohort

    @property
    def hidden_bias_at_most(self) -> float:
        """The same if it sends against honest clients that all agree: s − 1 of them hide as much again."""
        return (self.noticed + self.test.largest - 1) / self.planned_cohort

    @property
    def hidden_bias_in_one_sum(self) -> float:
        """The same where there is one sum, at right angles to the honest clients."""
        return self.noticed_in_one_sum / self.planned_cohort

    @property
    def hidden_bias_to_noise(self) -> float:
        """The same in units of the noise that the mean of g groups has, √(m·g)·v/(q·N)."""
        noise = self.test.noise * math.sqrt(self.test.code_size * self.test.sums) / self.test.sensitivity
        return self.noticed / noise

    def shown(self, norm: float) -> float:
        """The probability that a group with one attacker of this norm is clearly spoilt: a normal approximation."""
        return self._above(self.test.clear, norm)

    def _above(self, level: float, norm: float) -> float:
        """The probability that its sum is above this level.

        ‖x‖²/v² has mean m + B² and variance 2m + 4B², with B in units of the noise; the honest clients' own sum, of
        a direction of its own, is left out.
        """
        sent = (norm * self.test.sensitivity / self.test.noise) ** 2
        mean, spread = self.test.code_size + sent, math.sqrt(2 * self.test.code_size + 4 * sent)
        return 0.5 * math.erfc(((level / self.test.noise) ** 2 - mean) / (spread * math.sqrt(2)))

    def rounds_to_exclude(self, attackers: int, norm: float) -> float:
        """About how many rounds it takes until one of so many attackers of this norm is excluded; inf: never.

        In a round in which it takes part, G groups have an attacker. Each of them is spoilt with probability p, and
        clearly so with probability d. Its ratio is multiplied by (1 − β)/(W·π) with probability d, where
        W = 1 + (G − 1)·p, by β if its group is not clearly spoilt but another one is spoilt, and by 1 otherwise. It
        must pass 4·N/F, as a β has half of the weight, and so has the first round. Where that takes for ever on
        average, luck may still find it: ratios begin anew after every spoilt round.
        """
        shown, spoilt, groups = self.shown(norm), self._above(self.test.threshold, norm), self.test.sums
        others = max(0.0, groups * (1 - (1 - 1 / groups) ** max(1.0, attackers * self.rate)) - 1)
        chance = min(1.0, (1 + others * spoilt) * self.chance)
        only_others = (1 - shown) * (1 - (1 - spoilt) ** others)
        speed = max(shown * math.log((1 - miss) / chance) + only_others * math.log(miss) for miss in MISSES)
        needed = math.log(4 * self.num_clients / self.false_exclusions)
        rounds = math.inf if speed <= 0 else math.ceil(needed / speed) / self.rate
        return rounds if rounds < _NEVER else math.inf


def _norm_at(test: Detector, level: float) -> float:
    """How long a vector is that brings a sum to this norm with the noise, on average, in units of S."""
    sent = max(0.0, (level / test.noise) ** 2 - test.code_size)
    return math.sqrt(sent) * test.noise / test.sensitivity
