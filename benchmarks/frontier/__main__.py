"""Accuracy against ε and against bytes on Fashion-MNIST, with the scattering front end and a linear head.

    python -m benchmarks.frontier --out FOLDER [--device cuda] [--data-dir DIR] [--stage choose|final]
    python -m benchmarks.frontier.report FOLDER

6,000 clients of 10 pictures, 100 a round on average (Poisson), δ = 1e-5, the tight accountant. Stage `choose` compares
settings on held-out clients; stage `final` runs the chosen ones with three other seeds and all 6,000 clients, and looks
at the test pictures once, after the last round. Without --stage both are done.

Every finished run is a row of FOLDER/runs.csv, and what is there is not run again, so the command can be stopped and
repeated. Features are computed on --device and shared by all runs through files. A head is so small that a
GPU would mostly start kernels, so heads are trained by a process of one thread for every core, and only --gpu-workers
of them use the GPU. --quick does the same with the digits inside scikit-learn, to see that it works.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.frontier.choose import choose, read_choices, write_choices
from benchmarks.frontier.runs import Runs
from benchmarks.frontier.settings import QUICK, TEST_SEEDS, World


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.frontier", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--features", type=Path, help="where features are kept, up to 3 GB  [a folder in --out]")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--data-dir")
    parser.add_argument("--stage", choices=["choose", "final"])
    parser.add_argument("--workers", type=int, default=os.cpu_count(), help="processes; 0: none but this one  [cores]")
    parser.add_argument("--gpu-workers", type=int, default=3, help="how many of them use --device cuda  [3]")
    parser.add_argument(
        "--brief", action="store_true", help="compare features, rounds and steps only: a seventh of the comparisons"
    )
    parser.add_argument("--quick", action="store_true")
    asked = parser.parse_args(arguments)
    started, file = time.perf_counter(), asked.out / "chosen.json"
    world = QUICK if asked.quick else World()
    with Runs(
        world,
        asked.out,
        features=asked.features or asked.out / "features",
        data_dir=asked.data_dir,
        device=asked.device,
        workers=asked.workers,
        gpu_workers=asked.gpu_workers,
    ) as runs:
        if asked.stage != "final":
            write_choices(file, world, choose(runs, brief=asked.brief))
        elif not file.exists():
            parser.error(f"there is no {file}: run --stage choose first")
        if asked.stage != "choose":
            print("test pictures", flush=True)
            chosen = read_choices(file)[1].values()
            runs.accuracies((setting, epsilon, seed) for setting, epsilon in chosen for seed in TEST_SEEDS)
    print(f"{len(runs.rows)} runs in {asked.out}, {time.perf_counter() - started:.0f} s", flush=True)


if __name__ == "__main__":
    main()
