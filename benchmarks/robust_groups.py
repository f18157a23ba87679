"""What groups, their median and group testing stand: accuracy by attackers, groups, ε and boost.

    python -m benchmarks.robust_groups acceptance --features FILE   # Fashion-MNIST behind the front end, 6,000 clients
    python -m benchmarks.robust_groups head --features FILE         # the map of the same head
    python -m benchmarks.robust_groups digits                       # FL-STD-DP, FL-TOP-DP, FL-SIGN-DP on the digits

Everybody takes part in every round. The ε is that against the server, for honest clients if all added their noise.
Every finished run is appended to runs.csv, and one that is there already is not repeated. The features of the pictures
are computed once and kept in FILE. `--device cuda` trains on a GPU. LACONIC_DATA says where Fashion-MNIST is.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.contest import note
from benchmarks.frontier.features import Features, write_features
from benchmarks.frontier.settings import World
from laconic import schemes
from laconic.adversary.attack import Attack
from laconic.adversary.attacks.gradient_ascent import GradientAscent
from laconic.adversary.attacks.labels import InBackdoor
from laconic.aggregate.base import Aggregator
from laconic.aggregate.krum import MultiKrum
from laconic.aggregate.medians import Median
from laconic.experiment.experiment import Experiment
from laconic.experiment.identity import choose_device
from laconic.privacy.accounting.budget import Budget, calibrate_noise
from laconic.privacy.accounting.sampling import Poisson
from laconic.runner.outcome import RunResult
from laconic.runner.run import Run as Simulation
from laconic.scheme import Scheme
from laconic.settings.build import settle
from laconic.settings.config import RunConfig

FOLDER = Path("docs/results/robust-groups")
EVERYBODY = Poisson(sampling_rate=1.0)
ATTACKS: dict[str, Callable[..., Attack]] = {
    "gradient-ascent": GradientAscent,
    "in-backdoor": lambda **options: InBackdoor(source=5, target=7, **options),
}
DEFENCES = ("none", "median", "krum", "testing")


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One run: a federation, an attack and a defence. Without attackers, `boost` is 1."""

    part: str
    scheme: str
    epsilon: float
    attackers: int = 0
    attack: str = "gradient-ascent"
    boost: float = 1.0
    defence: str = "none"
    groups: int = 1
    seed: int = 1

    @property
    def key(self) -> tuple[str, ...]:
        return tuple(str(getattr(self, field.name)) for field in fields(Cell))


@dataclass(frozen=True, kw_only=True)
class Row(Cell):
    """One line of runs.csv: the last round, and what group testing found. `found_by` is the round of the last one."""

    sigma: float
    accuracy: float
    class_accuracy: float | None
    attack_accuracy: float | None
    attackers_excluded: int
    honest_excluded: int
    found_by: int | None
    rounds_of_one_sum: int
    diverged: bool
    seconds: float


def acceptance() -> Iterator[Cell]:
    """What must be true of 6,000 clients and 6 attackers at ε = 1; first the run without an attack."""
    base = Cell(part="head", scheme="fl-std-dp", epsilon=1.0)
    yield base
    for attack in ATTACKS:
        attacked = replace(base, attackers=6, attack=attack, boost=1000.0)
        yield replace(attacked, defence="testing", groups=64)
        yield attacked
        yield replace(attacked, defence="krum", groups=16)
        yield replace(attacked, defence="median", groups=16)


def head() -> Iterator[Cell]:
    """The map of the head: defences against boosts, attackers and ε."""
    base = Cell(part="head", scheme="fl-std-dp", epsilon=1.0)
    for boost in (100.0, 10.0):
        attacked = replace(base, attackers=6, boost=boost)
        yield replace(attacked, defence="testing", groups=64)
        yield attacked
        yield replace(attacked, defence="median", groups=16)
    for attackers in (24, 100):
        attacked = replace(base, attackers=attackers, boost=1000.0)
        yield replace(attacked, defence="testing", groups=4 * attackers)
        yield replace(attacked, defence="median", groups=4 * attackers)
    for epsilon in (4.0, 0.25):
        yield replace(base, epsilon=epsilon)
        attacked = replace(base, epsilon=epsilon, attackers=6, boost=1000.0)
        yield replace(attacked, defence="testing", groups=64)
        yield replace(attacked, defence="median", groups=16)


def digits() -> Iterator[Cell]:
    """A small federation with each of three schemes."""
    for epsilon, scheme in itertools.product((16.0, 4.0), ("fl-std-dp", "fl-top-dp", "fl-sign-dp")):
        base = Cell(part="digits", scheme=scheme, epsilon=epsilon)
        yield base
        for attackers, boost in itertools.product((2, 8), (5.0, 50.0, 500.0)):
            attacked = replace(base, attackers=attackers, boost=boost)
            yield attacked
            for groups, defence in itertools.product((20, 40), ("median", "testing")):
                yield replace(attacked, defence=defence, groups=groups)


PARTS: dict[str, Callable[[], Iterator[Cell]]] = {"acceptance": acceptance, "head": head, "digits": digits}

FEATURES, ROUNDS = 543, 20
STEP = {"none": 25.0, "testing": 25.0, "median": 10.0, "krum": 10.0}
"""Of the head: as many features as the frontier has at ε = 1. Where all rounds are in groups, a step is smaller."""
DIGITS_CLIENTS = 200
RING = 28
"""Bits of the ring: boosted sums must not wrap around."""


def experiment(cell: Cell, options: argparse.Namespace) -> Experiment:
    """The live objects of a run."""
    of_part = _of_head(cell, options) if cell.part == "head" else _of_digits(cell, options)
    attack = None
    if cell.attackers:
        clients = of_part.population.num_clients
        drawn = np.random.default_rng(cell.seed).choice(clients, size=cell.attackers, replace=False)
        attack = ATTACKS[cell.attack](malicious=tuple(sorted(drawn.tolist())), boost=cell.boost, collude=True)
    defended = _defended(of_part.scheme, cell)
    return replace(of_part, scheme=defended, attack=attack, group_testing=cell.defence == "testing")


def _defended(scheme: Scheme, cell: Cell) -> Scheme:
    rules: dict[str, Aggregator] = {"median": Median(), "krum": MultiKrum(byzantine=cell.attackers)}
    return replace(scheme, groups=cell.groups, aggregator=rules.get(cell.defence, scheme.aggregator))


def _of_head(cell: Cell, options: argparse.Namespace) -> Experiment:
    features = _features(options)
    model = torch.nn.Linear(FEATURES, 10)
    torch.nn.init.zeros_(model.weight)
    torch.nn.init.zeros_(model.bias)

    def scheme(sigma: float) -> Scheme:
        about: dict[str, Any] = {"local_lr": 0.05, "local_steps": 10, "batch_size": 10, "momentum": 0.7}
        return schemes.fl_std_dp(
            clip_norm=0.05, noise_multiplier=sigma, server_lr=STEP[cell.defence], ring_bits=RING, **about
        )

    return Experiment(
        scheme=scheme(_sigma(lambda s: scheme(s), cell, 6000, ROUNDS, (FEATURES + 1) * 10)),
        model=model,
        population=features.clients(),
        sampler=EVERYBODY,
        budget=Budget(delta=1e-5),
        test=features.records("judge"),
        rounds=ROUNDS,
        seed=cell.seed,
        device=options.device,
        eval_every=ROUNDS if options.last_only else 1,
    )


def _features(options: argparse.Namespace) -> Features:
    path = Path(options.features)
    if not path.exists():
        note(f"features of Fashion-MNIST → {path}")
        device = choose_device(options.device)
        write_features(
            path, World(), public="dead-leaves", mirror=True, seed=1, data_dir=options.data_dir, device=device
        )
    return Features(path, FEATURES, 0.01)


def _of_digits(cell: Cell, options: argparse.Namespace) -> Experiment:
    """Softmax regression on 8 × 8 digits; what a scheme needs besides is what works for it without an attack."""
    own = {
        "fl-std-dp": {"scheme.clip_norm": 0.3, "scheme.server_lr": 2.0},
        "fl-top-dp": {"scheme.clip_norm": 0.3, "scheme.server_lr": 2.0, "scheme.ratio": 0.5, "data.public_records": 40},
        "fl-sign-dp": {"scheme.sign_step": 0.02},
    }[cell.scheme]
    config = RunConfig().with_values(
        {
            "data.dataset": "digits",
            "data.num_clients": DIGITS_CLIENTS,
            "model.name": "logistic",
            "scheme.name": cell.scheme,
            "scheme.local_lr": 0.3,
            "scheme.local_steps": 5,
            "scheme.ring_bits": RING,
            "sampler.sampling_rate": 1.0,
            "run.rounds": ROUNDS,
            "run.seed": cell.seed,
            "run.device": options.device,
            "privacy.epsilon": cell.epsilon,
            "privacy.delta": 1e-3,
            **own,
        }
    )
    return settle(config).experiment


def _sigma(scheme: Callable[[float], Scheme], cell: Cell, clients: int, rounds: int, size: int) -> float:
    example = scheme(1.0)
    return calibrate_noise(
        noise=lambda sigma: scheme(sigma).noise,
        sensitivity=example.clip.sensitivity(example.codec.code_size(size)),
        slack=0,
        groups=cell.groups,
        max_participations=None,
        epsilon=cell.epsilon,
        delta=1e-5,
        rounds=rounds,
        sampler=EVERYBODY,
        num_clients=clients,
        method=None,
    )


def run(cell: Cell, options: argparse.Namespace) -> Row:
    """Train, and keep what the last round came to."""
    started = time.perf_counter()
    e = experiment(cell, options)
    result: RunResult = Simulation(e).run()
    testing = result.group_testing or {}
    attackers = set(e.malicious.tolist())
    rounds = [one["after_round"] for one in testing.get("excluded", ()) if one["client"] in attackers]
    all_found = testing.get("attackers_excluded", 0) == cell.attackers > 0
    return Row(
        **asdict(cell),
        sigma=e.scheme.noise_multiplier or 0.0,
        accuracy=result.last.get("accuracy", float("nan")),
        class_accuracy=result.last.get("class_accuracy"),
        attack_accuracy=result.last.get("attack_accuracy"),
        attackers_excluded=testing.get("attackers_excluded", 0),
        honest_excluded=testing.get("honest_excluded", 0),
        found_by=max(rounds) if all_found else None,
        rounds_of_one_sum=testing.get("rounds_of_one_sum", 0),
        diverged=result.stop_reason == "diverged",
        seconds=round(time.perf_counter() - started, 1),
    )


def read_rows(path: Path) -> list[dict[str, str]]:
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def append(path: Path, row: Row) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    new = not path.exists()
    with path.open("a", newline="") as file:
        writer = csv.DictWriter(file, [field.name for field in fields(Row)], lineterminator="\n")
        if new:
            writer.writeheader()
        writer.writerow(asdict(row))


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=list(PARTS))
    parser.add_argument("--out", default=str(FOLDER / "runs.csv"))
    parser.add_argument("--features", default="features.pt", help="file with the front end's features of Fashion-MNIST")
    parser.add_argument("--data-dir", default=None)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--most", type=int, default=None, help="stop after so many runs")
    parser.add_argument("--attack", default=None, choices=list(ATTACKS), help="cells with this attack alone")
    parser.add_argument("--defence", default=None, choices=DEFENCES, help="cells with this defence alone")
    parser.add_argument("--last-only", action="store_true", help="evaluate the last round alone")
    options = parser.parse_args(arguments)
    path = Path(options.out)
    done = {tuple(row[field.name] for field in fields(Cell)) for row in read_rows(path)}
    wanted = {"attack": options.attack, "defence": options.defence}
    waiting = [
        cell
        for cell in PARTS[options.part]()
        if cell.key not in done and all(value in (None, getattr(cell, name)) for name, value in wanted.items())
    ]
    for number, cell in enumerate(waiting[: options.most], 1):
        row = run(cell, options)
        append(path, row)
        note(f"{number} of {len(waiting)}: {cell} → {row.accuracy:.4f} in {row.seconds:.0f} s")


if __name__ == "__main__":
    main()
