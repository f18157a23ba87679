"""Every scheme, one short declaration each. Start here.

A round of any of them: the server sends the weights, each client of the cohort trains (`train`), compresses its
update (`codec`), bounds it (`clip`), adds its share of the noise (`noise`); the codes are summed (`secure_sum`) and
the server turns their mean into a change of the weights (`rule`).
"""

from __future__ import annotations

from typing import Any

from laconic.privacy.clip import L2Clip
from laconic.privacy.gaussian import Gaussian
from laconic.scheme import Scheme
from laconic.secure_sum import SimulatedSecureSum
from laconic.server.rules import Average
from laconic.train.local import LocalSGD


def fl_std(*, server_lr: float = 1.0, momentum: float = 0.0, **train: Any) -> Scheme:
    """FL-STD (thesis Alg. 1): every client sends its whole update; the server averages them by data size.

    w ← w + Σ_k |D_k|/|D|·Δw_k
    """
    return Scheme(
        name="fl-std",
        train=LocalSGD(**train),
        rule=Average(server_lr=server_lr, momentum=momentum),
        weighting="data-size",
    )


def fl_std_dp(
    *, clip_norm: float, noise_multiplier: float, server_lr: float = 1.0, momentum: float = 0.0, **train: Any
) -> Scheme:
    """FL-STD-DP (thesis Alg. 10): the update clipped to S, plus a Gaussian share; the server sees only the sum.

    w ← w + 1/|K|·Σ_k (Δw_k / max(1, ‖Δw_k‖₂/S) + G(0, S·σ/√|K|·I))
    """
    return Scheme(
        name="fl-std-dp",
        train=LocalSGD(**train),
        clip=L2Clip(clip_norm=clip_norm),
        noise=Gaussian(noise_multiplier=noise_multiplier),
        secure_sum=SimulatedSecureSum(),
        rule=Average(server_lr=server_lr, momentum=momentum),
    )


def centralized(**train: Any) -> Scheme:
    """CENTRALIZED: plain SGD on the pooled records, the reference that no federation can beat. Nothing is sent."""
    return Scheme(name="centralized", train=LocalSGD(**train), pooled=True)
