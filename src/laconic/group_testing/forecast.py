"""What an attacker below the threshold can do, and how many rounds it takes to find one above it.

All of it follows from public numbers, before a run. B is the norm of what an attacker sends, in units of S. Boosted ×b,
an update as long as the clip has B = b.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from laconic.group_testing.detector import Detector
from laconic.group_testing.evidence import MISSES

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
