"""W3 with the papers' solver: OWL-QN of PyLBFGS with its default tolerance, chunk by chunk.

    python -m benchmarks.peers.owlqn_decoding CODE.npy SOLUTION.npy matrix|transform

Θ is applied as a float32 matrix (all threads) or as a DCT: which is faster depends on the machine.
"""

from __future__ import annotations

import sys

import lbfgs
import numpy as np

from benchmarks import decoding as w3
from benchmarks.pacing import serve


def main() -> None:
    codes, solution = w3.files()
    forward, adjoint = w3.forward, w3.adjoint
    if sys.argv[3] == "matrix":
        theta = w3.matrix().astype(np.float32)
        forward, adjoint = lambda s: theta @ s.astype(np.float32), lambda y: y.astype(np.float32) @ theta

    def one_chunk(code: np.ndarray) -> np.ndarray:
        def evaluate(signal: np.ndarray, gradient: np.ndarray) -> float:
            residual = forward(signal) - code
            gradient[:] = adjoint(residual)
            return float(residual @ residual / 2)

        return lbfgs.fmin_lbfgs(evaluate, np.zeros(w3.LENGTH), orthantwise_c=w3.L1_WEIGHT, line_search="wolfe")

    def decode() -> None:
        np.save(solution, np.stack([one_chunk(code) for code in codes]))

    serve(decode)


if __name__ == "__main__":
    main()
