"""The discrete Gaussian sampler on one core or a GPU: seconds for a million draws, beside float noise and OpenDP.

    python -m benchmarks.noise NAME SCALE COUNT DEVICE

A process of its own per sampler.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from benchmarks.contest import Process, Unavailable, contest, module
from benchmarks.pacing import Pacer, serve
from benchmarks.peers.environments import python_of
from benchmarks.settings import Settings
from laconic.guard.noise import draw_gap, draw_total_variation
from laconic.plan import RoundPlan
from laconic.privacy.mechanism.discrete_gaussian import DiscreteGaussian, draw_discrete_gaussian
from laconic.streams import Stream

SCALE, COUNT, OPENDP_COUNT = 200.0, 2_000_000, 20_000
OURS = "laconic, whole means"
CLIENTS = 100
_SENSITIVITY = 1.0


def samplers(scale: float, count: int, device: str) -> dict[str, Callable[[], object]]:
    noise, plan = DiscreteGaussian(noise_multiplier=1.0), _plan()
    few = max(1, count // CLIENTS)
    codes = torch.full((CLIENTS, few), 0.37 / few**0.5, device=device)
    options = {"sensitivity": _SENSITIVITY, "plan": plan}

    def shares() -> torch.Tensor:
        return noise.share(codes, rng=Stream(1), **options).sum(0)

    def at_once() -> torch.Tensor:
        terms = noise.terms(codes, code_size=few, **options).sum(0)
        return noise.around(terms, shares=CLIENTS, rng=Stream(1), **options)

    zeros, third = torch.zeros(count, device=device), torch.full((count,), 0.37, device=device)
    return {
        OURS: lambda: draw_discrete_gaussian(zeros, scale, Stream(1), integer_mean=True),
        "laconic, real means": lambda: draw_discrete_gaussian(third, scale, Stream(1)),
        f"laconic, a sum of {CLIENTS} codes, per client": shares,
        f"laconic, a sum of {CLIENTS} codes, per sum": at_once,
        "numpy normal, rounded (not exact)": lambda: np.rint(np.random.default_rng(1).normal(0, scale, count)),
        "torch.randn (continuous)": lambda: torch.randn(count, device=device) * scale,
    }


def _plan() -> RoundPlan:
    sizes = {"planned_cohort": float(CLIENTS), "least_cohort": CLIENTS, "largest_cohort": CLIENTS}
    cohort = np.arange(CLIENTS)
    return RoundPlan(round=1, attempt=0, cohort=cohort, run_seed=0, round_seed=0, fingerprint="", **sizes)


def run(settings: Settings) -> dict[str, Any]:
    count = 10_000 if settings.quick else COUNT
    names = [name for name in samplers(SCALE, 1, "cpu") if not (settings.on_gpu and name.startswith("numpy"))]
    contenders = [
        Process(
            name,
            name.split(",")[0].split()[0],
            module("noise", name, str(SCALE), str(count), settings.device),
            threads=1,
        )
        for name in names
    ]
    skipped: dict[str, str] = {}
    if not settings.quick and not settings.on_gpu:
        try:
            python = python_of("opendp", settings.peers)
            command = module("peers.opendp_noise", str(SCALE), str(OPENDP_COUNT), python=python)
            contenders.append(Process("OpenDP make_gaussian", "OpenDP", command, threads=1))
        except Unavailable as why:
            skipped["OpenDP"] = str(why)
    result = contest(contenders, repeats=settings.repeats, count=10, skipped=skipped)  # a draw is short
    for row in result["contenders"]:
        drawn = OPENDP_COUNT if row["group"] == "OpenDP" else count
        row["seconds"] = [seconds * 1e6 / drawn for seconds in row["seconds"]]
        row["median"] *= 1e6 / drawn
    return {
        "title": "The discrete Gaussian sampler",
        "about": f"Seconds for a million draws of scale {SCALE:g}, on one thread of a CPU or on the GPU; {count:,} at a"
        f" time, {OPENDP_COUNT:,} by OpenDP, whose figure includes the conversion from and to Python lists. The sign"
        " schemes use whole means, all others real ones. A draw with a real mean is at most"
        f" {draw_total_variation(SCALE):.1e} in total variation from the exact distribution, up to a factor of"
        f" 1 ± {draw_gap(SCALE):.0e}. Sums of {CLIENTS} codes have so many values in all, on a grid of their own, and"
        " their noise is that of a round: drawn by every client, or at once. OpenDP samples exactly. Rounded or"
        " continuous floats are no alternatives: they"
        " are what the integers are meant to replace.",
        "ours": OURS,
        **result,
    }


def main(name: str, scale: float, count: int, device: str) -> None:
    torch.set_num_threads(1)
    serve(
        samplers(scale, count, device)[name],
        Pacer(synchronize=torch.cuda.synchronize if device != "cpu" else lambda: None),
    )


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
