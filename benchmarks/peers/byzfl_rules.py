"""The robust rules against ByzFL's: how far they are apart, and how long they take.

    PYTHONPATH=src:. FOLDER/byzfl/bin/python -m benchmarks.peers.byzfl_rules [--clients 100] [--size 100000] [--alone]

`--alone` times ours only: ByzFL's mixing copies every code n times, and does not fit in memory for a CNN.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
import time
import types
from collections.abc import Callable

import torch
from torch import Tensor

from laconic.aggregate.base import Aggregator
from laconic.aggregate.clipping import CentredClipping, NormBound
from laconic.aggregate.krum import Bulyan, Krum, MultiKrum
from laconic.aggregate.medians import GeometricMedian, Median, TrimmedMean
from laconic.aggregate.mixing import NearestNeighbourMixing

Rule = Callable[[Tensor], Tensor]
RADIUS, ITERATIONS = 2.0, 4


def byzfl_rules(f: int) -> dict[str, Rule] | None:
    """ByzFL's rules by our names; None where it is not installed. Arrays of numpy, so that it stays in float64."""
    found = importlib.util.find_spec("byzfl") if "byzfl" not in sys.modules else sys.modules["byzfl"].__spec__
    if found is None:
        return None
    if "byzfl" not in sys.modules:  # its own front door loads its training, which needs torchvision
        package = types.ModuleType("byzfl")
        package.__path__, package.__spec__ = list(found.submodule_search_locations or ()), found
        sys.modules["byzfl"] = package
    from byzfl.aggregators import aggregators as a
    from byzfl.aggregators import preaggregators as p

    def rule(call: Callable[..., object]) -> Rule:
        return lambda codes: torch.as_tensor(call(codes.numpy().copy()))

    return {
        "median": rule(a.Median()),
        "trimmed-mean": rule(a.TrMean(f=f)),
        "krum": rule(a.Krum(f=f)),
        "multi-krum": rule(a.MultiKrum(f=f)),
        "geometric-median": rule(a.GeometricMedian(nu=1e-6, T=200)),
        "centred-clipping": rule(lambda codes: a.CenteredClipping(L=ITERATIONS, tau=RADIUS)(codes)),
        "norm-bound": rule(lambda codes: p.Clipping(c=9.0)(codes).mean(axis=0)),
        "mixing and median": rule(lambda codes: a.Median()(p.NNM(f=f)(codes))),
    }


def our_rules(f: int, clients: int) -> dict[str, Aggregator]:
    """The same rules. ByzFL's Krum sums over n − f − 1 neighbours, Blanchard et al.'s over n − f − 2: so one less f."""
    return {
        "median": Median(),
        "trimmed-mean": TrimmedMean(byzantine=f),
        "krum": Krum(byzantine=f - 1),
        "multi-krum": MultiKrum(byzantine=f - 1, selected=clients - f),
        "geometric-median": GeometricMedian(max_iterations=200, tolerance=1e-12),
        "centred-clipping": CentredClipping(radius=RADIUS, iterations=ITERATIONS),
        "norm-bound": NormBound(radius=9.0),
        "mixing and median": NearestNeighbourMixing(rule=Median(), byzantine=f),
    }


def drawn(clients: int, size: int, f: int, seed: int, dtype: torch.dtype = torch.float64) -> Tensor:
    """Codes of which f are far away."""
    codes = torch.randn(clients, size, generator=torch.Generator().manual_seed(seed), dtype=dtype)
    codes[:f] += 20
    return codes


def furthest(f: int, seeds: int = 20) -> dict[str, float]:
    """By rule, the largest difference in any coordinate over so many draws of 15 codes."""
    theirs = byzfl_rules(f)
    assert theirs is not None, "ByzFL is not installed: python -m benchmarks.peers.setup byzfl"
    found = dict.fromkeys(theirs, 0.0)
    for seed in range(seeds):
        codes = drawn(15, 200, f, seed)
        for name, rule in our_rules(f, 15).items():
            ours = rule.combine(codes, torch.ones(15, dtype=codes.dtype))
            found[name] = max(found[name], float((ours - theirs[name](codes)).abs().max()))
    return found


def seconds(call: Callable[[], object]) -> float:
    """The quicker of two calls."""
    taken = []
    for _ in range(2):
        start = time.perf_counter()
        call()
        taken.append(time.perf_counter() - start)
    return min(taken)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=100)
    parser.add_argument("--size", type=int, default=100_000)
    parser.add_argument("--alone", action="store_true")
    options = parser.parse_args()
    f = options.clients // 10
    codes, ones = drawn(options.clients, options.size, f, 0, torch.float32), torch.ones(options.clients)
    theirs = {} if options.alone else byzfl_rules(f) or {}
    apart = {} if options.alone else furthest(3)
    ours = our_rules(f, options.clients) | {"bulyan": Bulyan(byzantine=f), "geometric-median": GeometricMedian()}
    print(f"{options.clients} codes of {options.size:,} values, f = {f}, {torch.get_num_threads()} threads")
    for name, rule in ours.items():
        line = f"{name:18} {seconds(lambda rule=rule: rule.combine(codes, ones)):8.2f} s"  # type: ignore[misc]
        if name in theirs:
            line += f"   ByzFL {seconds(lambda name=name: theirs[name](codes)):8.2f} s"  # type: ignore[misc]
            line += f"   apart by {apart[name]:.1e}"
        print(line, flush=True)


if __name__ == "__main__":
    main()
