"""A cohort that is summed in groups: all of it trains together, and every code goes into the sum of its own group."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from laconic.clients import wire
from laconic.clients.base import Collected
from laconic.clients.secure_sums import Attempt
from laconic.plan import RoundPlan
from laconic.round import downlink_encoding, empty_sum, noise_around, sum_noise_stream, uplink_encoding

if TYPE_CHECKING:
    from laconic.clients.simulated import SimulatedClients


def collect_groups(clients: SimulatedClients, plan: RoundPlan, weights: Tensor) -> Collected:
    """The sum of each group, in the open or masked. What is lost in one group does not touch another."""
    assert clients.secure is not None, "a scheme with groups has secure sums"
    scheme, (code_size, weights_down) = clients.experiment.scheme.at(plan.round), clients.sizes(plan.round)
    attempts = clients.secure.attempts(plan)
    result = Collected(empty_sum(scheme, plan, code_size, clients.device), groups=[0] * len(attempts))
    coming = np.sort(np.concatenate([attempt.clients for attempt in attempts if attempt is not None]))
    for chunk in clients.work.each(plan, coming, weights, clients.answer(plan)) if len(coming) else ():
        groups = plan.group_of(chunk.clients)
        for group in np.unique(groups).tolist():
            rows = np.flatnonzero(groups == group)
            _add(clients, attempts[group], chunk.clients[rows], chunk.values[torch.from_numpy(rows)], result, group)
        result.messages += len(chunk.clients)
    if clients.draws_per_sum(plan):
        with clients.clock("noise"):
            _draw(clients, plan, attempts, result)
    result.up = [wire.message_size(code_size, uplink_encoding(scheme, code_size, plan))] * result.messages
    told = sum(len(one.cohort) for one, attempt in zip(plan.groups, attempts, strict=True) if attempt is not None)
    result.down = [wire.message_size(weights_down, downlink_encoding(scheme))] * told
    clients.check_counted(plan, int(plan.cohort[0]), result.total[0], weights)
    _open(clients, attempts, result)
    return result


def _draw(clients: SimulatedClients, plan: RoundPlan, attempts: list[Attempt | None], result: Collected) -> None:
    """The noise of every group's sum, at once."""
    scheme = clients.experiment.scheme.at(plan.round)
    for group, (one, attempt) in enumerate(zip(plan.groups, attempts, strict=True)):
        if attempt is not None:
            result.total[group] = noise_around(
                scheme,
                one,
                result.total[group],
                shares=clients.work.num_shares(plan, attempt.clients),
                stream=sum_noise_stream(clients.streams, plan, group),
            )


def _add(
    clients: SimulatedClients, attempt: Attempt | None, some: np.ndarray, codes: Tensor, result: Collected, group: int
) -> None:
    assert attempt is not None and result.groups is not None
    result.groups[group] += len(some)
    if attempt.masked is None:
        with clients.clock("sum"):
            result.total[group] += codes.sum(0)
    else:
        with clients.clock("mask"):
            attempt.upload(some, codes)


def _open(clients: SimulatedClients, attempts: list[Attempt | None], result: Collected) -> None:
    """Open every sum that can be; of the others nothing is kept, and they count as if nobody had come."""
    assert result.groups is not None
    reasons, traffic = [], dict[str, int]()
    for group, attempt in enumerate(attempts):
        if attempt is None:
            continue
        with clients.clock("sum" if attempt.masked is None else "unmask"):
            opened = attempt.open(result.total[group])
        for kind, size in opened.traffic.items():
            traffic[kind] = traffic.get(kind, 0) + size
        if opened.total is None:
            reasons.append(opened.reason)
            result.total[group], result.groups[group] = 0, 0
        else:
            result.total[group] = opened.total
    if traffic:
        result.secagg = {kind: size for kind, size in traffic.items() if kind != "payload_up"}
        result.up = [traffic["payload_up"] // max(1, result.messages)] * result.messages
    result.messages = sum(result.groups)
    if not result.messages and reasons:
        result.lost = f"no group was opened; the first: {reasons[0]}"
