"""What breaks where attackers leave the protocol: the ε without their noise, and a ring that their boost overflows.

The noise of a sum is the shares of its clients. It is made for |𝕂| − max_dropouts − max_colluders of them, so attackers
that add none are covered as long as they are no more than max_colluders. Of a cohort with m > max_colluders attackers
there are h = |𝕂| − max_dropouts − m shares of variance (S·σ)²/(|𝕂| − max_dropouts − max_colluders): the variance that
is left is (S·σ)² times

    f = (|𝕂| − max_dropouts − m) / (|𝕂| − max_dropouts − max_colluders),    1 − α without any slack.

That follows from |𝕂|, and the server, which does not know who attacks, tops the noise up as if every message had a
share in it. So an outsider can read the size of a cohort from what is released (`attackers_show_cohort`).

*Boosted votes.* A ring of b bits holds whole numbers up to ±2^(b−1). Attackers that boost signs by η add B = |𝕄_t|·η to
every coordinate. What does not fit comes out as B mod 2^b, centred, and may be a vote for the opposite. That is no
defence: an attacker who knows b stays below the edge, and needs only a few standard deviations of the noise.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from laconic.adversary.attack import Attack
from laconic.audience import Sentence
from laconic.figures import at_most
from laconic.plan import RoundPlan
from laconic.privacy.accounting.accountant import RunAccountant
from laconic.privacy.accounting.sampling import FixedSize, Sampler
from laconic.privacy.mechanism.grid import WRAP_BITS, Grid
from laconic.privacy.released import MissingNoise
from laconic.scheme import Scheme


@dataclass(frozen=True, kw_only=True)
class Attacked:
    """A round's cohort, or one of its groups, and the attackers in it."""

    cohort: int
    attackers: int
    max_dropouts: int = 0
    max_colluders: int = 0

    @property
    def covered(self) -> bool:
        """Whether the noise counts on so few clients that nothing is missing."""
        return self.attackers <= self.max_colluders

    @property
    def share(self) -> float:
        """f: how much of the noise's variance is there."""
        if self.covered:
            return 1.0
        left = self.cohort - self.max_dropouts - self.attackers
        return max(0.0, left / max(1, self.cohort - self.max_dropouts - self.max_colluders))


def attackers_show_cohort(attack: Attack | None, sampler: Sampler) -> bool:
    """Whether what attackers do may show an outsider who else took part: then no proof says that sampling lowers ε.

    As many attackers in every cohort of one size show nothing: what honest clients send is a sample of a fixed size by
    itself, and the same share of the noise is missing each time. In other cohorts missing noise shows how many came.
    Attackers that are named, and take the places of others in cohorts of one size, show by their number, and by what
    they send together, that a place was not theirs.
    """
    if attack is None or attack.fraction == 0:
        return False
    if not isinstance(sampler, FixedSize):
        return attack.omit_noise
    return attack.fraction is None


def worst_of(rounds: Iterable[Attacked]) -> Attacked | None:
    """The round in which most of the noise is missing."""
    return min(rounds, key=lambda one: (one.share, -one.attackers), default=None)


def about_missing_noise(
    accountant: RunAccountant, worst: Attacked, *, most: int, rounds: int, participations: int, method: str
) -> MissingNoise:
    """What the statement says of it: whether the printed ε hold, and those that do, for rounds no worse than this.

    An outsider learns whether they hold, and nothing else: the rest tells the size of a cohort.

    Args:
        accountant: that of the run.
        worst: the round, or group, that lacks most of the noise.
        most: the largest number of attackers in any round.
        rounds: how many the ε cover.
        participations: of the client that took part most often.
        method: the accountant whose ε is quoted.
    """
    what = "group" if accountant.groups > 1 else "cohort"
    many = f"{worst.attackers} of a {what} of {worst.cohort} clients attacked and added no noise"
    if not accountant.in_shares:
        text = f"{many} to what others send: every client adds the whole noise of its records itself, so the ε hold"
        return {"holds": True, "noise_left": 1.0, "text": _holding(text)}
    shown = ""
    if accountant.cohort_dependent and accountant.sampler.rate_in(accountant.num_clients) < 1:
        shown = "; what is missing shows how many took part, so sampling does not lower the ε against an outsider"
    if worst.covered:
        fewer = f"--max-colluders {worst.max_colluders} fewer clients"
        text = f"{many}: the ε hold, since the noise is made for {fewer}{shown}"
        return {"holds": True, "noise_left": 1.0, "text": _holding(text)}
    found: MissingNoise = {"holds": False, "noise_left": worst.share}
    way_out = f"--max-colluders {most} makes up for them"
    if worst.share == 0:
        text = f"the ε do not hold: {many}, so there was no noise at all; {way_out}"
        return found | {"text": Sentence(text, outsider=_BROKEN)}
    weaker = accountant.weakened(worst.share)
    released = weaker.released(rounds, participations)
    participant = weaker.participant(participations)
    left = at_most(released.best(method)), at_most(participant.best("pld"))
    text = (
        f"the ε above do not hold: {many}, and --max-colluders is {worst.max_colluders}. With the"
        f" {100 * worst.share:.3g} % of the noise's variance that are left, honest clients have"
        f" {left[0]} against an outsider ({method}) and {left[1]} against the server; {way_out}{shown}"
    )
    return found | {
        "released": released.to_dict(),
        "participant": participant.to_dict(),
        "text": Sentence(text, outsider=_BROKEN),
    }


_BROKEN = "attackers added no noise: the ε do not hold, and the server's own statement says which do"


def _holding(text: str) -> Sentence:
    return Sentence(text, outsider="attackers added no noise: the ε hold")


def centred(value: int, bits: int) -> int:
    """The residue of a whole number, between −2^(b−1) and 2^(b−1) − 1."""
    half = 1 << (bits - 1)
    return (value + half) % (1 << bits) - half


def about_ring(scheme: Scheme, attack: Attack, plan: RoundPlan, code_size: int, attackers: int) -> str | None:
    """That so many attackers' votes do not fit, and what would; None if they do, or if that is not known beforehand."""
    noise = scheme.noise
    if not (noise.for_signs and attack.omit_noise and attackers):
        return None
    grid = noise.grid(code_size=code_size, sensitivity=scheme.clip.sensitivity(code_size), plan=plan)
    assert grid is not None
    added, others = round(attackers * attack.boost * grid.units), _others(grid, plan, code_size)
    edge = (1 << (grid.bits - 1)) - 1
    if added + others <= edge:
        return None
    needed = math.ceil(math.log2(2 * (added + others) + 1))
    fits = math.floor(max(0.0, edge - others) / (attackers * grid.units))
    return (
        f"{attackers} attackers add {added:,} to every coordinate, but a ring of {grid.bits} bits ends at {edge:,}:"
        f" the sum wraps around, and {added:,} counts as {centred(added, grid.bits):,}. Use --ring-bits {needed} for"
        f" the attack as it is meant, or --attack-boost {fits} as an attacker would who knows the ring"
    )


def _others(grid: Grid, plan: RoundPlan, code_size: int) -> float:
    """What honest signs and the noise can add, but for a chance of 2^−41."""
    tail = math.sqrt(2 * (math.log(2) * (WRAP_BITS + 2) + math.log(code_size)))
    return tail * grid.released_scale + grid.units * plan.usual_cohort
