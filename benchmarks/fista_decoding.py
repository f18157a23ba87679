"""W3 with Laconic: decode with so many iterations.

python -m benchmarks.fista_decoding CODE.npy SOLUTION.npy ITERATIONS DEVICE
"""

from __future__ import annotations

import sys
from types import SimpleNamespace

import numpy as np
import torch

from benchmarks import decoding as w3
from benchmarks.pacing import Pacer, serve
from laconic.codecs.dct import LowPassDCT
from laconic.codecs.solvers import Fista


def main(iterations: int, device: str) -> None:
    codes, solution = w3.files()
    solver = Fista(l1_weight=w3.L1_WEIGHT, max_iterations=iterations, tolerance=0.0)
    codec = LowPassDCT(ratio=w3.COUNT / w3.LENGTH, num_chunks=w3.CHUNKS, order="natural", solver=solver)
    size = w3.CHUNKS * w3.LENGTH
    assert codec.chunk_sizes(size) == (w3.CHUNKS, w3.LENGTH, w3.COUNT)
    code = torch.from_numpy(codes).flatten().to(device)
    plan = SimpleNamespace(run_seed=0)  # of which the natural order needs nothing

    decoded = codec.decode(code, size, plan)
    np.save(solution, decoded.reshape(w3.CHUNKS, w3.LENGTH).cpu().numpy())
    synchronize = torch.cuda.synchronize if device != "cpu" else lambda: None
    serve(lambda: codec.decode(code, size, plan), Pacer(synchronize=synchronize))


if __name__ == "__main__":
    main(int(sys.argv[3]), sys.argv[4])
