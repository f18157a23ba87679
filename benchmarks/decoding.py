"""W3's problem: the code of a real FL-CS round, and the objective that its decoders minimise. Numpy and scipy only.

Per chunk, min ½‖y − Θs‖² + λ‖s‖₁, where Θ is the first m rows of the orthonormal DCT of length L.
"""

from __future__ import annotations

import sys

import numpy as np
from scipy.fft import dct, idct

CHUNKS, LENGTH, COUNT, L1_WEIGHT = 200, 8317, 416, 1e-5


def forward(signals: np.ndarray) -> np.ndarray:
    """Θs: the first m coefficients."""
    return dct(signals, norm="ortho", axis=-1)[..., :COUNT]


def adjoint(codes: np.ndarray) -> np.ndarray:
    """Θᵀy."""
    return idct(codes, n=LENGTH, norm="ortho", axis=-1)


def matrix() -> np.ndarray:
    """Θ itself, (m, L)."""
    return np.ascontiguousarray(adjoint(np.eye(COUNT)))


def objective(codes: np.ndarray, signals: np.ndarray) -> float:
    """Summed over the chunks, in double precision."""
    residual = codes.astype(np.float64) - forward(signals.astype(np.float64))
    return float((residual**2).sum() / 2 + L1_WEIGHT * np.abs(signals, dtype=np.float64).sum())


def files() -> tuple[np.ndarray, str]:
    """(the code, where to leave the solution), as a decoder's command line names them."""
    return np.load(sys.argv[1]), sys.argv[2]
