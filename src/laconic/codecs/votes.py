"""FL-TOP without public data: in the first rounds clients vote on which weights are kept (thesis section 5.4.3).

A ballot has one entry for each block of neighbouring weights, in the order of the flat model: with blocks of one, one
for each weight, as in the thesis. A client marks the M blocks in which its own update is largest, and the server keeps
the weights of the blocks with most marks. A ballot has M ones, so ‖ballot‖₂ = √M: the noise of a count grows with √M,
while its largest value is the size of the cohort. So fewer marks and larger blocks make counts that stand out, and
n/block values travel instead of n.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from laconic.codecs.base import Codec, Importance
from laconic.codecs.subset import Subset
from laconic.errors import ConfigError
from laconic.guard.noise import marks_of
from laconic.packing import Encoding, integers
from laconic.parts import positive, positive_int, rate
from laconic.plan import RoundPlan
from laconic.streams import Stream


@dataclass(frozen=True, kw_only=True)
class Ballot(Codec):
    """1 for each of the ⌈r·m⌉ blocks in which ‖Δw_block‖₂ is largest, 0 for the others. All weights are trained.

    Clients start from the initial weights, which they have: nothing has changed yet.
    """

    ratio: float
    block: int

    linear: ClassVar[bool] = False

    def __post_init__(self) -> None:
        rate(vote_ratio=self.ratio)
        positive_int(vote_block=self.block)

    def code_size(self, size: int) -> int:
        """m = ⌈n/block⌉."""
        return math.ceil(size / self.block)

    @property
    def packing(self) -> Encoding:
        """The smallest integers of both signs that 0 and 1 are among."""
        return integers(2)

    def downlink_size(self, size: int) -> int:
        return 0

    def changing(self, size: int, plan: RoundPlan) -> Tensor | None:
        return torch.zeros(0, dtype=torch.int64)

    def encode(self, update: Tensor, plan: RoundPlan, streams: Sequence[Stream]) -> Tensor:
        blocks = self.code_size(update.shape[-1])
        squares = update.nan_to_num(0.0).square()
        squares = functional.pad(squares, (0, blocks * self.block - update.shape[-1]))
        of_blocks = squares.reshape(*update.shape[:-1], blocks, self.block).sum(-1)
        largest = of_blocks.topk(marks_of(self.ratio, blocks), dim=-1)
        # A client that has learnt nothing has nothing to mark.
        marks = (largest.values > 0).to(update.dtype)
        return torch.zeros_like(update[..., :blocks]).scatter_(-1, largest.indices, marks)

    def decode(self, code: Tensor, size: int, plan: RoundPlan) -> Tensor:
        """The votes for each weight."""
        return code.repeat_interleave(self.block)[:size]


@dataclass(frozen=True, kw_only=True)
class VotedSubset(Subset):
    """The K weights with most votes: clients send ballots in the first `rounds` rounds, and the K are known after them.

    In a private scheme the votes have a noise multiplier of their own; None: that of the training rounds.
    """

    ballot: Ballot
    rounds: int
    noise_multiplier: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        positive_int(vote_rounds=self.rounds)
        if self.noise_multiplier is not None:
            positive(vote_noise_multiplier=self.noise_multiplier)
        if self.ratio == 1:
            raise ConfigError("ratio 1 keeps every weight, so there is nothing to vote on: lower ⟨ratio⟩")

    @property
    def vote_rounds(self) -> int:
        return self.rounds

    @property
    def chooses(self) -> bool:
        return True

    def downlink_size(self, size: int) -> int:
        return self.code_size(size)

    def changing(self, size: int, plan: RoundPlan) -> Tensor | None:
        return self.kept(size, plan, torch.device("cpu"))

    def shared(self, size: int, run_seed: int, importance: Importance) -> dict[str, Tensor]:
        """Nothing yet: `elected` says what is told after the vote."""
        return {}

    def elected(self, votes: Tensor, size: int, plan: RoundPlan) -> dict[str, Tensor]:
        """The K weights of the blocks with most votes. Of equal blocks public coins decide, and all of it is public."""
        blocks = votes.cpu()
        shuffled = torch.from_numpy(np.random.Generator(np.random.Philox(key=plan.round_seed)).permutation(len(blocks)))
        order = shuffled[blocks[shuffled].argsort(descending=True, stable=True)]
        weights = (order[:, None] * self.ballot.block + torch.arange(self.ballot.block)).reshape(-1)
        return {"kept": weights[weights < size][: self.code_size(size)].sort().values}

    def kept(self, size: int, plan: RoundPlan, device: torch.device) -> Tensor:
        kept: Tensor = plan.shared["kept"]
        return kept.to(device)
