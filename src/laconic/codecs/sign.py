"""The signs of the update: one bit a weight."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from laconic.codecs.base import Codec
from laconic.packing import SIGNS, Encoding
from laconic.plan import RoundPlan
from laconic.streams import Stream, joint


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
