"""One round as pure functions: what a client sends, and what the server does with the sum. `planning` has its plan.

Where some rounds are votes or evaluations, what clients send and what the server does follow from the scheme of the
round (`Scheme.at`); plans are those of the whole scheme.
"""

from __future__ import annotations

import hashlib
import importlib.util
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from laconic.aggregate.base import blocks
from laconic.codecs.votes import VotedSubset
from laconic.errors import Diverged, PrivacyError
from laconic.graphs import Answer
from laconic.packing import FLOAT16, FLOAT32, SIGNS, Encoding, integers
from laconic.plan import RoundPlan
from laconic.privacy.mechanism.clip import L2Clip
from laconic.privacy.mechanism.discrete_gaussian import DiscreteGaussian
from laconic.privacy.mechanism.gaussian import Gaussian
from laconic.scheme import Scheme
from laconic.server.rules import SCORES, VOTES, State
from laconic.streams import Stream, Streams, joint, side_by_side

_DRAWS_ON_A_GPU, _DRAWS_ON_A_CPU = 1 << 26, 1 << 17
_TERMS_ON_A_GPU, _TERMS_ON_A_CPU = 1 << 23, 1 << 17
_HAS_TRITON = importlib.util.find_spec("triton") is not None
AGGREGATOR = "aggregator."
"""Before the names of what an aggregator remembers, in the state of the server."""
NOISE = "noise."
"""Before the names of what the server remembers of sums to which it adds the noise itself: secret, like those sums."""


def client_messages(scheme: Scheme, plan: RoundPlan, updates: Tensor, *, streams: Sequence[Stream]) -> Tensor:
    """What clients send: encode, clip, add the noise share. Updates (clients, n) → codes (clients, m).

    With integer noise these are residues mod 2^b (int64), ready for a masked sum, and b is `uplink_encoding(…).bits`;
    otherwise floats.
    """
    return noisy_codes(scheme, plan, bounded_codes(scheme, plan, updates, streams=streams), streams=streams)


def bounded_codes(scheme: Scheme, plan: RoundPlan, updates: Tensor, *, streams: Sequence[Stream]) -> Tensor:
    """Encode and clip."""
    return scheme.clip(scheme.codec.encode(updates, plan, streams))


def noisy_codes(scheme: Scheme, plan: RoundPlan, codes: Tensor, *, streams: Sequence[Stream]) -> Tensor:
    """Every code with its noise share. On a GPU, which is for simulation, many are drawn at once from one stream.

    On a CPU small ones are drawn at once too, each from its own stream: a client by itself draws the same.
    """
    if not scheme.noise.private:
        return codes
    sensitivity = scheme.clip.sensitivity(codes.shape[-1])
    together = joint if codes.is_cuda else side_by_side
    at_once = rows_at_once(codes.shape[-1], codes.device)
    shares = [
        scheme.noise.share(some, sensitivity=sensitivity, plan=plan, rng=together(streams[start : start + at_once]))
        for start, some in zip(range(0, len(codes), at_once), torch.split(codes, at_once), strict=True)
    ]
    return torch.cat(shares)


def summed_terms(scheme: Scheme, plan: RoundPlan, updates: Tensor, *, streams: Sequence[Stream]) -> Tensor:
    """What the clients' updates, encoded and clipped, add to the point around which the noise of their sum is drawn.

    Updates (clients, n) → (m,). Integers are added, so the order of the clients changes no bit; and in blocks of
    coordinates, which stay in a cache.
    """
    codes, noise = scheme.codec.encode(updates, plan, streams), scheme.noise
    if codes.is_cuda and (found := _summed_on_a_gpu(scheme, plan, codes)) is not None:
        return found
    (rows, size), clipped = codes.shape, scheme.clip.by_blocks(codes)
    total = torch.empty(size, dtype=torch.int64 if noise.on_integers else codes.dtype, device=codes.device)
    width = max(1, (_TERMS_ON_A_GPU if codes.is_cuda else _TERMS_ON_A_CPU) // rows)
    for start in range(0, size, width):
        block = slice(start, start + width)
        sensitivity = scheme.clip.sensitivity(size)
        terms = noise.terms(clipped(block), code_size=size, sensitivity=sensitivity, plan=plan)
        torch.sum(terms, 0, out=total[block])
    return total


def _summed_on_a_gpu(scheme: Scheme, plan: RoundPlan, codes: Tensor) -> Tensor | None:
    """The same in one pass, for the usual clip and noise; None for others."""
    clip, noise, size = scheme.clip, scheme.noise, codes.shape[-1]
    if type(clip) is not L2Clip or type(noise) not in (Gaussian, DiscreteGaussian) or not _HAS_TRITON:
        return None
    from laconic.privacy.mechanism.kernels import clipped_sum

    units = noise.term_units(code_size=size, sensitivity=clip.sensitivity(size), plan=plan)
    return clipped_sum(codes, clip.roots(codes), units)


def noise_around(scheme: Scheme, plan: RoundPlan, total: Tensor, *, shares: int, stream: Stream) -> Tensor:
    """The sum of a round's messages from the sum of their terms: so many clients' noise, drawn at once."""
    sensitivity = scheme.clip.sensitivity(total.shape[-1])
    return scheme.noise.around(total, shares=shares, sensitivity=sensitivity, plan=plan, rng=stream)


def noisy_in_groups(
    scheme: Scheme, plan: RoundPlan, clients: np.ndarray, codes: Tensor, *, streams: Sequence[Stream]
) -> Tensor:
    """As `noisy_codes`, for clients of several groups: a share of the noise depends on how many are in the group."""
    shares = np.array([group.noise_shares for group in plan.groups])[plan.group_of(clients)]
    noisy = codes.to(torch.int64) if scheme.noise.on_integers else codes.clone()
    for size in np.unique(shares).tolist():
        rows = np.flatnonzero(shares == size)
        group = next(group for group in plan.groups if group.noise_shares == size)
        places = torch.from_numpy(rows).to(codes.device)
        noisy[places] = noisy_codes(scheme, group, codes[places], streams=[streams[row] for row in rows.tolist()])
    return noisy


def noisy_terms(scheme: Scheme, plan: RoundPlan, terms: Tensor, *, streams: Sequence[Stream]) -> Tensor:
    """What clients send that have added up clipped vectors on the grid: such sums (clients, m), each with its share."""
    sensitivity, noise = scheme.clip.sensitivity(terms.shape[-1]), scheme.noise
    pairs = zip(terms, streams, strict=True)
    return torch.stack(
        [noise.around(one, shares=1, sensitivity=sensitivity, plan=plan, rng=stream) for one, stream in pairs]
    )


def rows_at_once(code_size: int, device: torch.device) -> int:
    """How many clients' noise is drawn at once."""
    return max(1, (_DRAWS_ON_A_GPU if device.type == "cuda" else _DRAWS_ON_A_CPU) // code_size)


def client_message(scheme: Scheme, plan: RoundPlan, update: Tensor, *, stream: Stream) -> Tensor:
    """What one client sends: update (n,) → code (m,), see `client_messages`."""
    return client_messages(scheme, plan, update[None], streams=[stream])[0]


def noise_stream(streams: Streams, plan: RoundPlan, client: int) -> Stream:
    """The client's noise in this attempt: a repeated round draws new noise."""
    return streams.stream(*streams.of_run("noise", plan.round, plan.attempt, client))


def sum_noise_stream(streams: Streams, plan: RoundPlan, group: int = 0) -> Stream:
    """The noise of a whole sum in this attempt, where it is drawn at once."""
    return streams.stream(*streams.of_run("noise", plan.round, plan.attempt, "sum", group, _who(plan)))


def _who(plan: RoundPlan) -> str:
    """A digest of the cohort."""
    return hashlib.blake2b(plan.cohort.tobytes(), digest_size=16).hexdigest()


def empty_sum(scheme: Scheme, plan: RoundPlan, code_size: int, device: torch.device) -> Tensor:
    """The sum of no codes, of the type in which they are summed; with groups one for each, (groups, m)."""
    shape = (len(plan.groups), code_size) if plan.groups else (code_size,)
    return torch.zeros(shape, dtype=torch.int64 if scheme.noise.on_integers else torch.float32, device=device)


def uplink_encoding(scheme: Scheme, code_size: int, plan: RoundPlan) -> Encoding:
    """How a client's message is packed: as the codec says, or in integers of as many bits as the noisy sum needs."""
    if scheme.noise.private:
        sensitivity = scheme.clip.sensitivity(code_size)
        bits = scheme.noise.code_bits(code_size=code_size, sensitivity=sensitivity, plan=plan.sums[0])
        return FLOAT32 if bits is None else integers(bits)
    return scheme.codec.packing


def downlink_encoding(scheme: Scheme) -> Encoding:
    """How the way down is packed: the weights that a client lacks, or only the signs of the last change."""
    return SIGNS if scheme.downlink == "signs" else weights_encoding(scheme)


def weights_encoding(scheme: Scheme) -> Encoding:
    """How weights themselves are packed: also those that a client needs before signs are enough for it."""
    return FLOAT16 if scheme.downlink == "half" else FLOAT32


def received(scheme: Scheme, plan: RoundPlan, weights: Tensor) -> Tensor:
    """The weights from which clients train: those that travel are rounded as `weights_encoding` packs them."""
    if weights_encoding(scheme) != FLOAT16:
        return weights
    changing = scheme.codec.changing(len(weights), plan)
    if changing is None:
        return in_half(weights)
    changing, start = changing.to(weights.device), weights.clone()
    start[changing] = in_half(weights[changing])
    return start


def in_half(values: Tensor) -> Tensor:
    """Rounded to floats of 16 bits; what is too large for them becomes the largest, ±65,504."""
    most = torch.finfo(torch.float16).max
    return values.clamp(-most, most).to(torch.float16).to(torch.float32)


def client_weight(scheme: Scheme, num_records: int) -> float:
    """The client's weight in the mean."""
    return float(num_records) if scheme.weighting == "data-size" else 1.0


def client_weights(scheme: Scheme, num_records: np.ndarray) -> np.ndarray:
    """`client_weight` of several clients."""
    return num_records.astype(np.float64) if scheme.weighting == "data-size" else np.ones(len(num_records))


def release_stream(streams: Streams, plan: RoundPlan) -> Stream:
    """The server's own noise in this attempt (see `server_step`)."""
    return streams.stream(*streams.of_run("release", plan.round, plan.attempt))


def first_server_state(scheme: Scheme, size: int, code_size: int, device: torch.device) -> State:
    """What the server remembers before the first round: the rule, and the aggregator."""
    remembered = scheme.aggregator.init(code_size, device)
    return scheme.rule.init(size, code_size, device) | {AGGREGATOR + name: value for name, value in remembered.items()}


def finite_codes(codes: Tensor, counts: Tensor) -> tuple[Tensor, Tensor]:
    """Without the codes that are not finite: no honest client sends them, and no rule can use them."""
    finite = torch.ones(len(codes), dtype=torch.bool, device=codes.device)
    for block in blocks(codes) if len(codes) else ():
        finite &= torch.isfinite(codes[:, block]).all(dim=1)
    return (codes, counts) if bool(finite.all()) else (codes[finite], counts[finite])


def single_codes_step(
    scheme: Scheme, plan: RoundPlan, codes: Tensor, counts: Tensor, *, weights: Tensor, state: State
) -> tuple[Tensor, State]:
    """New weights and state from single codes (clients, m) and what each counts, by an aggregator that looks at them.

    There must be `least_codes` of them, and all finite.
    """
    mine = {name.removeprefix(AGGREGATOR): value for name, value in state.items() if name.startswith(AGGREGATOR)}
    code, mine = scheme.aggregator.step(codes, counts, mine)
    remembered = {AGGREGATOR + name: value for name, value in mine.items()}
    return _moved(scheme, plan, code, weights, state | remembered)


def server_step(
    scheme: Scheme,
    plan: RoundPlan,
    total: Tensor,
    *,
    survivors: int,
    total_weight: float,
    weights: Tensor,
    state: State,
    stream: Stream,
    checked: bool = True,
) -> tuple[Tensor, State]:
    """New weights and rule state from the weighted sum of the codes. Everything here is post-processing.

    With integer noise `total` is the opened sum: integers of which only the residues mod 2^b count, so a masked sum
    and a plain one give the same weights, bit for bit.

    With noise shares the denominator is the public `planned_cohort`, and the server tops up the noise so that what an
    outsider sees has the same distribution however many clients came: a round in which too few came (`survivors=0`)
    releases noise alone. Otherwise the size of a cohort would show, and with it a little of who was in it.

    Args:
        scheme: that of the round (`Scheme.at`).
        plan: of the round.
        total: the sum of the codes (m,), weighted without noise.
        survivors: how many codes are in it.
        total_weight: the sum of their weights; noise shares do not use it.
        weights: w, before the step.
        state: the rule's, before the step.
        stream: the server's own noise.
        checked: refuse weights that are not finite, which waits for their device.
    """
    if scheme.noise.central:
        mean, state = _with_central_noise(scheme, plan, total, state, stream)
        return _moved(scheme, plan, mean, weights, state)
    if scheme.noise.private:
        released = released_sums(scheme, plan, total[None], survivors=[survivors], stream=stream)
        return sums_step(scheme, plan, released, weights=weights, state=state)
    return _moved(scheme, plan, total / total_weight, weights, state, checked=checked)


def _with_central_noise(
    scheme: Scheme, plan: RoundPlan, total: Tensor, state: State, stream: Stream
) -> tuple[Tensor, State]:
    """The mean code with noise that the server adds, and the state with what it remembers for the next rounds."""
    memory = {name.removeprefix(NOISE): value for name, value in state.items() if name.startswith(NOISE)}
    estimate, memory = scheme.noise.estimated(
        total,
        memory,
        sensitivity=scheme.clip.sensitivity(len(total)),
        plan=plan,
        rng=stream.fork(f"central {_who(plan)}"),
    )
    return estimate / plan.planned_cohort, state | {NOISE + name: value for name, value in memory.items()}


def remembers_sums(state: State) -> bool:
    """Whether the state has what `_with_central_noise` left in it."""
    return any(name.startswith(NOISE) for name in state)


def without_sums(state: State) -> State:
    """The state without what only further rounds would need, and only the server may see."""
    return {name: value for name, value in state.items() if not name.startswith(NOISE)}


def released_sums(
    scheme: Scheme, plan: RoundPlan, totals: Tensor, *, survivors: Sequence[int], stream: Stream
) -> Tensor:
    """The sums of a private round (sums, m) as they are released: with their noise topped up, or as noise alone."""
    streams = [stream.fork(f"group {number}") for number in range(len(plan.groups))] or [stream]
    every = zip(plan.sums, totals, survivors, streams, strict=True)
    return torch.stack([_released(scheme, one, total, count, own) for one, total, count, own in every])


def sums_step(scheme: Scheme, plan: RoundPlan, sums: Tensor, *, weights: Tensor, state: State) -> tuple[Tensor, State]:
    """New weights and state from released sums (sums, m), all of the round or some. All of it is post-processing.

    Divided by their planned size they are means. Those of groups are combined by the aggregator, as if they were codes.
    """
    means = sums / plan.sums[0].divisor
    if not plan.groups:
        return _moved(scheme, plan, means[0], weights, state)
    return single_codes_step(
        scheme, plan, means, torch.ones(len(means), device=means.device), weights=weights, state=state
    )


def _released(scheme: Scheme, plan: RoundPlan, total: Tensor, survivors: int, stream: Stream) -> Tensor:
    """The opened sum with the server's part of the noise; refused if too few messages are in it."""
    if 0 < survivors < plan.min_survivors or (survivors and not plan.viable):
        raise PrivacyError(
            f"round {plan.round}: {survivors} messages, but the noise needs {plan.min_survivors}: not opened"
        )
    sensitivity = scheme.clip.sensitivity(len(total))
    return scheme.noise.released(total, sensitivity=sensitivity, plan=plan, survivors=survivors, rng=stream)


def _moved(
    scheme: Scheme, plan: RoundPlan, code: Tensor, weights: Tensor, state: State, *, checked: bool = True
) -> tuple[Tensor, State]:
    """The server rule's step, refused if its weights are no longer finite. What is not the rule's stays."""
    remembered = {name: value for name, value in state.items() if name.startswith((AGGREGATOR, NOISE))}
    own = {name: value for name, value in state.items() if name not in remembered}
    change, own = scheme.rule.step(code, own, scheme.codec, len(weights), plan)
    updated = weights + change
    if checked:
        refuse_divergence(torch.isfinite(updated).all(), plan.round)
    return updated, own | remembered


def refuse_divergence(finite: Tensor | Answer, number: int) -> None:
    """Refuse the weights of a round if they are not finite."""
    if not bool(finite):
        raise Diverged(
            f"the weights are no longer finite after round {number}: training diverged; lower ⟨local-lr⟩ or ⟨server-lr⟩"
        )


def elected(scheme: Scheme, plan: RoundPlan, state: State, size: int) -> tuple[dict[str, Tensor] | None, State]:
    """After the last vote: what clients are told from now on, and the state without the votes. Before: None."""
    codec = scheme.codec
    if not isinstance(codec, VotedSubset) or plan.round != codec.vote_rounds:
        return None, state
    votes = state.get(VOTES, torch.zeros(codec.ballot.code_size(size)))  # zeros if no client ever came
    return codec.elected(votes, size, plan), {name: value for name, value in state.items() if name != VOTES}


class Answered(NamedTuple):
    """The result of a query: fields of the round's row, what clients are told, weights, and the rule's state."""

    row: dict[str, Any]
    told: dict[str, Tensor]
    weights: Tensor
    state: State


def read_answers(scheme: Scheme, plan: RoundPlan, weights: Tensor, state: State) -> Answered:
    """After a query: what the noisy mean of the answers says. The state is without it. Else nothing.

    It looks at nothing but what was released, so it says as much in a round that was lost: noise, which is not told.
    """
    query = scheme.query(plan.round)
    if query is None:
        return Answered({}, {}, weights, state)
    mean = state.get(SCORES, torch.zeros(query.cells)).double().cpu().numpy()
    noise = _cell_noise(scheme.at(plan.round), plan)
    left = {name: value for name, value in state.items() if name != SCORES}
    return Answered(query.found(mean, noise), query.told(mean, noise), query.start(mean, noise, weights), left)


def _cell_noise(scheme: Scheme, plan: RoundPlan) -> float:
    """The standard deviation of the noise in each value of a mean answer, a public number. Groups are averaged."""
    if not scheme.noise.private:
        return 0.0
    sums, cells = plan.sums, scheme.codec.code_size(0)
    scale = scheme.noise.released_scale(code_size=cells, sensitivity=scheme.clip.sensitivity(cells), plan=sums[0])
    return scale / sums[0].divisor / math.sqrt(len(sums))
