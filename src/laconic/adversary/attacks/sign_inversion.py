"""The opposite of the honest update."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from laconic.adversary.attack import Attack, Scene


@dataclass(frozen=True, kw_only=True)
class SignInversion(Attack):
    """Δŵ_k = −Δw_k, so that FL-SIGN gets −sign(Δw_k) (thesis section 6.1.1.2).

    Every attacker trains on its own records, unless they collude. With one local step it is gradient ascent.
    """

    collude: bool = False

    def forged(self, trained: Tensor, scene: Scene) -> Tensor:
        return -trained
