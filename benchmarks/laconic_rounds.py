"""Rounds of Laconic through `laconic.run`, with run folder, ledger and, for private schemes, a budget that is kept.

    python -m benchmarks.laconic_rounds '{"scheme": "fl-top", "ratio": 0.005, "engine": "auto"}'

A process of its own for W1; the growth curves call `paced_run` too.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

import laconic
from benchmarks import workload as w1
from benchmarks.paced import pacer_for, run_while
from laconic.data.population import FunctionPopulation, PooledPopulation, Population, Records

_SCHEME_OPTIONS: dict[str, dict[str, Any]] = {
    # Float noise, as the peers draw it, unless integers are asked for.
    "fl-std-dp": {"clip_norm": w1.CLIP_NORM, "noise_multiplier": w1.NOISE_MULTIPLIER, "noise": "continuous"},
    "fl-top-dp": {"clip_norm": w1.CLIP_NORM, "noise_multiplier": w1.NOISE_MULTIPLIER},
    "fl-sign-dp": {"noise_multiplier": w1.NOISE_MULTIPLIER, "sign_step": 1e-5},
    "fl-cs": {"max_iterations": 50, "tolerance": 0.0},
}


def paced_run(
    round_done: Callable[[], bool],
    *,
    scheme: str = "fl-std",
    engine: str = "auto",
    device: str = "cpu",
    cohort: int = w1.COHORT,
    num_clients: int = w1.CLIENTS,
    lazy: bool = False,
    weights: int | None = None,
    noise_draws: str = "auto",
    **options: Any,
) -> None:
    """Train until `round_done` says no. `lazy` clients are made when asked for; `weights` asks for an MLP so large."""
    train = {"local_lr": w1.LEARNING_RATE, "local_steps": w1.STEPS, "batch_size": w1.RECORDS}
    declare = getattr(laconic.schemes, scheme.replace("-", "_"))
    torch.manual_seed(0)
    model = w1.cnn() if weights is None else w1.mlp(weights)
    clients = _made_on_demand(num_clients) if lazy else _pooled(num_clients)

    run_while(
        round_done,
        declare(**train, **(_SCHEME_OPTIONS.get(scheme, {}) | options)),
        cohort=cohort,
        model=model,
        clients=clients,
        public=w1.images(100, seed=3) if "top" in scheme else None,
        device=device,
        engine=engine,
        noise_draws=noise_draws,
        **({"delta": min(w1.DELTA, 0.1 / num_clients), "epsilon": 100.0} if scheme.endswith("-dp") else {}),
    )


def _pooled(number: int) -> Population:
    """The clients of W1 in one table, as the command line holds a data set; it moves to the device."""
    rows = np.arange(number * w1.RECORDS).reshape(number, w1.RECORDS)
    return PooledPopulation(Records(*w1.images(rows.size)), rows)


def _made_on_demand(number: int) -> Population:
    """Any number of clients, none of which exists until its round; each gets ten out of a thousand pictures."""
    inputs, targets = w1.images(1000)

    def make(client: int) -> Records:
        rows = (torch.arange(w1.RECORDS) + client * 7) % len(targets)
        return Records(inputs[rows], targets[rows])

    return FunctionPopulation(number, make, size=lambda client: w1.RECORDS)


def main(options: dict[str, Any]) -> None:
    # The first round builds caches; a compiler may be at work in the second.
    pacer = pacer_for(options.get("device", "cpu"), warmups=options.pop("warmups", 3))
    paced_run(pacer.round_done, **options)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
