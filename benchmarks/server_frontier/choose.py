"""Settings for every ε and limit of bytes, chosen with held-out pictures alone.

A tenth of the training pictures belongs to no client. The others train with the noise that the whole federation would
have. What is tried follows from what was best so far: first the length of a step, then the damping, the rounds, and the
step again. Rounds come with as many features as the bytes have room for.
"""

from __future__ import annotations

import csv
import functools
import statistics
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from benchmarks.advise.heads import Heads, Rule
from benchmarks.frontier.features import Features
from benchmarks.server_frontier.worlds import CLASSES, DELTA, MOST_FEATURES, RECORDS, RIDGE, Setting, World
from laconic.advice.question import CLIP_NORM
from laconic.advice.search import against_server, messages
from laconic.data.population import Records

SEEDS = (0, 10, 20, 30)
"""Of the noise: the first two where it is weak."""
STRONG = 0.5
"""Noise is strong where ε is smaller."""
STEPS, DAMPINGS, ROUNDS = (2.0, 4.0, 8.0, 12.0), (0.15, 0.5), (8, 10, 13, 16)
COLUMNS = ["dataset", "limit", "epsilon", "rounds", "features", "step", "precondition", "momentum", "accuracy"]


def most_features(world: World, epsilon: float, rounds: int, limit: int) -> int:
    """As many as the messages of so many rounds have room for."""
    sigma = against_server(epsilon, DELTA, rounds)
    fits = [
        count
        for count in range(10, MOST_FEATURES + 1)
        if rounds * max(messages(world.clients, world.clients, CLASSES * (count + 1), sigma)) <= limit
    ]
    return max(fits)


class Chooser:
    """Every trial is a row of `trials.csv`, and none is made twice."""

    def __init__(self, world: World, features: Path, file: Path) -> None:
        self._world, self._features, self._file = world, features, file
        self._known: dict[tuple[str, ...], float] = {}
        if file.exists():
            with file.open(encoding="utf-8") as stream:
                for row in csv.DictReader(stream):
                    self._known[tuple(row[name] for name in COLUMNS[:-1])] = float(row["accuracy"])
        self._heads = functools.lru_cache(maxsize=2)(self._made)

    def best(self, epsilon: float, limit: int) -> tuple[Setting, float]:
        """The setting with the best mean accuracy on held-out pictures."""
        size = functools.partial(most_features, self._world, epsilon, limit=limit)
        start = Setting(rounds=10, features=size(10), step=STEPS[0], precondition=DAMPINGS[0])
        found: dict[Setting, float] = {}

        def judged(setting: Setting) -> float:
            if setting not in found:
                found[setting] = self._accuracy(setting, epsilon, limit)
            return found[setting]

        def better(settings: Iterator[Setting]) -> Setting:
            return max(settings, key=judged)

        now = better(replace(start, step=step) for step in STEPS)
        now = better(replace(now, precondition=damping) for damping in DAMPINGS)
        now = better(replace(now, rounds=rounds, features=size(rounds)) for rounds in ROUNDS)
        now = better(replace(now, step=step) for step in _around(now.step))
        return now, judged(now)

    def _accuracy(self, setting: Setting, epsilon: float, limit: int) -> float:
        row = {"dataset": self._world.dataset, "limit": limit, "epsilon": epsilon} | setting.row()
        key = tuple(str(row[name]) for name in COLUMNS[:-1])
        if key not in self._known:
            rule = Rule(
                rounds=setting.rounds,
                sampling_rate=1.0,
                cap=None,
                clip_norm=CLIP_NORM,
                server_lr=setting.step / CLIP_NORM,
                momentum=setting.momentum,
                precondition=setting.precondition,
                mean_noise=against_server(epsilon, DELTA, setting.rounds) * CLIP_NORM / self._world.clients,
            )
            heads = self._heads(setting.features)
            seeds = SEEDS if epsilon < STRONG else SEEDS[:2]
            self._known[key] = statistics.mean(heads.accuracy(heads.train(rule, seed)) for seed in seeds)
            self._write([*key, f"{self._known[key]:.4f}"])
        return self._known[key]

    def _made(self, features: int) -> Heads:
        kept = Features(self._features, features, RIDGE)
        clients = kept.records("clients")
        whole = len(clients.targets) // RECORDS * RECORDS
        clients = Records(clients.inputs[:whole], clients.targets[:whole])
        return Heads(clients, kept.records("judge"), records=RECORDS, classes=CLASSES)

    def _write(self, row: list[str]) -> None:
        fresh = not self._file.exists()
        with self._file.open("a", newline="", encoding="utf-8") as stream:
            writer = csv.writer(stream, lineterminator="\n")
            writer.writerows([COLUMNS, row] if fresh else [row])


def _around(step: float) -> tuple[float, ...]:
    return step, round(step * 0.75, 3), round(step * 1.35, 3)
