"""One round as pure functions: plan, what a client sends, what the server does with the sum."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from laconic.errors import PrivacyError, TrainingError
from laconic.packing import FLOAT32, SIGNS, Encoding, integers
from laconic.plan import RoundPlan
from laconic.privacy.sampling import Sampler
from laconic.scheme import Scheme
from laconic.server.rules import State
from laconic.streams import Stream, Streams


def plan_round(
    scheme: Scheme,
    sampler: Sampler,
    *,
    streams: Streams,
    round: int,
    attempt: int = 0,
    num_clients: int,
    exhausted: Sequence[int] | np.ndarray = (),
    max_dropouts: int = 0,
    max_colluders: int = 0,
    shared: Mapping[str, Tensor] | None = None,
) -> RoundPlan:
    """Draw the cohort and the public seeds of a round. `exhausted` clients have reached `max_participations`."""
    drawn = sampler.draw(num_clients, streams.numpy("cohort", round, attempt))
    cohort = drawn[~np.isin(drawn, exhausted)] if len(exhausted) else drawn
    return RoundPlan(
        round=round,
        attempt=attempt,
        cohort=cohort,
        planned_cohort=sampler.planned_cohort(num_clients),
        noise_shares=len(cohort) - max_dropouts - max_colluders,
        run_seed=streams.key("public") & (2**63 - 1),
        round_seed=streams.key("public", round, attempt) & (2**63 - 1),
        fingerprint=scheme.fingerprint,
        shared=shared or {},
    )


def client_messages(scheme: Scheme, plan: RoundPlan, updates: Tensor, *, streams: Sequence[Stream]) -> Tensor:
    """What clients send: encode, clip, add the noise share. Updates (clients, n) → codes (clients, m)."""
    codes = scheme.clip(scheme.codec.encode(updates, plan, streams))
    if not scheme.noise.private:
        return codes
    sensitivity = scheme.clip.sensitivity(codes.shape[-1])
    shares = [
        scheme.noise.share(code, sensitivity=sensitivity, min_cohort=plan.noise_shares, rng=stream)
        for code, stream in zip(codes, streams, strict=True)
    ]
    return torch.stack(shares)


def client_message(scheme: Scheme, plan: RoundPlan, update: Tensor, *, stream: Stream) -> Tensor:
    """What one client sends: update (n,) → code (m,)."""
    return client_messages(scheme, plan, update[None], streams=[stream])[0]


def noise_stream(streams: Streams, plan: RoundPlan, client: int) -> Stream:
    """The client's noise in this attempt: a repeated round draws new noise."""
    return streams.stream("noise", plan.round, plan.attempt, client)


def uplink_encoding(scheme: Scheme, code_size: int, plan: RoundPlan) -> Encoding:
    """How a client's message is packed: floats, signs, or integers of as many bits as the sum needs."""
    if scheme.private and plan.viable:
        bits = scheme.noise.code_bits(
            code_size=code_size,
            sensitivity=scheme.clip.sensitivity(code_size),
            cohort=len(plan.cohort),
            min_cohort=plan.noise_shares,
        )
        return FLOAT32 if bits is None else integers(bits)
    return SIGNS if scheme.codec.code_bits() == 1 else FLOAT32


def downlink_encoding(scheme: Scheme) -> Encoding:
    """How the way down is packed: the weights that a client lacks, or only the signs of the last change."""
    return SIGNS if scheme.downlink == "signs" else FLOAT32


def client_weight(scheme: Scheme, num_records: int) -> float:
    """How much the client counts in the mean."""
    return float(num_records) if scheme.weighting == "data-size" else 1.0


def server_step(
    scheme: Scheme,
    plan: RoundPlan,
    total: Tensor,
    *,
    survivors: int,
    total_weight: float,
    weights: Tensor,
    state: State,
) -> tuple[Tensor, State]:
    """New weights and rule state from the weighted sum of the codes. Everything here is post-processing.

    Under DP the denominator is public and fixed (`planned_cohort`) unless the scheme says otherwise; without it the
    sum is divided by the weights that it holds.
    """
    if scheme.private and survivors < plan.noise_shares:
        raise PrivacyError(
            f"round {plan.round}: {survivors} messages, but the noise was sized for {plan.noise_shares}: not opened"
        )
    if scheme.private:
        sensitivity = scheme.clip.sensitivity(len(total))
        total = scheme.noise.opened(
            total, sensitivity=sensitivity, cohort=len(plan.cohort), min_cohort=plan.noise_shares
        )
    fixed = scheme.private and scheme.denominator == "planned"
    denominator = plan.planned_cohort if fixed else total_weight
    change, state = scheme.rule.step(total / denominator, state, scheme.codec, len(weights), plan)
    updated = weights + change
    if not bool(torch.isfinite(updated).all()):
        raise TrainingError(
            f"the weights are no longer finite after round {plan.round}: training diverged;"
            " lower --local-lr or --server-lr"
        )
    return updated, state
