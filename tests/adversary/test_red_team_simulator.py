"""What a red team did to the simulator, on the code as it is: none of it may work any more.

Tests of chance have fixed seeds and state their false-alarm rate. Every one has a twin with the old mistake.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from scipy import stats
from torch import Tensor

from laconic.guard.noise import draw_around
from laconic.plan import RoundPlan
from laconic.privacy.mechanism.bands import UNIT
from laconic.privacy.mechanism.correlated import SCALE, CorrelatedGaussian
from laconic.privacy.mechanism.discrete_sampler import StreamSource
from laconic.streams import Stream

ALPHA = 1e-6

# One client's codes are not clipped, and the sum is at the edge of the ring (--noise-bands).

SIZE, SIGMA, CLIENTS = 4096, 1.5, 5
BANDS = {"noise_multiplier": SIGMA, "coefficients": (UNIT, 600, 411)}


class LiftsBeforeNoise(CorrelatedGaussian):
    """The old order: the residues become numbers around zero, and then noise is added."""

    def _released(self, mean: Tensor, bits: int, rng: Stream) -> Tensor:
        half = 2 ** (bits - 1)
        lifted = ((mean + half) & (2**bits - 1)) - half
        return draw_around(lifted, SCALE, StreamSource(rng, mean.device)).double().div_(UNIT)


def plan(number: int) -> RoundPlan:
    return RoundPlan(
        round=number,
        attempt=0,
        cohort=np.arange(CLIENTS),
        planned_cohort=float(CLIENTS),
        largest_cohort=CLIENTS,
        run_seed=0,
        round_seed=0,
        fingerprint="",
    )


def signs_read(noise: CorrelatedGaussian, pushed: int, rounds: int = 2) -> int:
    """How many of one client's signs an outsider reads when another client adds `pushed` to each coordinate."""
    signs = torch.randint(0, 2, (SIZE,), generator=torch.Generator().manual_seed(5)) * 2 - 1
    code = (signs / math.sqrt(SIZE))[None]
    memory: dict[str, Tensor] = {}
    most = 0
    for number in range(1, rounds + 1):
        about: Any = {"sensitivity": 1.0, "plan": plan(number)}
        terms = noise.terms(code, code_size=SIZE, **about)[0] if number == 1 else torch.zeros(SIZE, dtype=torch.int64)
        total = noise.around(terms + (pushed if number == 1 else 0), shares=2, rng=Stream(0), **about)
        estimate, memory = noise.estimated(total, memory, rng=Stream(number), **about)
        agree = int((torch.sign(estimate - estimate.double().mean()) == signs).sum())
        most = max(most, agree, SIZE - agree)
    return most


def few_enough(noise: CorrelatedGaussian) -> tuple[int, int]:
    """(the most signs read in any attack, the most that the noise allows but for a chance of ALPHA)."""
    bits = noise.code_bits(code_size=SIZE, sensitivity=1.0, plan=plan(1))
    assert bits is not None
    attacks = [1 << power for power in range(bits + 1)]
    attacks += [(1 << power) // factor for power in (bits - 1, bits) for factor in noise.coefficients]
    # Of a coordinate ±1/√m under noise of scale σ, no test reads the sign more often than Φ(1/(σ·√m)).
    chance = float(stats.norm.cdf(1 / (SIGMA * math.sqrt(SIZE))))
    allowed = int(stats.binom.isf(ALPHA / (4 * len(attacks)), SIZE, chance))
    return max(signs_read(noise, pushed) for pushed in attacks), allowed


def test_a_client_that_does_not_clip_reads_no_signs_of_another_one_off_the_edge_of_the_ring() -> None:
    """False-alarm rate 1e-6."""
    found, allowed = few_enough(CorrelatedGaussian(**BANDS))
    assert found <= allowed < 0.6 * SIZE


def test_noise_that_is_added_after_lifting_is_caught() -> None:
    found, _ = few_enough(LiftsBeforeNoise(**BANDS))
    assert found > 0.99 * SIZE
