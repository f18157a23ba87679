"""A small run of everything, compared bit for bit with what it gave when `small_runs.json` was recorded.

Fingerprint, ledger and statement must be the same everywhere. How good the model is, which a statement says too, is not
compared: it follows from the weights. On a processor or with a torch that rounds in another way than those of the
recording (`machine`), sums of floats differ in their last bits: there the weights' hash is not compared, and an ε may
differ by one part in 10⁹.

    LACONIC_RECORD=1 pytest tests/golden/test_small_runs.py      records anew, after a change that is meant
"""

from __future__ import annotations

import functools
import hashlib
import json
import math
import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import scheme_tools
import torch
from scheme_tools import model, scheme
from torch import nn

import laconic
from conftest import make_records
from laconic.catalogue import SCHEMES

try:
    with warnings.catch_warnings():  # Flower's own, on import
        warnings.simplefilter("ignore")
        from flower_tools import LocalFederation, config_for
except ImportError:
    config_for = None  # type: ignore[assignment]

FILE = Path(__file__).with_name("small_runs.json")
NOISE = 1.5


def run(name: str, **options: Any) -> laconic.RunResult:
    small = {"test": make_records(60, seed=1), "rounds": 3, "eval_every": 1, "workers": 1, "device": "cpu"}
    small["noise_draws"] = "per-client"
    return scheme_tools.run(scheme(name, noise_multiplier=NOISE), **(small | options))


def masked(name: str, path: Path) -> laconic.RunResult:
    return run(name, secagg="masked", max_dropouts=4, dropout_rate=0.2, dropout_stage="any", sampling_rate=0.6)


def resumed(name: str, path: Path) -> laconic.RunResult:
    """Interrupted in the second round, then gone on with."""

    def interrupt(row: dict[str, Any]) -> None:
        if row["round"] == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(name, out=path / "run", observer=interrupt)
    return run(name, out=path / "run", resume=True)


def with_front_end(name: str, path: Path) -> laconic.RunResult:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        front_end = nn.Sequential(nn.Linear(6, 10), nn.ReLU())
    return run(name, front_end=front_end, model=model(10))


def federated(name: str, path: Path) -> laconic.RunResult:
    if config_for is None:
        pytest.skip("flwr is not installed: pip install '.[flower]'")
    options = scheme_tools.options(name, noise_multiplier=NOISE, ratio=0.5)
    config = config_for(name, **{f"scheme__{key}": value for key, value in options.items()})
    return LocalFederation(path / "federation", config).run()


DP = ("fl-std-dp", "fl-sign-dp", "fl-cs-dp", "fl-top-dp")
CASES: dict[str, Callable[[Path], laconic.RunResult]] = {
    **{name: lambda path, name=name: run(name) for name in SCHEMES},  # type: ignore[misc]
    **{f"{name}, masked": lambda path, name=name: masked(name, path) for name in DP},  # type: ignore[misc]
    **{
        f"{name}, resumed": lambda path, name=name: resumed(name, path)  # type: ignore[misc]
        for name in ("fl-std", "fl-std-dp", "fl-cs-dp", "fl-std-record-dp")
    },
    **{
        f"{name}, front end": lambda path, name=name: with_front_end(name, path)  # type: ignore[misc]
        for name in ("fl-std", "fl-top-dp")
    },
    **{
        f"{name}, federated": lambda path, name=name: federated(name, path)  # type: ignore[misc]
        for name in ("fl-std", "fl-sign", *DP)
    },
}


@functools.cache
def machine() -> str:
    """Torch, and a digest of how this processor rounds.

    Processors with the same instructions may still add up a product in another order. So what decides is the outcome of
    the operations of training, by torch alone: none of the project's code is in it.
    """
    draw = torch.Generator().manual_seed(0)
    values: list[torch.Tensor] = []
    for rows in (1, 4, 10, 12, 60):
        for inputs, outputs in ((6, 8), (8, 3), (10, 8)):
            x, w, g = (
                torch.randn(*shape, generator=draw) for shape in ((rows, inputs), (outputs, inputs), (rows, outputs))
            )
            values += [x @ w.T, g.T @ x, g @ w, torch.bmm(x.expand(5, -1, -1), w.T.expand(5, -1, -1)), g.sum(0)]
            values += [torch.tanh(x), torch.log_softmax(g, 1), torch.nn.functional.linear(x, w, w[:, 0])]
    code = torch.randn(16, 83, generator=draw)
    values += [code.square().sum(1), torch.linalg.vector_norm(code, dim=1), code.mean(0), torch.fft.rfft(code).abs()]
    digest = hashlib.sha256(b"".join(value.contiguous().numpy().tobytes() for value in values)).hexdigest()[:16]
    return f"torch {torch.__version__}, {torch.backends.cpu.get_cpu_capability()}, rounding {digest}"


def outcome(result: laconic.RunResult) -> dict[str, Any]:
    weights = torch.cat([p.detach().reshape(-1) for p in result.model.parameters()])
    return {
        "weights": hashlib.sha256(weights.numpy().tobytes()).hexdigest()[:32],
        "ledger": {k: v for k, v in result.ledger.items() if "transport" not in k},
        "statement": {key: value for key, value in result.statement.items() if key != "result"},
    }


@pytest.mark.parametrize("name", CASES)
def test_a_small_run_is_what_it_was(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LACONIC_TEST_ONLY_SEED", "3")
    found = json.loads(json.dumps(outcome(CASES[name](tmp_path))))
    known = json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else {}
    if os.environ.get("LACONIC_RECORD"):
        known |= {"machine": machine(), name: found}
        FILE.write_text(json.dumps(known, indent=1, ensure_ascii=False, sort_keys=True) + "\n", encoding="utf-8")
    expected = known[name]
    if known["machine"] != machine():
        found = nearly(found, expected) | {"weights": expected["weights"]}
    assert found == expected


def nearly(found: Any, expected: Any) -> Any:
    """What was found, with the expected number in place of every float that is within one part in 10⁹ of it."""
    if isinstance(found, dict) and isinstance(expected, dict):
        return {key: nearly(value, expected.get(key)) for key, value in found.items()}
    if isinstance(found, list) and isinstance(expected, list) and len(found) == len(expected):
        return [nearly(one, other) for one, other in zip(found, expected, strict=True)]
    if isinstance(found, float) and isinstance(expected, float) and math.isclose(found, expected, rel_tol=1e-9):
        return expected
    return found


def test_only_rounding_is_forgiven() -> None:
    assert nearly({"a": [1.0 + 1e-12, "x"]}, {"a": [1.0, "x"]}) == {"a": [1.0, "x"]}
    assert nearly({"a": [1.0 + 1e-6]}, {"a": [1.0]}) != {"a": [1.0]}
    assert nearly({"a": 1}, {"a": 1.0, "b": 2}) != {"a": 1.0, "b": 2} and nearly([1.0], [1.0, 2.0]) == [1.0]
