"""Small federations whose clients are asked about: schemes with and without noise, and pictures of 4 × 4 pixels."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import laconic
from conftest import make_population, make_records
from laconic import schemes
from laconic.data.population import PooledPopulation, Records
from laconic.experiment.experiment import Experiment
from laconic.plan import RoundPlan
from laconic.privacy.mechanism.discrete_gaussian import DiscreteGaussian
from laconic.scheme import Scheme
from laconic.streams import Stream

TRAIN: dict[str, Any] = {"local_lr": 0.5, "local_steps": 2, "batch_size": 4}
ONE_STEP: dict[str, Any] = {"local_lr": 0.5, "local_steps": 1}


def private_schemes(sigma: float) -> dict[str, Scheme]:
    """Every kind of code under noise. The bound is so small that every code has the full norm."""
    noise: dict[str, Any] = {"noise_multiplier": sigma, **TRAIN}
    return {
        "fl-std-dp": schemes.fl_std_dp(clip_norm=0.01, **noise),
        "fl-sign-dp": schemes.fl_sign_dp(**noise),
        "fl-cs-dp": schemes.fl_cs_dp(clip_norm=0.01, ratio=0.5, **noise),
        "fl-top-dp": schemes.fl_top_dp(clip_norm=0.01, ratio=0.5, **noise),
    }


def asked(scheme: Scheme, **options: Any) -> Experiment:
    """Thirty clients, six of them in a round."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = nn.Linear(6, 3)
    defaults: dict[str, Any] = {
        "model": model,
        "population": make_population([5] * 30),
        "sampler": laconic.Poisson(sampling_rate=0.2),
        "rounds": 1,
        "test": make_records(60, seed=1),
        "public": make_records(10, seed=2),
        "budget": laconic.Budget(delta=1e-5) if scheme.private else None,
        "workers": 1,
    }
    return Experiment(scheme=scheme, **(defaults | options))


@dataclass(frozen=True, kw_only=True)
class ForgottenNoise(DiscreteGaussian):
    """Claims the ε of its noise and adds none: the sabotaged twin."""

    def share(self, code: Tensor, *, sensitivity: float, plan: RoundPlan, rng: Stream) -> Tensor:
        return self.without_noise(code, boost=1.0, sensitivity=sensitivity, plan=plan)


def forgetful(scheme: Scheme) -> Scheme:
    """The same scheme, promise and all, whose clients forget their noise."""
    noise = scheme.noise
    assert isinstance(noise, DiscreteGaussian)
    return replace(
        scheme, noise=ForgottenNoise(noise_multiplier=noise.noise_multiplier, bits=noise.bits, signs=noise.signs)
    )


def pictures(count: int, seed: int = 0) -> Records:
    """Smooth pictures of 4 × 4 pixels in three classes."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 3, count)
    place = np.arange(4) / 3
    centre = np.stack([labels / 2, rng.random(count)], axis=1)
    down = (place[None, :, None] - centre[:, 0, None, None]) ** 2
    across = (place[None, None, :] - centre[:, 1, None, None]) ** 2
    inputs = np.exp(-4 * (down + across))[:, None].astype(np.float32)
    return Records(torch.from_numpy(inputs), torch.from_numpy(labels))


def picture_experiment(scheme: Scheme, **options: Any) -> Experiment:
    """Twenty clients with pictures, five in a round, and a linear model."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Flatten(), nn.Linear(16, 3))
    every = pictures(100)
    defaults: dict[str, Any] = {
        "model": model,
        "population": PooledPopulation(every, np.arange(100).reshape(20, 5)),
        "sampler": laconic.Poisson(sampling_rate=0.25),
        "test": pictures(60, seed=1),
        "public": pictures(10, seed=2),
    }
    return asked(scheme, **(defaults | options))
