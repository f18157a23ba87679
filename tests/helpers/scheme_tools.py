"""Every scheme of the catalogue with options for a small federation of forty clients, and its runs there.

A new option of a scheme that has no default needs a value here, and nowhere else in the tests.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

import laconic
from conftest import make_population, make_records
from laconic.catalogue import SCHEMES, build_scheme
from laconic.scheme import Scheme

SIZES = [6, 9, 3, 12, 7, 5, 4, 8] * 5
_OPTIONS = {
    "clip_norm": 0.7,
    "noise_multiplier": 0.5,
    "ratio": 0.6,
    "num_chunks": 3,
    "sign_step": 0.03,
    "init_steps": 3,
    "local_lr": 0.3,
    "local_steps": 3,
    "batch_size": 5,
    "record_rate": 0.6,
}
# For three classes, and with an ε that is quick to compute.
_RECORD_LEVEL = {"balance": "none", "local_steps": 1, "noise_multiplier": 1.0}


def options(name: str, **changes: Any) -> dict[str, Any]:
    """The options of a scheme, with some of them changed; those that it does not have are left out."""
    entry = SCHEMES[name]
    chosen = _OPTIONS | (_RECORD_LEVEL if entry.record_level else {}) | changes
    return {key: value for key, value in chosen.items() if key in entry.options}


def scheme(name: str, **changes: Any) -> Scheme:
    return build_scheme(name, **options(name, **changes))


def model(features: int = 6) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(features, 8), nn.Tanh(), nn.Linear(8, 3))


def sampling_rate(name: str) -> float:
    """In SignSGD every client takes part in every round."""
    return 1.0 if name.startswith("sign-sgd") else 0.4


def run(chosen: Scheme, **options: Any) -> laconic.RunResult:
    """A run of a few rounds, unless the options say otherwise."""
    defaults: dict[str, Any] = {
        "model": model(),
        "clients": make_population(SIZES),
        "test": make_records(200, seed=1),
        "public": make_records(12, seed=2),
        "rounds": 5,
        "sampling_rate": sampling_rate(chosen.name),
        "eval_every": 5,
    }
    if chosen.private:
        defaults["delta"] = 1e-5
    return laconic.run(chosen, **(defaults | options))
