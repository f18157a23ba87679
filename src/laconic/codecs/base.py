"""What a codec is, and the two simplest: all of an update, and its signs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from laconic.data.inputs import Inputs
from laconic.errors import WireError
from laconic.packing import FLOAT32, SIGNS, Encoding, integers
from laconic.parts import Part
from laconic.plan import RoundPlan
from laconic.streams import Stream, joint

Importance = Callable[[int], Tensor]
"""So many training steps on public data → accumulated absolute gradient of every weight (n,)."""


@dataclass(frozen=True, kw_only=True)
class Codec(Part):
    """Update (clients, n) → code (clients, m); mean code (m,) → update (n,)."""

    linear: ClassVar[bool] = True
    """Whether the code of a sum is the sum of the codes (only sign is not)."""
    new_each_round: ClassVar[bool] = False
    """Whether the code means something else in every round, so that one threshold must fit many of them."""

    shared_name: ClassVar[str] = "kept"
    """What `plan.shared` calls that which clients are told once, where they are told something."""
    shared_packing: ClassVar[Encoding] = integers(32)

    @property
    def needs_public(self) -> bool:
        """Whether `shared` looks at public data."""
        return False

    @property
    def vote_rounds(self) -> int:
        """In how many rounds, the first ones, clients vote on what the code is (`VotedSubset`)."""
        return 0

    def code_size(self, size: int) -> int:
        """m for a model of n weights."""
        raise NotImplementedError

    @property
    def packing(self) -> Encoding:
        """How the values of a code travel where nothing is masked; it must carry them without loss."""
        return FLOAT32

    @property
    def trained_share(self) -> float:
        """Which fraction of the weights moves in local training."""
        return 1.0

    @property
    def chooses(self) -> bool:
        """Whether some weights are chosen for training, or by training on public data."""
        return False

    def downlink_size(self, size: int) -> int:
        """How many weights a client lacks at the start of a round: all, unless only fixed ones ever change."""
        return size

    def changing(self, size: int, plan: RoundPlan) -> Tensor | None:
        """The coordinates of those weights; None means all."""
        return None

    def shared(self, size: int, run_seed: int, importance: Importance) -> dict[str, Tensor]:
        """What every client must be told once, before its first round; it is counted."""
        return {}

    def shared_size(self, size: int) -> int:
        """How many values that is."""
        return self.code_size(size)

    def check_shapes(self, shapes: Sequence[Sequence[int]]) -> None:
        """Refuse a model whose weights have these shapes, if the code means nothing for it."""

    def check_shared(self, values: Tensor, size: int) -> None:
        """Refuse values that no honest server tells."""
        if int(values.min()) < 0 or int(values.max()) >= size or bool((values[1:] <= values[:-1]).any()):
            raise WireError("the kept coordinates are not sorted, or not all of the model's")

    def support(self, size: int, plan: RoundPlan) -> Tensor | None:
        """The coordinates that are trained; None means all."""
        return None

    def encode(self, update: Tensor, plan: RoundPlan, streams: Sequence[Stream]) -> Tensor:
        """The clients' codes; `streams` has one private source of randomness per client."""
        raise NotImplementedError

    def encode_whole(self, update: Tensor, plan: RoundPlan) -> Tensor:
        """A linear code of whole numbers up to 2²⁰ (in float64): exact, so that it has the same bits everywhere."""
        return self.encode(update, plan, [])

    def of_inputs(self, inputs: Inputs, plan: RoundPlan) -> Inputs | None:
        """For one linear layer: inputs x' with which the code of ρ·(x, 1)ᵀ is ρ·x'ᵀ; None if there are none."""
        return None

    def decode(self, code: Tensor, size: int, plan: RoundPlan) -> Tensor:
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class Identity(Codec):
    """The update itself: m = n."""

    def code_size(self, size: int) -> int:
        return size

    def encode(self, update: Tensor, plan: RoundPlan, streams: Sequence[Stream]) -> Tensor:
        return update

    def decode(self, code: Tensor, size: int, plan: RoundPlan) -> Tensor:
        return code


@dataclass(frozen=True, kw_only=True)
class Sign(Codec):
    """code = sign(Δw), a random sign for 0 and for what is no number (thesis Alg. 3).

    Not linear: the sum of signs is a vote, not an update.
    """

    linear: ClassVar[bool] = False

    def code_size(self, size: int) -> int:
        return size

    @property
    def packing(self) -> Encoding:
        return SIGNS

    def encode(self, update: Tensor, plan: RoundPlan, streams: Sequence[Stream]) -> Tensor:
        if update.is_cuda:  # asking whether there are any zeros would wait for the GPU, client by client
            coin = joint(streams).fork("zero").signs(tuple(update.shape), update.device)
            return torch.where(update.abs() > 0, torch.sign(update), coin)
        signs = torch.sign(update)
        undecided = ~(signs != 0) | torch.isnan(signs)
        for row, open_, stream in zip(signs, undecided, streams, strict=True):
            if bool(open_.any()):
                row[open_] = stream.fork("zero").signs(tuple(row.shape), row.device)[open_]
        return signs

    def decode(self, code: Tensor, size: int, plan: RoundPlan) -> Tensor:
        return code
