"""Attackers that say they hold many records."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from laconic.adversary.attack import Attack, Scene
from laconic.parts import positive
from laconic.scheme import Scheme


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
            yield f"in {scheme.name} clients count alike, whatever size they claim: use a scheme that averages by data"
