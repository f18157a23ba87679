"""Many runs as one: what does a round of several federations side by side cost, compared with one of them alone?

    python -m benchmarks.sweep --device cuda                  # 16 federations of 10 clients, the papers' CNN
    python -m benchmarks.sweep --device cuda --scheme fl-std-dp
    python -m benchmarks.sweep --runs 4 --model logistic      # on a CPU, where runs are joined for this only

One run alone and all runs side by side are timed in turn, each with its run folders, and without evaluations. The time
of a round is that between two rounds of the slowest run, after the first ones (on a GPU they record graphs). The runs
differ in their step size. `largest_difference` is between the weights of a run side by side and alone after two rounds,
relative to the largest weight: later, training on random pictures makes much of any rounding, in every engine.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from benchmarks import workload as w1
from laconic.data.population import Records
from laconic.data.registry import Source
from laconic.sweeps.grid import Grid
from laconic.sweeps.jobs import Job, Watch, Way
from laconic.sweeps.sweep import Sweep

WARM = 12
"""Rounds that are not counted: graphs are recorded, and a private run is saved when it knows its pace."""
PRIVATE = {"clip_norm": w1.CLIP_NORM, "noise_multiplier": w1.NOISE_MULTIPLIER}


def pictures() -> Source:
    """Records shaped as Fashion-MNIST's."""
    train, test = w1.images(6000), w1.images(100, seed=2)
    return Source("pictures", Records(*train), Records(*test), 10, (1, 28, 28), "random pictures")


class Clock(Watch):
    """When the last run finished each round."""

    def __init__(self) -> None:
        self.wall: dict[int, float] = {}
        self.cpu: dict[int, float] = {}

    def row(self, name: str, row: dict[str, Any]) -> None:
        self.wall[row["round"]], self.cpu[row["round"]] = time.perf_counter(), time.process_time()

    def ended(self, name: str, failure: dict[str, Any] | None) -> None:
        assert failure is None, failure

    def each(self, times: dict[int, float]) -> float:
        """Seconds a round; the last one is evaluated, and does not count."""
        last = max(times) - 1
        return (times[last] - times[WARM]) / (last - WARM)


def sweep_of(asked: argparse.Namespace, out: Path) -> Sweep:
    scheme = {"name": asked.scheme, "local_steps": w1.STEPS, "batch_size": w1.RECORDS}
    scheme |= PRIVATE if asked.scheme.endswith("-dp") else {}
    scheme |= {"ratio": 0.005} if asked.scheme.startswith(("fl-top", "fl-bas", "fl-rnd")) else {}
    grid = {
        "run": {"rounds": asked.rounds, "device": asked.device, "eval_every": asked.rounds, "engine": "cohort"},
        "data": {"dataset": "benchmarks.sweep:pictures", "num_clients": 600}
        | ({"public_records": 100} if asked.scheme.startswith("fl-top") else {}),
        "sampler": {"kind": "fixed-size", "cohort_size": asked.clients},
        "model": {"name": asked.model},
        "scheme": scheme,
        "zip": {"local_lr": [w1.LEARNING_RATE * (1 + number / asked.runs) for number in range(asked.runs)]},
        "seeds": 1,
    }
    return Sweep.of(Grid.from_dict(grid), out, side_by_side=True, jobs=asked.runs)


def timed(way: Way, sweep: Sweep, count: int, out: Path) -> Clock:
    """The first runs of a sweep, in folders of their own."""
    clock = Clock()
    way([Job(point.name, point.config, out / point.name) for point in sweep.points[:count]], clock)
    return clock


def difference(one: Path, other: Path) -> float:
    first, second = load_file(one / "model.safetensors"), load_file(other / "model.safetensors")
    largest = max(float(weights.abs().max()) for weights in second.values())
    return max(float((first[name] - second[name]).abs().max()) for name in second) / largest


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--scheme", default="fl-std")
    parser.add_argument("--model", default="cnn")
    parser.add_argument("--runs", type=int, default=16)
    parser.add_argument("--clients", type=int, default=10, help="of each federation, in a round")
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--out", type=Path, help="a JSON file")
    asked = parser.parse_args()
    alone: list[Clock] = []
    together: list[Clock] = []
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder)
        sweep = sweep_of(asked, out)
        way = sweep.way()
        for repeat in range(asked.repeats):
            alone.append(timed(way, sweep, 1, out / f"alone-{repeat}"))
            together.append(timed(way, sweep, asked.runs, out / f"together-{repeat}"))
        short = sweep_of(argparse.Namespace(**vars(asked) | {"rounds": 2}), out)
        for count, kind in ((1, "alone"), (asked.runs, "together")):
            timed(way, short, count, out / kind)
        name = short.points[0].name
        largest = difference(out / "together" / name, out / "alone" / name)
    result: dict[str, Any] = {
        "runs": asked.runs,
        "clients": asked.clients,
        "scheme": asked.scheme,
        "model": asked.model,
    }
    result["device"] = torch.cuda.get_device_name(asked.device) if asked.device != "cpu" else "cpu"
    for kind in ("wall", "cpu"):
        one, all_ = (
            statistics.median(clock.each(getattr(clock, kind)) for clock in clocks) for clocks in (alone, together)
        )
        result |= {f"{kind}_ms_one": 1e3 * one, f"{kind}_ms_all": 1e3 * all_, f"{kind}_ratio": all_ / one}
    result["largest_difference"] = largest
    text = json.dumps(result, indent=2)
    print(text)
    if asked.out is not None:
        asked.out.write_text(text + "\n")


if __name__ == "__main__":
    main()
