"""Canaries: clients whose code is known beforehand, and who are in or out by a coin.

A canary that is in has a code along its own direction, a hundred times longer than the clip allows. One that is out has
the code that the claim compares with: 0 for zero-out adjacency, the opposite one for replace-one. Both are clients like
all others: they are sampled, clipped, and add their share of the noise.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from laconic.clients.base import ModelView
from laconic.codecs.base import Codec
from laconic.codecs.dct import LowPassDCT
from laconic.codecs.solvers import Adjoint
from laconic.errors import ConfigError
from laconic.plan import RoundPlan
from laconic.privacy.accounting.sampling import REPLACE_ONE, Sampler
from laconic.streams import Stream

OVERSHOOT = 100.0
"""How many times longer than S a canary's code is before the clip."""
_AT_ONCE = 1 << 24
"""So many numbers of canaries' updates are held in memory at once."""
_MOST_KEPT = 1 << 26
"""So many numbers of canaries' codes are kept from round to round."""


class Directions(Protocol):
    """Where the canaries point. `codes` is what the adversary knows, `updates` what the canaries hand to the codec."""

    @property
    def size(self) -> int:
        """How many numbers of one canary are in memory while its code is made."""

    def updates(self, plan: RoundPlan, canaries: np.ndarray) -> Tensor:
        """(canaries, n)"""

    def codes(self, plan: RoundPlan, canaries: np.ndarray) -> Tensor:
        """(canaries, m), of norm 1."""


class RandomDirections:
    """A random update for each canary, from a stream of its own: codes are nearly orthogonal in high dimensions."""

    def __init__(self, view: ModelView) -> None:
        self._view = view
        self._kept: dict[int, Tensor] = {}

    @property
    def size(self) -> int:
        return self._view.model.size

    def updates(self, plan: RoundPlan, canaries: np.ndarray) -> Tensor:
        updates, codes = self._raw(plan, canaries)
        scaled: Tensor = updates * (_length(self._view) / codes.norm(dim=1, keepdim=True))
        return scaled

    def codes(self, plan: RoundPlan, canaries: np.ndarray) -> Tensor:
        """Kept for the next round where they stay the same and are not too many."""
        if self._view.experiment.scheme.codec.new_each_round:
            return self._units(plan, canaries)
        if len(missing := np.setdiff1d(canaries, list(self._kept))):
            units = self._units(plan, missing)
            if (len(self._kept) + len(missing)) * self._view.code_size > _MOST_KEPT:
                return units if len(missing) == len(canaries) else self._units(plan, canaries)
            self._kept |= dict(zip(missing.tolist(), units, strict=True))
        return torch.stack([self._kept[canary] for canary in canaries.tolist()])

    def _units(self, plan: RoundPlan, canaries: np.ndarray) -> Tensor:
        codes = self._raw(plan, canaries)[1]
        units: Tensor = codes / codes.norm(dim=1, keepdim=True)
        return units

    def _raw(self, plan: RoundPlan, canaries: np.ndarray) -> tuple[Tensor, Tensor]:
        view = self._view
        streams = [view.streams.stream("canary", int(canary)) for canary in canaries]
        updates = torch.stack([stream.normal((view.model.size,), view.device) for stream in streams])
        return updates, view.experiment.scheme.codec.encode(updates, plan, streams)


class OrthogonalDirections:
    """Rows of a Hadamard matrix: orthogonal codes of entries ±1, which sign codes can have, too.

    The rows after those of the canaries are free: what is seen along them is noise alone.
    """

    def __init__(self, view: ModelView) -> None:
        self._view, size = view, view.code_size
        order = 1 << (size.bit_length() - 1)
        rows = hadamard(order).to(view.device) / order**0.5
        self.rows = torch.nn.functional.pad(rows, (0, size - order))
        """(order, m)"""
        self._lifted: tuple[tuple[int, int], Tensor] | None = None

    @property
    def size(self) -> int:
        return self._view.code_size

    def updates(self, plan: RoundPlan, canaries: np.ndarray) -> Tensor:
        lifted = self._lift(plan)
        return _length(self._view) * lifted[torch.from_numpy(canaries).to(lifted.device)]

    def codes(self, plan: RoundPlan, canaries: np.ndarray) -> Tensor:
        return self.rows[torch.from_numpy(canaries).to(self.rows.device)]

    def _lift(self, plan: RoundPlan) -> Tensor:
        """Updates whose codes the rows are; made again only where codes mean something else in every round."""
        codec = self._view.experiment.scheme.codec
        key = (plan.run_seed, plan.round_seed if codec.new_each_round else 0)
        if self._lifted is None or self._lifted[0] != key:
            self._lifted = (key, lifted(codec, self.rows, self._view.model.size, plan))
        return self._lifted[1]


@dataclass(frozen=True)
class Canaries:
    """The clients `first` … `first + len(coins) − 1`; `out` times its direction is the code of one that is out."""

    first: int
    coins: np.ndarray
    out: float
    directions: Directions

    @property
    def numbers(self) -> np.ndarray:
        return np.arange(len(self.coins))

    def among(self, clients: np.ndarray) -> np.ndarray:
        """Which of the clients are canaries."""
        found: np.ndarray = (clients >= self.first) & (clients < self.first + len(self.coins))
        return found

    def updates(self, plan: RoundPlan, clients: np.ndarray) -> Tensor:
        """What canaries hand to the codec."""
        numbers = clients - self.first
        updates = self.directions.updates(plan, numbers)
        signs = np.where(self.coins[numbers], 1.0, self.out).astype(np.float32)
        return updates * torch.from_numpy(signs).to(updates.device)[:, None]

    def along(self, plan: RoundPlan, values: Tensor) -> np.ndarray:
        """What a vector in code space (m) has along each canary's direction."""
        chunks = np.split(self.numbers, range(rows := rows_at_once(self.directions.size), len(self.numbers), rows))
        parts = [self.directions.codes(plan, some).double() @ values.double() for some in chunks]
        return torch.cat(parts).cpu().numpy()


def rows_at_once(size: int) -> int:
    """How many updates of this size are held in memory at once."""
    return max(1, _AT_ONCE // size)


def code_when_out(sampler: Sampler) -> float:
    """The code of a canary that is out, in units of its direction: the worst neighbour by the sampler's adjacency."""
    return -1.0 if sampler.adjacency == REPLACE_ONE else 0.0


def hadamard(order: int) -> Tensor:
    """Sylvester's matrix of ±1 with orthogonal rows; `order` is a power of two."""
    rows = torch.ones(1, 1)
    while len(rows) < order:
        rows = torch.cat([torch.cat([rows, rows], 1), torch.cat([rows, -rows], 1)])
    return rows


def lifted(codec: Codec, codes: Tensor, size: int, plan: RoundPlan) -> Tensor:
    """Updates (k, n) whose codes are these (k, m), up to a factor for signs."""
    if not codec.linear:
        updates = codes
    else:
        adjoint = replace(codec, solver=Adjoint()) if isinstance(codec, LowPassDCT) else codec
        updates = torch.stack([adjoint.decode(code, size, plan) for code in codes])
    got = codec.encode(updates, plan, [Stream(0)] * len(updates))
    got = got / got.norm(dim=1, keepdim=True).clamp(min=1e-30)
    if float((got - codes).abs().max()) > 1e-4:
        raise ConfigError(f"{type(codec).__name__} does not give the codes that the canaries of short runs need")
    return updates


def _length(view: ModelView) -> float:
    """The norm of a canary's code before the clip."""
    return OVERSHOOT * view.experiment.sensitivity
