"""Samples a second of the discrete Gaussian sampler on one core, beside plain float noise and its peers.

    python benchmarks/discrete_gaussian.py [--scale 200] [--count 2000000]

OpenDP is measured if it is installed (pip install opendp); it is left out with a word otherwise.
"""

from __future__ import annotations

import argparse
import platform
import time
from collections.abc import Callable

import numpy as np
import torch

from laconic.privacy.discrete_sampler import draw_discrete_gaussian, draw_total_variation
from laconic.streams import Stream


def rate(draw: Callable[[int], object], count: int, repeats: int = 5) -> float:
    """Samples a second: the best of some repeats after one that warms up."""
    draw(min(count, 1000))
    times = []
    for _ in range(repeats):
        started = time.perf_counter()
        draw(count)
        times.append(time.perf_counter() - started)
    return count / min(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=float, default=200.0)
    parser.add_argument("--count", type=int, default=2_000_000)
    options = parser.parse_args()
    torch.set_num_threads(1)
    scale, count = options.scale, options.count
    contenders: dict[str, Callable[[int], object]] = {
        "laconic, whole means": lambda n: draw_discrete_gaussian(torch.zeros(n), scale, Stream(1), integer_mean=True),
        "laconic, real means": lambda n: draw_discrete_gaussian(torch.full((n,), 0.37), scale, Stream(1)),
        "numpy normal, rounded (not exact)": lambda n: np.rint(np.random.default_rng(1).normal(0, scale, n)),
        "torch.randn (continuous)": lambda n: torch.randn(n) * scale,
    }
    rates = {name: rate(draw, count) for name, draw in contenders.items()}
    try:
        import opendp.prelude as dp

        dp.enable_features("contrib")
        space = dp.vector_domain(dp.atom_domain(T=int)), dp.l2_distance(T=float)
        measurement = dp.m.make_gaussian(*space, scale=scale)
        rates["OpenDP"] = rate(lambda n: measurement([0] * n), 20_000, repeats=2)
    except ImportError:
        print("OpenDP is not installed: left out")
    print(
        f"scale {scale:g}, {count:,} draws, one thread, {platform.processor() or platform.machine()},"
        f" torch {torch.__version__}, numpy {np.__version__}"
    )
    ours = rates["laconic, whole means"]
    for name, value in rates.items():
        print(f"{name:<36} {value / 1e6:9.2f} M/s   {value / ours:6.2f} of ours")
    print(f"total variation distance of one draw: {draw_total_variation(scale):.1e}")


if __name__ == "__main__":
    main()
