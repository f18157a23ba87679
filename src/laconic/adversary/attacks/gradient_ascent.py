"""Training that makes the loss larger."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from laconic.adversary.attack import Attack


@dataclass(frozen=True, kw_only=True)
class GradientAscent(Attack):
    """The scheme's own local training with the loss negated, on the attackers' pooled data (thesis section 6.1.1.2).

    w_ℓ = w_{ℓ−1} + η·∇f(∪_k D_k; w_{ℓ−1}),  Δŵ = w_{T_gd} − w_0,  sent: η_Adv·Δŵ

    The thesis writes η_Adv in the place of the step and calls it the boosting parameter; `boost_as="step"` is the
    first reading. It is 10 on MNIST and 20 on IMDB.
    """

    boost: float = 10.0

    ascends: ClassVar[bool] = True
