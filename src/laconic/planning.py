"""The plan of a round: who takes part, in which groups, with which public seeds. Server and clients draw it alike."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
from torch import Tensor

from laconic.plan import RoundPlan
from laconic.privacy.accounting.sampling import Sampler
from laconic.scheme import Scheme
from laconic.streams import Streams

Arrange = Callable[[np.ndarray, np.ndarray, np.random.Generator], np.ndarray]
"""(drawn cohort, exhausted clients, randomness) → cohort: in an attacked run, so many malicious clients in each."""


def plan_round(
    scheme: Scheme,
    sampler: Sampler,
    *,
    streams: Streams,
    round: int,
    attempt: int = 0,
    num_clients: int,
    exhausted: Sequence[int] | np.ndarray = (),
    arrange: Arrange | None = None,
    max_dropouts: int = 0,
    max_colluders: int = 0,
    shared: Mapping[str, Tensor] | None = None,
    groups: int | None = None,
    excluded: np.ndarray | None = None,
) -> RoundPlan:
    """Draw the cohort and the public seeds of a round.

    Args:
        scheme: what is run.
        sampler: draws the cohort.
        streams: the run's randomness.
        round: its number, from 1.
        attempt: how often the round was tried before.
        num_clients: N.
        exhausted: clients that reached `max_participations`; they are not drawn.
        arrange: puts attackers into the cohort, in a run that is attacked.
        max_dropouts: clients that may vanish without loss of the noise.
        max_colluders: clients whose noise the adversary may know.
        shared: what clients were told once, such as the kept weights.
        groups: those of this round, if not the scheme's.
        excluded: clients that are drawn, but do not take part.
    """
    cohort = drawn_cohort(sampler, streams, round, attempt, num_clients, exhausted, arrange)
    return plan_for(
        scheme,
        sampler,
        cohort,
        streams=streams,
        round=round,
        attempt=attempt,
        num_clients=num_clients,
        max_dropouts=max_dropouts,
        max_colluders=max_colluders,
        shared=shared,
        groups=groups,
        excluded=excluded,
    )


def plan_for(
    scheme: Scheme,
    sampler: Sampler,
    cohort: np.ndarray,
    *,
    streams: Streams,
    round: int,
    attempt: int,
    num_clients: int,
    max_dropouts: int = 0,
    max_colluders: int = 0,
    shared: Mapping[str, Tensor] | None = None,
    groups: int | None = None,
    excluded: np.ndarray | None = None,
) -> RoundPlan:
    """The plan of a round for which this cohort was drawn, and of each of its groups. `plan_round` has the arguments.

    Groups come from a stream of their own. It is not public: who attacks need not know beforehand with whom. In fewer
    groups than the scheme's, each has the dropouts and colluders of those that it is made of.
    """
    groups = scheme.groups if groups is None else groups
    out = np.zeros(0, dtype=np.int64) if excluded is None else excluded
    left_out = np.isin(cohort, out)
    merged = -(-scheme.groups // groups)

    def of(some: np.ndarray) -> RoundPlan:
        return plan_of_sum(
            scheme,
            sampler,
            some,
            streams=streams,
            round=round,
            attempt=attempt,
            num_clients=num_clients,
            max_dropouts=merged * max_dropouts,
            max_colluders=merged * max_colluders,
            shared=shared,
            groups=groups,
            num_excluded=len(out),
        )

    whole = replace(of(cohort[~left_out]), excluded=cohort[left_out])
    if groups == 1:
        return whole
    key = streams.key("groups", round, attempt) & (2**64 - 1)
    dealt = sampler.deal(whole.cohort, num_clients, groups, key)
    return replace(whole, groups=tuple(of(members) for members in dealt))


def plan_of_sum(
    scheme: Scheme,
    sampler: Sampler,
    cohort: np.ndarray,
    *,
    streams: Streams,
    round: int,
    attempt: int,
    num_clients: int,
    max_dropouts: int = 0,
    max_colluders: int = 0,
    shared: Mapping[str, Tensor] | None = None,
    groups: int | None = None,
    num_excluded: int = 0,
) -> RoundPlan:
    """The plan of one sum: of these clients, who are the cohort or one group of it. `plan_round` has the arguments.

    All else follows from public numbers, for server and clients alike. `num_excluded` clients of the population do not
    take part, whether drawn or not.
    """
    groups = scheme.groups if groups is None else groups
    return sampler.plan_of_sum(
        cohort,
        num_clients,
        max_dropouts=max_dropouts,
        max_colluders=max_colluders,
        groups=groups,
        excluded=num_excluded,
        round=round,
        attempt=attempt,
        run_seed=streams.public_seed("public"),
        round_seed=streams.public_seed("public", round, attempt),
        fingerprint=scheme.fingerprint,
        shared=shared or {},
        planned_units=scheme.train.planned_units(sampler.rate_in(num_clients)),
    )


def drawn_cohort(
    sampler: Sampler,
    streams: Streams,
    round: int,
    attempt: int,
    num_clients: int,
    exhausted: Sequence[int] | np.ndarray = (),
    arrange: Arrange | None = None,
) -> np.ndarray:
    """Who takes part in an attempt at a round; `exhausted` clients do not."""
    drawn = sampler.cohort(num_clients, streams, round, attempt)
    drawn = drawn[~np.isin(drawn, exhausted)] if len(exhausted) else drawn
    if arrange is None:
        return drawn
    return arrange(drawn, np.asarray(exhausted, dtype=np.int64), streams.numpy("malicious", round, attempt))
