"""`python -m benchmarks.auto [--jobs 2] [--tables 30] [--data ../shared/data]`: see the package."""

from __future__ import annotations

import argparse
import csv
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path

from benchmarks.auto.compare import EPSILONS, FIELDS, FIRST, NAMED, one

FOLDER = Path("docs/results/auto")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--tables", type=int, default=30)
    parser.add_argument("--first", type=int, default=FIRST)
    parser.add_argument("--data")
    parser.add_argument("--no-named", action="store_true")
    parser.add_argument("--out", type=Path, default=FOLDER / "runs.csv")
    given = parser.parse_args()
    names = [] if given.no_named else list(NAMED)
    names += [f"random {given.first + number}" for number in range(given.tables)]
    done = set()
    if given.out.exists():
        with open(given.out, newline="") as stream:
            done = {(row["table"], float(row["epsilon"])) for row in csv.DictReader(stream)}
    tasks = [(name, epsilon, given.data) for name in names for epsilon in EPSILONS if (name, epsilon) not in done]
    given.out.parent.mkdir(parents=True, exist_ok=True)
    with (
        open(given.out, "a", newline="") as stream,
        ProcessPoolExecutor(given.jobs, mp_context=get_context("spawn")) as pool,
    ):
        writer = csv.DictWriter(stream, FIELDS)
        if not stream.tell():
            writer.writeheader()
        for done_one in as_completed([pool.submit(one, task) for task in tasks]):
            row = done_one.result()
            writer.writerow({k: f"{v:.4f}" if isinstance(v, float) else v for k, v in row.items()})
            stream.flush()
            print(f"{row['table']}  ε {row['epsilon']:g}  auto {row['auto']:.4f}  best {row['best']:.4f}", flush=True)


if __name__ == "__main__":
    main()
