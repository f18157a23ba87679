"""Some coordinates of the update, the same for all clients: drawn at random, or chosen with public data."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from laconic.codecs.base import Codec, Importance
from laconic.parts import positive_int, rate
from laconic.plan import RoundPlan
from laconic.streams import Stream


@dataclass(frozen=True, kw_only=True)
class Subset(Codec):
    """code = update[kept]. With `train_only_kept` the other weights do not move in local training either."""

    ratio: float
    train_only_kept: bool

    def __post_init__(self) -> None:
        rate(ratio=self.ratio)

    def code_size(self, size: int) -> int:
        """K = ⌈r·n⌉."""
        return min(size, math.ceil(self.ratio * size))

    @property
    def trained_share(self) -> float:
        return self.ratio if self.train_only_kept else 1.0

    @property
    def chooses(self) -> bool:
        return self.train_only_kept or self.needs_public

    def kept(self, size: int, plan: RoundPlan, device: torch.device) -> Tensor:
        """The kept coordinates, sorted."""
        raise NotImplementedError

    def support(self, size: int, plan: RoundPlan) -> Tensor | None:
        return self.kept(size, plan, torch.device("cpu")) if self.train_only_kept else None

    def encode(self, update: Tensor, plan: RoundPlan, streams: Sequence[Stream]) -> Tensor:
        return update[..., self.kept(update.shape[-1], plan, update.device)]

    def decode(self, code: Tensor, size: int, plan: RoundPlan) -> Tensor:
        update = code.new_zeros(size)
        update[self.kept(size, plan, code.device)] = code
        return update


@dataclass(frozen=True, kw_only=True)
class NewRandomSubset(Subset):
    """A random set from the public seed of the round (FL-RND, FL-BASIC, FL-BAS-2)."""

    new_each_round: ClassVar[bool] = True

    def kept(self, size: int, plan: RoundPlan, device: torch.device) -> Tensor:
        return _random_subset(size, self.code_size(size), plan.round_seed).to(device)


@dataclass(frozen=True, kw_only=True)
class FixedRandomSubset(Subset):
    """A random set from the public seed of the run (FL-BAS-3, FL-BAS-4): the other weights never change."""

    def downlink_size(self, size: int) -> int:
        return self.code_size(size)

    def changing(self, size: int, plan: RoundPlan) -> Tensor | None:
        return self.kept(size, plan, torch.device("cpu"))

    def kept(self, size: int, plan: RoundPlan, device: torch.device) -> Tensor:
        return _random_subset(size, self.code_size(size), plan.run_seed).to(device)


@dataclass(frozen=True, kw_only=True)
class TopSubset(Subset):
    """The K weights with the largest accumulated |gradient| over T_init steps on public data (thesis section 4.2.1)."""

    init_steps: int

    def __post_init__(self) -> None:
        super().__post_init__()
        positive_int(init_steps=self.init_steps)

    @property
    def needs_public(self) -> bool:
        return self.ratio < 1

    def downlink_size(self, size: int) -> int:
        return self.code_size(size)

    def changing(self, size: int, plan: RoundPlan) -> Tensor | None:
        return self.kept(size, plan, torch.device("cpu"))

    def shared(self, size: int, run_seed: int, importance: Importance) -> dict[str, Tensor]:
        count = self.code_size(size)
        if count == size:
            return {"kept": torch.arange(size)}
        return {"kept": importance(self.init_steps).topk(count).indices.sort().values.cpu()}

    def kept(self, size: int, plan: RoundPlan, device: torch.device) -> Tensor:
        kept: Tensor = plan.shared["kept"]
        return kept.to(device)


@functools.lru_cache(maxsize=8)
def _random_subset(size: int, count: int, seed: int) -> Tensor:
    rng = np.random.Generator(np.random.Philox(key=seed))
    return torch.from_numpy(np.sort(rng.choice(size, count, replace=False, shuffle=False)).astype(np.int64))
