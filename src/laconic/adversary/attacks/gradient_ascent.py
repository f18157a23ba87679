"""Attacks without a target: a larger loss, the opposite of the honest update, noise, fabricated weights."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from laconic.adversary.attack import Attack, Scene
from laconic.parts import positive
from laconic.scheme import Scheme


@dataclass(frozen=True, kw_only=True)
class GradientAscent(Attack):
    """The scheme's own local training with the loss negated, on the attackers' pooled data (thesis section 6.1.1.2).

    w_ℓ = w_{ℓ−1} + η·∇f(∪_k D_k; w_{ℓ−1}),  Δŵ = w_{T_gd} − w_0,  sent: η_Adv·Δŵ

    The thesis writes η_Adv in the place of the step and calls it the boosting parameter; `boost_as="step"` is the
    first reading. It is 10 on MNIST and 20 on IMDB.
    """

    boost: float = 10.0

    ascends: ClassVar[bool] = True


@dataclass(frozen=True, kw_only=True)
class SignInversion(Attack):
    """Δŵ_k = −Δw_k, so that FL-SIGN gets −sign(Δw_k) (thesis section 6.1.1.2).

    Every attacker trains on its own records, unless they collude. With one local step it is gradient ascent.
    """

    collude: bool = False

    def forged(self, trained: Tensor, scene: Scene) -> Tensor:
        return -trained


@dataclass(frozen=True, kw_only=True)
class RandomUpdate(Attack):
    """Δŵ_k ~ G(0, σ_Adv²·I), every attacker and every round anew (thesis section 6.1.1.1); no data, no training.

    `scale` is σ_Adv, 200 in the thesis. Attackers draw independently, unless they collude: then they send one vector.
    """

    collude: bool = False
    scale: float = 200.0

    def __post_init__(self) -> None:
        super().__post_init__()
        positive(scale=self.scale)

    @property
    def trains(self) -> str:
        return "nothing"

    def forged(self, trained: Tensor, scene: Scene) -> Tensor:
        names = ["all"] if self.collude else scene.attackers.tolist()
        drawn = [scene.stream("update", name).normal((scene.size,), scene.device) for name in names]
        return torch.stack(drawn).mul_(self.scale)


@dataclass(frozen=True, kw_only=True)
class FabricatedSizes(Attack):
    """The opposite of the honest update, not boosted: the weight does it, as |D_k| is what a client claims.

    w ← w + Σ_k |D̂_k|/Σ_j |D̂_j|·Δŵ_k,  |D̂_k| = `scale`·|D_k|,  Δŵ_k = −Δw_k

    It is why FL-SIGN does not weigh votes by data size (thesis section 4.1.1, a remark). Schemes in which clients count
    alike do not listen to it.
    """

    scale: float = 1000.0

    def __post_init__(self) -> None:
        super().__post_init__()
        positive(scale=self.scale)

    def forged(self, trained: Tensor, scene: Scene) -> Tensor:
        return -trained

    def claimed(self, sizes: np.ndarray) -> np.ndarray:
        claimed: np.ndarray = np.rint(self.scale * sizes).astype(np.int64)
        return claimed

    def problems(self, scheme: Scheme) -> Iterator[str]:
        yield from super().problems(scheme)
        if scheme.weighting != "data-size":
            yield f"in {scheme.name} clients count alike, for all claimed sizes: use a scheme that averages by data"
