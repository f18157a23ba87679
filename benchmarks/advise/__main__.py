"""Does `laconic advise` rank settings as runs do? Ten settings of one ε, run and ranked.

    python -m benchmarks.advise --dataset digits --out FOLDER
    python -m benchmarks.advise --dataset fashion-mnist --out FOLDER [--device cuda] [--data-dir DIR]

A linear layer behind the front end of the printed command, projected with dead leaves. The ten settings differ in
cohort, rounds and features and keep one ε against the server; noise, participations, momentum and step are those that
`laconic advise` would give them. They were written down before they were run. `--judge held-out` (the default) gives a
tenth of the training pictures to no client and judges with them, `--judge test` with the test pictures.
FOLDER/DATASET.csv has a row for every run. Features are computed once and kept in FOLDER.
"""

from __future__ import annotations

import argparse
import csv
import statistics
import time
from collections.abc import Sequence
from pathlib import Path

import torch
from scipy.stats import spearmanr

from benchmarks.advise.heads import Heads, Rule
from benchmarks.frontier.features import Features, leaves_of, load_data
from benchmarks.frontier.settings import World
from laconic.advice.answer import FRONT_END, exact
from laconic.advice.question import RIDGE, Question, Setting
from laconic.advice.search import candidate
from laconic.data.inputs import dense
from laconic.data.population import Records, gather
from laconic.features.blocks import in_blocks
from laconic.features.joined import JoinedFrontEnd
from laconic.features.kinds import Wanted
from laconic.features.projection import leading_directions

WORLDS = {
    "digits": World(dataset="digits", clients=479, images=2000, most_features=200),
    "fashion-mnist": World(images=6000),
}
EPSILON = {"digits": 4.0, "fashion-mnist": 1.0}
SETTINGS = {
    "digits": [
        (479, 20, 100),
        (479, 20, 25),
        (479, 5, 50),
        (479, 60, 50),
        (240, 20, 100),
        (120, 20, 50),
        (48, 40, 100),
        (48, 100, 25),
        (120, 40, 12),
        (24, 100, 50),
    ],
    "fashion-mnist": [
        (6000, 20, 543),
        (6000, 10, 467),
        (6000, 20, 233),
        (6000, 40, 116),
        (6000, 5, 820),
        (3000, 20, 467),
        (1500, 40, 233),
        (600, 40, 543),
        (600, 100, 58),
        (300, 40, 116),
    ],
}
"""(clients in a round, rounds, features)."""
COLUMNS = ["cohort", "rounds", "features", "sigma", "participations", "momentum", "server_lr", "noise_ratio"]
COLUMNS += ["expected_error", "seed", "judge", "accuracy"]


def write_features(path: Path, world: World, *, seed: int, data_dir: str | None, device: torch.device) -> None:
    """The principal components of clients and judge, as `benchmarks.frontier.features.Features` reads them."""
    federation, _ = load_data(world, "dead-leaves", seed, data_dir)
    judge = federation.holdout if federation.holdout is not None else federation.test
    assert judge is not None
    leaves = torch.from_numpy(leaves_of(world, seed, federation.input_shape))
    front_end = Wanted(name=FRONT_END).made(federation.input_shape, public=leaves, source="dead leaves")
    assert isinstance(front_end, JoinedFrontEnd)
    front_end.balance(leaves, device)
    mean, values, vectors = leading_directions(in_blocks(front_end, leaves, device).flatten(1), world.most_features)

    def components(inputs: torch.Tensor) -> torch.Tensor:
        return torch.cat(
            [(in_blocks(front_end, x, device).flatten(1) - mean) @ vectors for x in inputs.split(2048)]
        ).cpu()

    everyone = gather(federation.population, list(range(federation.population.num_clients)), torch.device("cpu"))
    real = torch.arange(everyone.inputs.shape[1]) < torch.from_numpy(everyone.sizes)[:, None]
    tensors = {"values": values.cpu(), "sizes": torch.from_numpy(everyone.sizes)}
    tensors |= {"clients_inputs": components(everyone.inputs[real]), "clients_targets": everyone.targets[real]}
    tensors |= {"judge_inputs": components(dense(judge.inputs)), "judge_targets": judge.targets}
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.save(tensors, path)


def accuracy(setting: Setting, question: Question, path: Path, *, seeds: Sequence[int]) -> list[float]:
    """Train once for every seed and judge after the last round.

    Where a tenth of the clients is held out, the others take part as often, and the noise in the mean is that of the
    whole federation. It is continuous, as strong as the integer noise of a run.
    """
    assert setting.features is not None and question.records is not None
    features = Features(path, setting.features, RIDGE)
    heads = Heads(
        _whole(features.records("clients"), question.records), features.records("judge"), records=question.records
    )
    rule = Rule(
        rounds=setting.rounds,
        sampling_rate=setting.sampling_rate,
        cap=setting.participations if setting.sampling_rate < 1 else None,
        clip_norm=setting.clip_norm,
        server_lr=setting.server_lr,
        momentum=setting.momentum,
        precondition=setting.precondition,
        mean_noise=setting.noise_multiplier * setting.clip_norm / setting.cohort,
    )
    return [heads.accuracy(heads.train(rule, seed)) for seed in seeds]


def _whole(records: Records, each: int) -> Records:
    """Without the records left over that make no whole client."""
    count = len(records.targets) // each * each
    return Records(records.inputs[:count], records.targets[:count])


def question_for(dataset: str) -> Question:
    world = WORLDS[dataset]
    records = {"digits": 3, "fashion-mnist": 10}[dataset]
    return Question(num_clients=world.clients, classes=10, records=records, epsilon=EPSILON[dataset])


def measured(
    dataset: str, out: Path, *, seeds: Sequence[int], data_dir: str | None, device: str, judge: str
) -> list[dict[str, object]]:
    """A row for every setting and seed; those that are in the file already are not run again."""
    question, world, file = question_for(dataset), WORLDS[dataset], out / f"{dataset}.csv"
    data_seed = 0 if judge == "held-out" else 1
    path = out / f"{dataset}-{judge}.pt"
    if not path.exists():
        write_features(path, world, seed=data_seed, data_dir=data_dir, device=torch.device(device))
    rows: list[dict[str, object]] = []
    if file.exists():
        with file.open(encoding="utf-8") as stream:
            rows = list(csv.DictReader(stream))
    done = {tuple(str(row[name]) for name in ("cohort", "rounds", "features", "seed", "judge")) for row in rows}
    for cohort, rounds, count in SETTINGS[dataset]:
        setting = exact(question, candidate(question, cohort=cohort, rounds=rounds, features=count))
        missing = [s for s in seeds if (str(cohort), str(rounds), str(count), str(s), judge) not in done]
        started = time.perf_counter()
        for seed, found in zip(missing, accuracy(setting, question, path, seeds=missing), strict=True):
            rows.append(
                {
                    "cohort": cohort,
                    "rounds": rounds,
                    "features": count,
                    "sigma": setting.noise_multiplier,
                    "participations": setting.participations,
                    "momentum": setting.momentum,
                    "server_lr": f"{setting.server_lr:.6g}",
                    "noise_ratio": f"{setting.noise_ratio:.4g}",
                    "expected_error": f"{setting.expected_error:.4f}",
                    "seed": seed,
                    "judge": judge,
                    "accuracy": f"{found:.4f}",
                }
            )
        if missing:
            print(f"{cohort:5d} {rounds:4d} {count:4d}: {rows[-1]}, {time.perf_counter() - started:.0f} s", flush=True)
        with file.open("w", newline="", encoding="utf-8") as stream:
            writer = csv.DictWriter(stream, COLUMNS, lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
    return rows


def agreement(rows: Sequence[dict[str, object]]) -> float:
    """Spearman's rank correlation of the expected error and the measured one, averaged over the seeds."""
    by_setting: dict[tuple[object, ...], list[float]] = {}
    expected: dict[tuple[object, ...], float] = {}
    for row in rows:
        key = (str(row["cohort"]), str(row["rounds"]), str(row["features"]))
        by_setting.setdefault(key, []).append(1 - float(str(row["accuracy"])))
        expected[key] = float(str(row["expected_error"]))
    means = [statistics.mean(errors) for errors in by_setting.values()]
    return float(spearmanr([expected[key] for key in by_setting], means).statistic)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.advise", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--dataset", choices=list(WORLDS), default="digits")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--judge", choices=["held-out", "test"], default="held-out")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--data-dir")
    asked = parser.parse_args(arguments)
    asked.out.mkdir(parents=True, exist_ok=True)
    rows = measured(
        asked.dataset, asked.out, seeds=asked.seeds, data_dir=asked.data_dir, device=asked.device, judge=asked.judge
    )
    rows = [row for row in rows if row["judge"] == asked.judge]
    print(f"rank correlation of expected and measured error: {agreement(rows):.3f} ({len(rows)} runs)")


if __name__ == "__main__":
    main()
