"""OpenDP's discrete Gaussian on a vector of integers.

python -m benchmarks.peers.opendp_noise SCALE COUNT
"""

from __future__ import annotations

import sys

import opendp.prelude as dp

from benchmarks.pacing import serve


def main(scale: float, count: int) -> None:
    dp.enable_features("contrib")
    space = dp.vector_domain(dp.atom_domain(T=int)), dp.l2_distance(T=float)
    measurement = dp.m.make_gaussian(*space, scale=scale)
    zeros = [0] * count
    serve(lambda: measurement(zeros))


if __name__ == "__main__":
    main(float(sys.argv[1]), int(sys.argv[2]))
