"""W9: rounds in which everybody takes part, of linear models on a CPU, against an earlier checkout.

    git worktree add ../before 0f3c455
    LACONIC_BEFORE=../before python -m benchmarks --only w9 --out docs/results/performance/everybody.json

A row is one workload. Its two contenders take turns: this checkout, and the one that LACONIC_BEFORE names (`src` of it
is on the path of its process). Rounds are those of `laconic.run` with run folder, noise, charges, ε and an evaluation
after each. Records are made up: a table as health records come, sparse with 70 columns, and pictures behind features.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

import laconic
from benchmarks.contest import ROOT, Process, interleaved, module
from benchmarks.pacing import Pacer
from benchmarks.processes import peak_megabytes
from benchmarks.settings import Settings
from laconic.data.inputs import SparseRows
from laconic.data.population import PooledPopulation, Records
from laconic.models.networks import logistic

ROUNDS, DELTA = 1000, 1e-5
BEFORE = "LACONIC_BEFORE"


class Workload(NamedTuple):
    """Clients with so many records, alike (`spread` 0) or about so many."""

    about: str
    clients: int
    records: int
    columns: int
    classes: int
    unit: str
    steps: int
    sparse: bool


WORKLOADS = {
    "table": Workload("table, clients", 1000, 7, 70, 2, "client", 5, True),
    "table-records": Workload("table, records inside clients", 1000, 7, 70, 2, "record", 1, True),
    "pictures": Workload("pictures behind features, clients", 6000, 10, 820, 10, "client", 10, False),
    "pictures-records": Workload(
        "pictures behind features, records inside clients", 6000, 10, 820, 10, "record", 1, False
    ),
}


def run(settings: Settings) -> dict[str, Any]:
    """A part of `python -m benchmarks`. Of every contender the fastest turn counts: other load only adds to it."""
    before = os.environ.get(BEFORE)
    rows, skipped = [], {} if before else {"before": f"{BEFORE} names no checkout"}
    for name, work in WORKLOADS.items():
        who = {"now": ROOT / "src"} | ({"before": Path(before).resolve() / "src"} if before else {})
        contenders = [
            Process(
                f"{name}, {when}",
                "laconic",
                module("w9_everybody", json.dumps({"name": name, "quick": settings.quick})),
                env={"PYTHONPATH": os.pathsep.join([str(source), str(ROOT)])},
            )
            for when, source in who.items()
        ]
        count = 1 if settings.quick else 2 + 2 * work.sparse
        answers, lost = interleaved(contenders, repeats=settings.repeats, count=count)
        skipped |= lost
        found = {
            one.name.rpartition(", ")[2]: {
                "seconds": [answer["seconds"] for answer in answers[one.name]],
                "processor": [answer["processor"] for answer in answers[one.name]],
                "peak_mb": max(answer["peak_mb"] for answer in answers[one.name]),
                "start_mb": answers[one.name][0]["start_mb"],
                "data_mb": answers[one.name][0]["data_mb"],
            }
            for one in contenders
            if one.name in answers
        }
        rows.append({"name": name, "about": work.about, "clients": work.clients} | found)
    return {
        "title": "W9: everybody takes part, linear models",
        "about": "Milliseconds of a whole round of `laconic.run`: training, noise on integers, charges, ε, rows of the"
        " run folder, and an evaluation. Table: 1,000 clients × about 7 sparse rows of 70 columns, 2 classes, 5 local"
        " steps on batches of 10. Pictures: 6,000 clients × 10, 820 features, 10 classes, 10 local steps. With records"
        " inside clients, one clipped sum. Turns with an earlier checkout: the fastest of each, in brackets the median,"
        " then the processor's time of all threads in the turn that took least. Memory is the peak above what the"
        " process had with torch, Laconic and the data in it.",
        "rows": rows,
        "tables": [_table(rows)],
        "skipped": skipped,
    }


def _table(rows: list[dict[str, Any]]) -> dict[str, Any]:
    def milliseconds(found: dict[str, Any]) -> str:
        seconds, busy = sorted(found["seconds"]), min(found["processor"])
        return f"{1e3 * seconds[0]:,.1f} ({1e3 * seconds[len(seconds) // 2]:,.1f}); {1e3 * busy:,.1f}"

    def memory(found: dict[str, Any]) -> str:
        return f"{found['peak_mb'] - found['start_mb']:,.0f}"

    cells = []
    for row in rows:
        now, before = row.get("now"), row.get("before")
        if now is None:
            continue
        faster = f"{min(before['seconds']) / min(now['seconds']):.1f}×" if before else ""
        cells.append(
            [
                row["about"],
                milliseconds(before) if before else "",
                milliseconds(now),
                faster,
                f"{now['data_mb']:,.0f}",
                memory(before) if before else "",
                memory(now),
            ]
        )
    headings = ["what", "before, ms", "now, ms", "faster", "data, MB", "before, MB more", "now, MB more"]
    return {"caption": "Fastest turn (median); processor's time:", "headings": headings, "rows": cells}


def main(name: str, quick: bool = False) -> None:
    work = WORKLOADS[name]
    run_rounds(work, 20, rounds=2, observer=lambda row: None)  # what is imported is no memory of the run
    data = made_up(work, 20 if quick else work.clients)
    start_mb, data_mb = peak_megabytes(os.getpid()), 4 * len(data[1]) * work.columns / 1e6
    done, busy = 0, time.process_time()

    def extra() -> dict[str, float]:
        nonlocal done, busy
        seconds = (time.process_time() - busy) / max(1, done)
        done, busy = 0, time.process_time()
        return {"start_mb": start_mb, "data_mb": data_mb, "processor": seconds}

    pacer = Pacer(warmups=3, extra=extra)

    def observer(row: dict[str, Any]) -> None:
        nonlocal done
        done += 1
        if not pacer.round_done():
            raise KeyboardInterrupt

    with contextlib.suppress(KeyboardInterrupt):
        run_rounds(work, 20 if quick else work.clients, rounds=ROUNDS, observer=observer, data=data)


Data = tuple[Any, torch.Tensor, Any, Any, torch.Tensor]
"""Inputs, targets, who holds which rows; inputs and targets of the test records."""


def made_up(work: Workload, clients: int) -> Data:
    draw, rows, test = np.random.default_rng(0), clients * work.records, 1500
    inputs = torch.from_numpy(draw.standard_normal((rows + test, work.columns), dtype=np.float32))
    truth = torch.from_numpy(draw.standard_normal((work.columns, work.classes), dtype=np.float32))
    noise = torch.from_numpy(draw.standard_normal((rows + test, work.classes), dtype=np.float32))
    targets = (inputs @ truth / work.columns**0.5 + noise).argmax(1)
    if not work.sparse:
        return inputs[:rows], targets[:rows], np.arange(rows).reshape(clients, -1), inputs[rows:], targets[rows:]
    owners = draw.integers(0, clients, rows)
    owners[:clients] = np.arange(clients)  # each has one row or more
    held = [np.flatnonzero(owners == client) for client in range(clients)]
    table, tested = (SparseRows.from_dense(part) for part in (inputs[:rows], inputs[rows:]))
    return table, targets[:rows], held, tested, targets[rows:]


def run_rounds(
    work: Workload, clients: int, *, rounds: int, observer: Callable[[dict[str, Any]], None], data: Data | None = None
) -> None:
    inputs, targets, held, *test = data or made_up(work, clients)
    if work.unit == "client":
        train = {"local_lr": 0.1, "local_steps": work.steps, "batch_size": 10}
        scheme = laconic.schemes.fl_std_dp(**train, clip_norm=0.5, noise_multiplier=10.0)
    else:
        scheme = laconic.schemes.fl_std_dp(unit="record", num_units=len(targets), clip_norm=0.5, noise_multiplier=10.0)
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        laconic.run(
            scheme,
            model=logistic(input_shape=(work.columns,), num_classes=work.classes),
            clients=PooledPopulation(Records(inputs, targets), held),
            test=Records(*test),
            sampling_rate=1.0,
            rounds=rounds,
            delta=DELTA,
            out=f"{folder}/run",
            observer=observer,
            checkpoint_seconds=3600,
        )


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
