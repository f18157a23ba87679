"""A setting: what is chosen, and what follows from it."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

CLIP_NORM, LOCAL_LR, LOCAL_STEPS = 0.05, 0.05, 10
"""Of a linear layer on normalised features: so small a threshold clips every update, so only the reach matters."""
RIDGE = 0.01
"""Of the projection of the front end."""
PRECONDITION, MOMENTUM, FARTHER, MOST_ROUNDS = 0.15, 0.4, 1.4, 13
"""Of few rounds with everyone in each: λ and momentum of `Preconditioned`, how much farther its reach is than that of
many plain steps, and the most rounds that count as few. From docs/results/preconditioner.md. With
more rounds plain steps are as good."""
PLAIN_CLIP_NORM = 0.5
"""Of any other model: a value to begin with."""


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One way to run, with its costs.

    Attributes:
        cohort: clients in a round, on average.
        sampling_rate: q, with which a client takes part.
        rounds: T.
        participations: rounds that one client takes part in at most; None if that is left to chance.
        features: K, where they are chosen.
        weights: d, the trained weights.
        noise_multiplier: σ.
        momentum: ρ of the server.
        precondition: λ of the server's preconditioner; None for plain steps.
        reach: how far the weights can go in all rounds together.
        server_lr: η, the server's step with which they do.
        clip_norm: S.
        noise: expected norm of the noise in the sum of all steps.
        noise_ratio: the same relative to the reach.
        epsilon_server: ε against the server, of the client that took part most often.
        epsilon_outsider: ε against an outsider.
        bits_up: bits of a value on the way up.
        bytes_up: bytes that a client sends in the whole run, on average.
        bytes_down: bytes that it receives.
        seconds: of the whole run, if the time of a round is known.
        expected_error: by which settings are ranked.
    """

    cohort: int
    sampling_rate: float
    rounds: int
    participations: int | None
    features: int | None
    weights: int
    noise_multiplier: float
    momentum: float
    precondition: float | None
    reach: float
    server_lr: float
    clip_norm: float
    noise: float
    noise_ratio: float
    epsilon_server: float
    epsilon_outsider: float
    bits_up: int
    bytes_up: float
    bytes_down: float
    seconds: float | None
    expected_error: float

    def to_dict(self) -> dict[str, Any]:
        """Plain values; an ε without bound is None."""
        return {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in asdict(self).items()}
