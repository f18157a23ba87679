"""Accuracy against the server's ε: chooses settings with held-out pictures, then runs each with three seeds.

    python -m benchmarks.server_frontier --dataset fashion-mnist --features FOLDER [--data-dir DIR]
    python -m benchmarks.server_frontier --write           the page from the results

Results go to docs/results/frontier-server/ and are kept: a run that was made is not made again. FOLDER holds features,
which are large.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import torch

from benchmarks.frontier.settings import CHOOSING_SEEDS, TEST_SEEDS
from benchmarks.server_frontier import runs
from benchmarks.server_frontier.choose import Chooser
from benchmarks.server_frontier.features import write_features
from benchmarks.server_frontier.page import write_page
from benchmarks.server_frontier.worlds import LIMITS, WORLDS

OUT = Path("docs/results/frontier-server")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.server_frontier",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--dataset", choices=list(WORLDS))
    parser.add_argument("--features", type=Path, help="Folder for features.")
    parser.add_argument("--data-dir")
    parser.add_argument("--epsilons", type=float, nargs="+", help="Only these.")
    parser.add_argument("--limits", type=int, nargs="+", default=[LIMITS[0]])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--write", action="store_true")
    asked = parser.parse_args(arguments)
    if asked.write:
        write_page(asked.out)
        return
    if asked.dataset is None or asked.features is None:
        parser.error("give --dataset and --features, or --write")
    torch.set_num_threads(asked.threads)
    for folder in (asked.features, asked.out):
        folder.mkdir(parents=True, exist_ok=True)
    world, file = WORLDS[asked.dataset], asked.out / f"{asked.dataset}-runs.csv"
    held = write_features(world, CHOOSING_SEEDS[0], asked.features, asked.data_dir)
    chooser = Chooser(world, held, asked.out / f"{asked.dataset}-trials.csv")
    done = {runs.key_in(row) for row in runs.read(file)}
    for limit in asked.limits:
        for epsilon in asked.epsilons or world.epsilons:
            if all(runs.key_of(world, limit, epsilon, seed) in done for seed in TEST_SEEDS):
                continue
            setting, judged = chooser.best(epsilon, limit)
            print(f"{world.dataset}, ε = {epsilon:g}, {limit:,} bytes: {setting}, held-out {judged:.4f}", flush=True)
            for seed in TEST_SEEDS:
                if runs.key_of(world, limit, epsilon, seed) in done:
                    continue
                features = write_features(world, seed, asked.features, asked.data_dir)
                row = {"dataset": world.dataset, "limit": limit, "asked": epsilon, "seed": seed} | setting.row()
                row |= {"held_out": f"{judged:.4f}"} | runs.run(setting, epsilon, seed, features)
                runs.keep(file, row)
                print(f"  seed {seed}: {row['accuracy']:.4f}, {row['seconds']} s", flush=True)


if __name__ == "__main__":
    main()
