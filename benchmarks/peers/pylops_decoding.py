"""W3 with PyLops: 50 iterations of its FISTA.

    python -m benchmarks.peers.pylops_decoding CODE.npy SOLUTION.npy chunks|together

Chunk by chunk, or all chunks in one operator, so that an iteration is one matrix product as in Laconic.
"""

from __future__ import annotations

import sys

import numpy as np
import pylops
from pylops.optimization.sparsity import fista

from benchmarks import decoding as w3
from benchmarks.pacing import serve


def main() -> None:
    codes, solution = w3.files()
    theta = w3.matrix().astype(np.float32)
    # PyLops minimises ‖y − Θs‖² + ε‖s‖₁ /2 up to its own factor: ε = 2λ is our problem (a test compares the solutions).
    options = {"niter": 50, "eps": 2 * w3.L1_WEIGHT, "alpha": 1.0, "tol": 0.0}

    def chunk_by_chunk() -> np.ndarray:
        operator = pylops.MatrixMult(theta, dtype="float32")
        return np.stack([fista(operator, code, **options)[0] for code in codes])

    def together() -> np.ndarray:
        operator = pylops.MatrixMult(theta, otherdims=(len(codes),), dtype="float32")
        flat = fista(operator, np.ascontiguousarray(codes.T).ravel(), **options)[0]
        return flat.reshape(w3.LENGTH, len(codes)).T

    decoder = together if sys.argv[3] == "together" else chunk_by_chunk
    serve(lambda: np.save(solution, decoder()))


if __name__ == "__main__":
    main()
