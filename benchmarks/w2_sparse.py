"""W2: an MLP on sparse records (7280-200-200-1, 100 clients × 24 rows of about 30 ones × 40 steps), seconds a round.

    python benchmarks/w2_sparse.py [--threads 2] [--repeats 3] [--json]

Contenders take turns, since the load of a shared machine moves all of them: a plain dense loop with `torch.optim`,
Laconic's dense engine one by one, and the engine for sparse records. Evaluation is left out. The updates of all of
them are summed and compared with those of the plain loop.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import time
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn

from laconic.data.inputs import SparseRows
from laconic.data.population import PooledPopulation, Records, gather
from laconic.models.networks import mlp
from laconic.streams import Streams
from laconic.train.engines.choose import choose_engine
from laconic.train.engines.engine import Engine, Task
from laconic.train.flat import FlatModel
from laconic.train.local import LocalSGD


def sparse_records(count: int, columns: int, ones: int, seed: int = 0) -> Records:
    """Rows of about so many ones; the frequency of a column falls like 1/rank, as that of drugs and diagnoses does."""
    rng = np.random.default_rng(seed)
    share = 1 / np.arange(1, columns + 1) ** 0.9
    rows = [np.unique(rng.choice(columns, size=round(ones * 1.1), p=share / share.sum())) for _ in range(count)]
    indptr = np.cumsum([0, *(len(row) for row in rows)])
    inputs = SparseRows(torch.from_numpy(indptr), torch.from_numpy(np.concatenate(rows).astype(np.int32)), columns)
    return Records(inputs, torch.from_numpy(rng.integers(0, 2, count)))


def plain_loop(module: nn.Module, task: Task) -> Tensor:
    """Each client in turn on its dense rows, as one would write it."""
    before = [p.detach().clone() for p in module.parameters()]
    total = torch.zeros(sum(p.numel() for p in before))
    for client in task.clients:
        with torch.no_grad():
            for param, start in zip(module.parameters(), before, strict=True):
                param.copy_(start)
        records = gather(task.population, [int(client)], torch.device("cpu"))
        inputs, targets = records.inputs[0], records.targets[0].float()
        optimizer = torch.optim.SGD(module.parameters(), lr=task.train.local_lr)
        for _ in range(task.train.local_steps or 0):
            optimizer.zero_grad()
            nn.functional.binary_cross_entropy_with_logits(module(inputs), targets).backward()
            optimizer.step()
        after = zip(module.parameters(), before, strict=True)
        total += torch.cat([(p.detach() - start).reshape(-1) for p, start in after])
    with torch.no_grad():
        for param, start in zip(module.parameters(), before, strict=True):
            param.copy_(start)
    return total


def by_engine(engine: Engine, task: Task) -> Tensor:
    total = torch.zeros_like(task.weights)
    for some in engine.updates(task):
        total += some.values.sum(0)
    return total


def timed(contenders: dict[str, Callable[[], Tensor]], repeats: int) -> tuple[dict[str, list[float]], dict[str, float]]:
    """(seconds of each turn, largest difference from the first contender's sum relative to its largest entry)."""
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    sums = {}
    for turn in range(repeats + 1):
        for name, contender in contenders.items():
            started = time.perf_counter()
            sums[name] = contender()
            if turn:  # the first turn warms up
                seconds[name].append(time.perf_counter() - started)
    reference = next(iter(sums.values()))
    scale = float(reference.abs().max())
    return seconds, {name: float((total - reference).abs().max()) / scale for name, total in sums.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=100)
    parser.add_argument("--rows", type=int, default=24, help="records per client")
    parser.add_argument("--columns", type=int, default=7280)
    parser.add_argument("--ones", type=int, default=30, help="ones per record, about")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--chunk", type=int, help="clients at once in the sparse engine")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)

    records = sparse_records(options.clients * options.rows, options.columns, options.ones)
    population = PooledPopulation(records, np.arange(len(records.targets)).reshape(options.clients, -1))
    module = mlp(input_shape=(options.columns,), num_classes=2)
    example = (records.inputs[:2].dense(), records.targets[:2])
    model = FlatModel(module, example=example)
    task = Task(
        train=LocalSGD(local_lr=0.1, local_steps=options.steps),
        weights=model.initial,
        population=population,
        clients=np.arange(options.clients),
        streams=Streams(0),
        path=("w2",),
    )
    cpu = torch.device("cpu")
    engines = {
        "laconic one-by-one, dense": choose_engine("one-by-one", model, cpu, example, sparse=True),
        "laconic sparse-first": choose_engine("sparse-first", model, cpu, example, chunk=options.chunk, sparse=True),
    }
    contenders: dict[str, Callable[[], Tensor]] = {"plain dense loop": lambda: plain_loop(module, task)}
    contenders |= {name: lambda e=engine: by_engine(e, task) for name, engine in engines.items()}
    seconds, differences = timed(contenders, options.repeats)

    medians = {name: statistics.median(times) for name, times in seconds.items()}
    plain = medians["plain dense loop"]
    report = {
        "workload": {key: value for key, value in vars(options).items() if key != "json"},
        "machine": platform.processor() or platform.machine(),
        "versions": {"python": platform.python_version(), "torch": torch.__version__, "numpy": np.__version__},
        "seconds_per_round": {name: round(median, 4) for name, median in medians.items()},
        "all_seconds": {name: [round(t, 4) for t in times] for name, times in seconds.items()},
        "speedup_over_plain_loop": {name: round(plain / median, 2) for name, median in medians.items()},
        "relative_difference_of_the_sum": differences,
    }
    if options.json:
        print(json.dumps(report))
        return
    print(f"{options.clients} clients × {options.rows} rows × {options.steps} steps, {options.threads} threads")
    for name, median in medians.items():
        print(f"{name:<28} {median:8.3f} s a round   {plain / median:6.2f}×   differs by {differences[name]:.0e}")


if __name__ == "__main__":
    main()
