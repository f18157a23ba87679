"""Runs of few rounds with everyone in each, for the fit: which steps are too long, and what momentum does.

    python -m benchmarks.advise.trials --out FOLDER [--data-dir DIR] [--device cuda]

writes FOLDER/trials.csv. The features are those of `python -m benchmarks.advise --dataset fashion-mnist --out FOLDER`.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Sequence
from pathlib import Path

import torch

from benchmarks.advise.__main__ import WORLDS, question_for, write_features
from benchmarks.advise.heads import Heads, Rule
from benchmarks.frontier.features import Features
from laconic.advice.question import CLIP_NORM, RIDGE
from laconic.advice.ranking import server_lr_of
from laconic.advice.search import against_server

FEATURES, ROUNDS, MOMENTA, REACHES = (467, 233), (5, 10, 20, 40), (0.0, 0.5, 0.7, 0.85), (20, 40, 60, 85, 120)
COLUMNS = ["features", "rounds", "epsilon", "momentum", "reach", "clients", "accuracy"]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.advise.trials", description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--data-dir")
    parser.add_argument("--device", default="cpu")
    asked = parser.parse_args(arguments)
    question, path = question_for("fashion-mnist"), asked.out / "fashion-mnist-held-out.pt"
    if not path.exists():
        device = torch.device(asked.device)
        write_features(path, WORLDS["fashion-mnist"], seed=0, data_dir=asked.data_dir, device=device)
    with (asked.out / "trials.csv").open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(COLUMNS)
        for count in FEATURES:
            features = Features(path, count, RIDGE)
            heads = Heads(features.records("clients"), features.records("judge"), records=10)
            for rounds in ROUNDS:
                sigma = against_server(question.epsilon, question.delta, rounds)
                for momentum in (m for m in MOMENTA if 1 / (1 - m) <= rounds / 2 + 0.6):
                    for reach in REACHES:
                        step = server_lr_of(reach, rounds=rounds, momentum=momentum, clip_norm=CLIP_NORM)
                        rule = Rule(
                            rounds=rounds,
                            sampling_rate=1.0,
                            cap=None,
                            clip_norm=CLIP_NORM,
                            server_lr=step,
                            momentum=momentum,
                            mean_noise=sigma * CLIP_NORM / question.num_clients,
                        )
                        accuracy = heads.accuracy(heads.train(rule, 0))
                        row = [count, rounds, question.epsilon, momentum, reach, heads.clients, f"{accuracy:.4f}"]
                        writer.writerow(row)
                        stream.flush()


if __name__ == "__main__":
    main()
