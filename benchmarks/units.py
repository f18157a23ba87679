"""A round of clipped sums of units: one linear layer on sparse and on dense records, and the papers' CNN.

    python -m benchmarks.units [--device cpu|cuda] [--small] [--repeats 20] [--out FOLDER]

Every row is the fastest of some repeats, in milliseconds of the wall clock, and of the processors' time. `without` is
the same round without a clip: the gradient of the whole batch, by autograd. Records are made up. Writes units.csv.
"""

from __future__ import annotations

import argparse
import csv
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call

from benchmarks.machine import machine
from laconic.codecs.base import Codec, Identity
from laconic.codecs.dct import LowPassDCT
from laconic.codecs.subset import FixedRandomSubset
from laconic.data.inputs import SparseRows
from laconic.data.population import Records
from laconic.models.networks import cnn, logistic
from laconic.plan import RoundPlan
from laconic.train.flat import FlatModel
from laconic.train.units import UnitSums

PLAN = RoundPlan(round=1, attempt=0, cohort=np.arange(5), planned_cohort=5.0, run_seed=1, round_seed=2, fingerprint="")
STEPS = 2.0**22
"""Of the grid, for one unit."""
NON_ZEROS = 16
"""In a row of the sparse table, as in diabetes130 (65,038 training records, 597 columns, 45,771 patients)."""


class Case(NamedTuple):
    """What one row measures."""

    name: str
    units: int
    round: Callable[[], object]
    without: Callable[[], object] | None


def cases(device: torch.device, small: bool) -> Iterator[Case]:
    scale = 50 if small else 1
    rng = np.random.default_rng(0)
    count, columns = 65_000 // scale, 597
    rows = sparse_rows(rng, count, columns)
    targets = torch.from_numpy((rng.random(count) < 0.05).astype(np.int64))
    patients = torch.from_numpy(np.unique(rng.integers(0, count * 7 // 10, count), return_inverse=True)[1])
    example = torch.zeros(2, columns), torch.tensor([0, 1])
    model = FlatModel(logistic(input_shape=(columns,), num_classes=2), example=example).to(device)
    records = Records(rows, targets).to(device)
    codecs: tuple[tuple[str, Codec], ...] = (
        ("all weights", Identity()),
        ("a tenth of the weights", FixedRandomSubset(ratio=0.1, train_only_kept=False)),
        ("a tenth of the DCT", LowPassDCT(ratio=0.1, num_chunks=1)),
    )
    for unit, numbers in (("records", None), ("patients", patients.to(device))):
        for name, codec in codecs:
            sums = UnitSums(model, records, numbers)
            yield Case(
                f"linear, {columns} sparse columns, {unit}, {name}", sums.num_units, round_of(sums, model, codec), None
            )
    count, columns = 60_000 // scale, 820
    x = torch.from_numpy(rng.standard_normal((count, columns), dtype=np.float32))
    y = torch.from_numpy(rng.integers(0, 10, count))
    example = torch.zeros(2, columns), torch.tensor([0, 9])
    model = FlatModel(logistic(input_shape=(columns,), num_classes=10), example=example).to(device)
    records = Records(x, y).to(device)
    sums = UnitSums(model, records)
    without = gradient(model, records)
    yield Case(f"linear, {columns} dense columns, 10 classes", count, round_of(sums, model, Identity()), without)
    drawn = torch.zeros(count, dtype=torch.bool)
    drawn[: 600 // scale] = True
    pictures = torch.from_numpy(rng.random((count, 1, 28, 28), dtype=np.float32))
    example = pictures[:2], torch.tensor([0, 9])
    model = FlatModel(cnn(input_shape=(1, 28, 28), num_classes=10), example=example).to(device)
    records = Records(pictures, y).to(device)
    sums = UnitSums(model, records)
    without = gradient(model, records.some(torch.arange(600 // scale, device=device)))
    for name, codec in codecs[:2]:
        ready = round_of(sums, model, codec, drawn.to(device))
        yield Case(f"the papers' CNN, {600 // scale} of {count} records, {name}", 600 // scale, ready, without)


def sparse_rows(rng: np.random.Generator, count: int, columns: int) -> SparseRows:
    """So many columns of each row, half of the values 1 and half real."""
    indices = np.argpartition(rng.random((count, columns), dtype=np.float32), NON_ZEROS, axis=1)[:, :NON_ZEROS]
    values = np.where(rng.random(indices.shape) < 0.5, 1.0, rng.random(indices.shape)).astype(np.float32)
    indptr = torch.arange(count + 1) * NON_ZEROS
    flat = torch.from_numpy(np.sort(indices, axis=1).astype(np.int32).reshape(-1))
    return SparseRows(indptr, flat, columns, torch.from_numpy(values.reshape(-1)))


def round_of(sums: UnitSums, model: FlatModel, codec: Codec, drawn: Tensor | None = None) -> Callable[[], object]:
    return lambda: sums.terms(model.initial, drawn=drawn, codec=codec, plan=PLAN, clip_norm=1.0, grid_units=STEPS / 256)


def gradient(model: FlatModel, records: Records) -> Callable[[], object]:
    """The gradient of the mean loss, as any program computes it."""
    params = {
        n: p.detach().clone().requires_grad_() for n, p in zip(model.names, model.split(model.initial), strict=True)
    }
    x, y = records.inputs, records.targets

    def once() -> object:
        loss = nn.functional.cross_entropy(functional_call(model.module, params, (x,)), y)
        return torch.autograd.grad(loss, list(params.values()))

    return once


def fastest(once: Callable[[], object], repeats: int, device: torch.device) -> tuple[float, float]:
    """(wall clock, processors' time) of the fastest repeat, each by itself, in milliseconds."""
    walls, busy = [], []
    for number in range(repeats + 2):
        wall, processor = time.perf_counter(), time.process_time()
        once()
        if device.type == "cuda":
            torch.cuda.synchronize()
        if number >= 2:
            walls.append(time.perf_counter() - wall)
            busy.append(time.process_time() - processor)
    return 1e3 * min(walls), 1e3 * min(busy)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu", help="cpu or cuda")
    parser.add_argument("--small", action="store_true", help="a fiftieth of the records")
    parser.add_argument("--repeats", type=int, default=20, help="of each round  [20]")
    parser.add_argument("--threads", type=int, help="of torch; else as many as it takes")
    parser.add_argument("--out", type=Path, help="folder for units.csv")
    options = parser.parse_args(arguments)
    if options.threads:
        torch.set_num_threads(options.threads)
    device = torch.device(options.device)
    rows = []
    print(f"{'round':72} {'units':>7} {'wall ms':>9} {'cpu ms':>9} {'without':>9} {'ratio':>6}")
    for case in cases(device, options.small):
        wall, busy = fastest(case.round, options.repeats, device)
        without = fastest(case.without, options.repeats, device)[0] if case.without else None
        ratio = None if without is None else wall / without
        shown = [f"{value:.2f}" if value is not None else "" for value in (wall, busy, without, ratio)]
        print(f"{case.name:72} {case.units:7} {shown[0]:>9} {shown[1]:>9} {shown[2]:>9} {shown[3]:>6}", flush=True)
        rows.append([case.name, case.units, *shown])
    about = machine(options.device)
    print(about)
    if options.out is not None:
        options.out.mkdir(parents=True, exist_ok=True)
        with (options.out / "units.csv").open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(["round", "units", "wall_ms", "cpu_ms", "without_clip_ms", "ratio", "machine"])
            writer.writerows([*row, about] for row in rows)


if __name__ == "__main__":
    main()
