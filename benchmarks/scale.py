"""How far one run goes: clients in the population, clients in a cohort, rounds, and what a resume costs.

    python -m benchmarks.scale [population] [cohort] [accountant] [rounds] [weights] [--device cpu] [--json]

Every point is a process of its own, so that its peak memory is its own. Seconds are of the processor on a CPU (other
load matters little), and of the clock on a GPU. `weights` is for a GPU: FL-TOP-DP of 10⁸ weights.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

import laconic
from laconic.experiment.experiment import Experiment
from laconic.privacy.accounting.budget import Budget
from laconic.privacy.accounting.releases import epsilon
from laconic.runner.run import Run, run_in
from laconic.store.folder import RunFolder

Point = dict[str, Any]
_FEATURES, _RECORDS = 8, 5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="*", choices=[[], *MEASURED], help="all but weights, unless named")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--point", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.point:
        point = json.loads(asked.point)
        found = MEASURED[point.pop("what")](device=asked.device, **point)
        print(json.dumps(found | {"peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024}))
        return
    for what in asked.what or [name for name in MEASURED if name != "weights"]:
        for point in POINTS[what]:
            row = point | _in_a_process({"what": what, **point}, asked.device)
            print(json.dumps(row) if asked.json else f"{what}: {_line(row)}", flush=True)


def _in_a_process(point: Point, device: str) -> Point:
    command = [sys.executable, "-m", "benchmarks.scale", "--device", device, "--point", json.dumps(point)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    found: Point = json.loads(done.stdout.splitlines()[-1])
    return found


def _line(row: Point) -> str:
    return ", ".join(
        f"{name} {value:,.4g}" if isinstance(value, float) else f"{name} {value}" for name, value in row.items()
    )


def _make(client: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(client)
    inputs = torch.randn(_RECORDS, _FEATURES, generator=generator)
    return inputs, (inputs.sum(1) > 0).long()


def _experiment(clients: int, cohort: int, rounds: int, device: str, **changes: Any) -> Experiment:
    """FL-STD-DP on clients that are made on demand, of a linear model with 18 weights."""
    cap = changes.pop("max_participations", None)
    settings: dict[str, Any] = {
        "scheme": laconic.schemes.fl_std_dp(clip_norm=0.5, noise_multiplier=1.0, local_lr=0.1, local_steps=1),
        "model": torch.nn.Linear(_FEATURES, 2),
        "population": laconic.FunctionPopulation(clients, _make, size=lambda client: _RECORDS),
        "sampler": laconic.Poisson(sampling_rate=cohort / clients),
        "budget": Budget(delta=1e-9, max_participations=cap),
        "rounds": rounds,
        "eval_every": max(1, rounds // 10),
        "device": device,
    }
    return Experiment(**(settings | changes))


def _clock(device: str) -> float:
    return time.process_time() if device == "cpu" else time.perf_counter()


def _timed(e: Experiment, folder: RunFolder | None = None) -> tuple[list[float], float]:
    """Seconds of every round, and of what comes before the first: after a resume, reading the folder."""
    marks: list[float] = []
    begun = _clock(e.device)
    run = Run(e, observer=lambda row: marks.append(_clock(e.device)))
    if folder is None:
        run.begin()
        ready = _clock(e.device)
        run.run()
    else:
        with run_in(folder, run, {"config.toml": "# a measurement\n"}) as opened:
            if not opened._begun:
                opened.begin()
            ready = _clock(e.device)
            opened.run()
    return [after - before for before, after in zip([ready, *marks], marks, strict=False)], ready - begun


def _spread(seconds: list[float]) -> Point:
    """Medians of the first and of the last tenth: a round in the middle may save or evaluate."""
    tenth = max(1, len(seconds) // 10)
    first, last = statistics.median(seconds[1 : tenth + 1]), statistics.median(seconds[-tenth:])
    return {"first_ms": 1e3 * first, "last_ms": 1e3 * last}


def population(clients: int, cohort: int, rounds: int, device: str, cap: int | None = None) -> Point:
    seconds, begin = _timed(_experiment(clients, cohort, rounds, device, max_participations=cap))
    return {"begin_s": begin} | _spread(seconds)


def accountant(rounds: int, rate: float, sigma: float, device: str) -> Point:
    """Both ε after so many rounds; the server's for a client that took part in all of its share."""
    from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent

    begun = time.process_time()
    released = epsilon(PoissonSampledDpEvent(rate, GaussianDpEvent(sigma)), rounds, 1e-9, "pld")
    between = time.process_time()
    participant = epsilon(GaussianDpEvent(sigma), max(1, round(2 * rate * rounds)), 1e-9, "pld")
    done = time.process_time()
    return {
        "epsilon": released,
        "released_s": between - begun,
        "participant_epsilon": participant,
        "participant_s": done - between,
    }


def rounds(rounds: int, clients: int, cohort: int, device: str, cap: int | None = None) -> Point:
    """A run in a folder, and the same run gone on with for one more round."""
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "run"
        e = _experiment(clients, cohort, rounds, device, max_participations=cap)
        seconds, _ = _timed(e, RunFolder(path))
        sizes = {p.name: p.stat().st_size for p in path.rglob("*") if p.is_file()}
        _, resume = _timed(replace(e, rounds=rounds + 1), RunFolder(path))
    kept = ("rounds.jsonl", "charges.jsonl", "saves.jsonl", "state.safetensors", "report.html")
    return _spread(seconds) | {"resume_s": resume} | {f"{name}_kb": sizes[name] // 1000 for name in kept}


def weights(weights: int, cohort: int, ratio: float, device: str) -> Point:
    """FL-TOP-DP, whose clients train and send a share of the weights of a wide layer."""
    width = weights // 1000
    scheme = laconic.schemes.fl_top_dp(
        ratio=ratio, clip_norm=0.5, noise_multiplier=1.0, init_steps=1, local_lr=0.1, local_steps=1
    )
    inputs = torch.randn(20, width)
    e = _experiment(
        1000,
        cohort,
        5,
        device,
        scheme=scheme,
        model=torch.nn.Linear(width, 1000, bias=False),
        population=laconic.FunctionPopulation(1000, lambda c: (inputs[:5], torch.arange(5)), size=lambda c: 5),
        public=laconic.Records(inputs, torch.arange(20)),
    )
    seconds, begin = _timed(e)
    gpu = torch.cuda.max_memory_allocated() // 2**20 if device != "cpu" else 0
    return {"begin_s": begin, "gpu_mb": gpu} | _spread(seconds)


MEASURED: dict[str, Callable[..., Point]] = {
    "population": population,
    "cohort": population,
    "accountant": accountant,
    "rounds": rounds,
    "weights": weights,
}
POINTS: dict[str, list[Point]] = {
    "population": [
        *({"clients": n, "cohort": 100, "rounds": 200} for n in (10**4, 10**6, 10**7)),
        {"clients": 10**7, "cohort": 100, "rounds": 200, "cap": 1},
    ],
    "cohort": [{"clients": 10**7, "cohort": n, "rounds": 20} for n in (100, 1000, 10**4)],
    "accountant": [{"rounds": n, "rate": q, "sigma": s} for q, s in ((1e-3, 1.0), (0.01, 2.0)) for n in (10**3, 10**5)],
    "rounds": [{"rounds": n, "clients": 10**4, "cohort": 10} for n in (100, 1000, 10**4)]
    + [{"rounds": 1000, "clients": 10**4, "cohort": 100, "cap": 20}],
    "weights": [{"weights": 10**8, "cohort": 10, "ratio": 1e-3}],
}

if __name__ == "__main__":
    main()
