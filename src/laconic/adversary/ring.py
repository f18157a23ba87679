"""What becomes of boosted votes in the ring of a secure sum.

A ring of b bits holds whole numbers up to ±2^(b−1). Attackers that boost signs by η add B = |𝕄_t|·η to every
coordinate. What does not fit comes out as B mod 2^b, centred, and may be a vote for the opposite. That is no defence:
an attacker who knows b stays below the edge, and needs only a few standard deviations of the noise.
"""

from __future__ import annotations

import math

from laconic.adversary.attack import Attack
from laconic.plan import RoundPlan
from laconic.privacy.mechanism.grid import WRAP_BITS, Grid
from laconic.scheme import Scheme


def centred(value: int, bits: int) -> int:
    """The residue of a whole number, between −2^(b−1) and 2^(b−1) − 1."""
    half = 1 << (bits - 1)
    return (value + half) % (1 << bits) - half


def about_ring(scheme: Scheme, attack: Attack, plan: RoundPlan, code_size: int, attackers: int) -> str | None:
    """That so many attackers' votes do not fit, and what would; None if they do, or if nobody can say beforehand."""
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
