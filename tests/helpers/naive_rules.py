"""The robust rules once more, with loops over clients and coordinates and nothing shared with the program."""

from __future__ import annotations

import numpy as np


def median(codes: np.ndarray) -> np.ndarray:
    return np.array([np.median(codes[:, j]) for j in range(codes.shape[1])])


def trimmed_mean(codes: np.ndarray, f: int) -> np.ndarray:
    means = []
    for j in range(codes.shape[1]):
        values = sorted(codes[:, j])
        means.append(sum(values[f : len(values) - f]) / (len(values) - 2 * f))
    return np.array(means)


def krum_order(codes: np.ndarray, f: int, candidates: list[int] | None = None) -> list[int]:
    """The clients by their score, the best first."""
    left = list(range(len(codes))) if candidates is None else candidates
    scores = {}
    for i in left:
        squares = sorted(sum((codes[i] - codes[j]) ** 2) for j in left if j != i)
        scores[i] = sum(squares[: max(1, len(left) - f - 2)])
    return sorted(left, key=lambda i: (scores[i], i))


def krum(codes: np.ndarray, f: int) -> np.ndarray:
    return codes[krum_order(codes, f)[0]]


def multi_krum(codes: np.ndarray, f: int, selected: int) -> np.ndarray:
    return np.mean([codes[i] for i in krum_order(codes, f)[:selected]], axis=0)


def bulyan(codes: np.ndarray, f: int) -> np.ndarray:
    left, chosen = list(range(len(codes))), []
    while len(chosen) < len(codes) - 2 * f:
        best = krum_order(codes, f, left)[0]
        chosen.append(best)
        left.remove(best)
    result = []
    for j in range(codes.shape[1]):
        values = [codes[i, j] for i in chosen]
        centre = np.median(values)
        nearest = sorted(values, key=lambda value: abs(value - centre))[: len(values) - 2 * f]
        result.append(sum(nearest) / len(nearest))
    return np.array(result)


def geometric_median(codes: np.ndarray, steps: int) -> np.ndarray:
    """By the plain Weiszfeld iteration, for very long."""
    point = codes.mean(0)
    for _ in range(steps):
        inverse = [1 / max(1e-12, np.sqrt(sum((point - code) ** 2))) for code in codes]
        point = sum(w * code for w, code in zip(inverse, codes, strict=True)) / sum(inverse)
    return point


def centred_clipping(codes: np.ndarray, radius: float, start: np.ndarray, iterations: int) -> np.ndarray:
    point = start.astype(float)
    for _ in range(iterations):
        moved = np.zeros_like(point)
        for code in codes:
            length = np.sqrt(sum((code - point) ** 2))
            moved += (code - point) * (1.0 if length <= radius else radius / length)
        point = point + moved / len(codes)
    return point


def norm_bound(codes: np.ndarray, radius: float | None) -> np.ndarray:
    lengths = [np.sqrt(sum(code**2)) for code in codes]
    bound = np.median(lengths) if radius is None else radius
    return np.mean([code * min(1.0, bound / n) for code, n in zip(codes, lengths, strict=True)], axis=0)


def mixed(codes: np.ndarray, f: int) -> np.ndarray:
    result = []
    for i in range(len(codes)):
        order = sorted(range(len(codes)), key=lambda j: (j != i, sum((codes[i] - codes[j]) ** 2)))
        result.append(np.mean([codes[j] for j in order[: len(codes) - f]], axis=0))
    return np.array(result)
