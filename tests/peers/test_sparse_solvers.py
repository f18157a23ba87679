"""FISTA against the papers' OWL-QN (PyLBFGS) and PyLops, on the same problem."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from laconic.codecs.dct import LowPass, dct
from laconic.codecs.solvers import Fista, objective_and_gap, soft_threshold

CHUNKS, LENGTH, COUNT, WEIGHT = 4, 509, 60, 1e-3


@pytest.fixture
def code() -> torch.Tensor:
    rng = np.random.default_rng(0)
    signal = np.zeros((CHUNKS, LENGTH))
    for row in signal:
        row[rng.choice(LENGTH, 12, replace=False)] = rng.normal(size=12)
    return dct(torch.from_numpy(signal), COUNT) + torch.from_numpy(rng.normal(scale=0.01, size=(CHUNKS, COUNT)))


THETA = LowPass(LENGTH, COUNT)


def value(code: torch.Tensor, signal: torch.Tensor) -> float:
    return objective_and_gap(code, signal, WEIGHT, THETA)[0]


def solved(code: torch.Tensor, **options: float) -> torch.Tensor:
    solver = Fista(l1_weight=WEIGHT, max_iterations=3000, **({"tolerance": 1e-6} | options))  # type: ignore[arg-type]
    return solver.solve(code, THETA)


def test_the_duality_gap_certifies_the_solution(code: torch.Tensor) -> None:
    best, gap = objective_and_gap(code, solved(code), WEIGHT, THETA)
    assert 0 <= gap <= 2e-3 * best
    rough, wide = objective_and_gap(code, solved(code, tolerance=0.05), WEIGHT, THETA)
    assert rough - best <= wide + 1e-12
    assert best <= rough


def test_chunks_are_solved_independently(code: torch.Tensor) -> None:
    together = solved(code, tolerance=0.0)
    alone = torch.cat([solved(code[row : row + 1], tolerance=0.0) for row in range(CHUNKS)])
    assert value(code, together) == pytest.approx(value(code, alone), rel=1e-4)


def test_soft_threshold() -> None:
    assert soft_threshold(torch.tensor([-3.0, -0.5, 0.0, 0.5, 3.0]), 1.0).tolist() == [-2, 0, 0, 0, 2]


def test_no_worse_than_owl_qn(code: torch.Tensor) -> None:
    lbfgs = pytest.importorskip("lbfgs", reason="PyLBFGS is not installed (pip install PyLBFGS)")
    results = []
    for row in code:
        target = row[None]

        def evaluate(x: np.ndarray, gradient: np.ndarray, target: torch.Tensor = target) -> float:
            residual = THETA.forward(torch.from_numpy(np.array(x))[None]) - target
            gradient[:] = THETA.adjoint(residual)[0].numpy()
            return float(residual.square().sum() / 2)

        results.append(
            torch.from_numpy(lbfgs.fmin_lbfgs(evaluate, np.zeros(LENGTH), orthantwise_c=WEIGHT, line_search="wolfe"))
        )
    assert value(code, solved(code)) <= value(code, torch.stack(results)) * (1 + 1e-9)


def test_as_pylops_does(code: torch.Tensor) -> None:
    pylops = pytest.importorskip("pylops", reason="PyLops is not installed (pip install pylops)")
    matrix = dct(torch.eye(LENGTH, dtype=torch.float64), COUNT).T.numpy()
    operator = pylops.MatrixMult(np.ascontiguousarray(matrix))
    rows = [
        pylops.optimization.sparsity.fista(operator, row.numpy(), niter=3000, eps=2 * WEIGHT, alpha=1.0, tol=1e-12)[0]
        for row in code
    ]
    assert value(code, solved(code)) == pytest.approx(value(code, torch.from_numpy(np.stack(rows))), rel=1e-4)
