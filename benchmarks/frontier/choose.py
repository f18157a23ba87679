"""Which settings to take, by held-out clients alone: the test pictures are not looked at.

A tenth of the training pictures belongs to no client while settings are compared. The search goes from coarse to fine:
how many features in how many rounds; then one change at a time; then the best changes together and the step again, over
three seeds. At ε = 1 it also looks for what fewer bytes can do: fewer features, and codecs on top of the head.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from benchmarks.frontier.runs import Runs, Trial
from benchmarks.frontier.settings import CHOOSING_SEEDS, EPSILONS, Setting, World

Choice = tuple[Setting, float]
"""A setting and its ε."""

REACH = {0.1: 12.0, 0.25: 28.0, 0.5: 50.0, 1.0: 85.0, 2.0: 120.0, 4.0: 150.0}
"""Where the search starts: it grows about as the noise shrinks."""
CHANGES: tuple[dict[str, Any], ...] = (
    {"reach": 0.7},
    {"reach": 1.4},
    {"ridge": 0.003},
    {"ridge": 0.03},
    {"mirror": False},
    {"clip_norm": 0.2},
)
"""One at a time; a reach is a factor here. An earlier sweep tried other public images, local steps and momenta."""
BYTES_EPSILON = 1.0


def choose(runs: Runs, *, brief: bool = False) -> dict[str, Choice]:
    """The chosen settings by name: one for every ε, and at ε = 1 one for every way to save bytes.

    `brief` compares features, rounds and steps only, with one seed.
    """
    search, world = Search(runs), runs.world
    if brief:
        return _briefly(search, world)
    print("features and rounds", flush=True)
    best = search.best_of({f"{e:g}": [(s, e) for s in shapes(world, e)] for e in EPSILONS})
    print("one change at a time", flush=True)
    best = search.improved(best, list(CHANGES))
    print("the step again", flush=True)
    best = search.best_of({name: scaled(choice, (1.0, 0.8, 1.25)) for name, choice in best.items()}, CHOOSING_SEEDS)
    print("fewer bytes", flush=True)
    return best | search.best_of({name: scaled(c, (1.0, 0.6, 1.6)) for name, c in smaller(best).items()})


def _briefly(search: Search, world: World) -> dict[str, Choice]:
    print("features and rounds", flush=True)
    best = search.best_of({f"{e:g}": [(s, e) for s in shapes(world, e)[::2]] for e in EPSILONS})
    print("the step", flush=True)
    best = search.best_of({name: scaled(choice, (1.0, 0.7, 1.4)) for name, choice in best.items()})
    return best | smaller(best)


def shapes(world: World, epsilon: float) -> list[Setting]:
    """Fewer features and more rounds, or the other way round, within the same bytes."""
    return [Setting(rounds=r, features=world.features_for(r), reach=REACH[epsilon]) for r in world.rounds]


def smaller(best: dict[str, Choice]) -> dict[str, Choice]:
    """Ways to save bytes, starting from the best setting at ε = 1; and what 16 bits a weight down cost."""
    base, epsilon = best[f"{BYTES_EPSILON:g}"]
    found = {f"1/{n} of the features": replace(base, features=max(4, base.features // n)) for n in (2, 4, 8, 16, 32)}
    found |= {f"{s} 50%": replace(base, scheme=s, ratio=0.5) for s in ("fl-top-dp", "fl-freq-dp", "fl-cs-dp")}
    found["32 bits a weight down"] = replace(base, downlink="weights")
    found["fl-sign-dp"] = replace(base, scheme="fl-sign-dp", sign_step=0.005, momentum=0.9)
    return {name: (setting, epsilon) for name, setting in found.items()}


def scaled(choice: Choice, factors: tuple[float, ...]) -> list[Choice]:
    """The same with other steps: a vote's sign_step, else the reach."""
    setting, epsilon = choice
    if setting.sign_step is not None:
        step = setting.sign_step
        return [(replace(setting, sign_step=_rounded(step * factor)), epsilon) for factor in factors]
    return [(changed(setting, {"reach": factor}), epsilon) for factor in factors]


def changed(setting: Setting, change: dict[str, Any]) -> Setting:
    reach = _rounded(setting.reach * change.get("reach", 1.0))
    return replace(setting, **(change | {"reach": reach}))


def _rounded(value: float) -> float:
    return float(f"{value:.4g}")


class Search:
    """Comparisons for all names at once, so that many runs go side by side."""

    def __init__(self, runs: Runs) -> None:
        self._runs = runs

    def best_of(
        self, options: dict[str, list[Choice]], seeds: tuple[int, ...] = CHOOSING_SEEDS[:1]
    ) -> dict[str, Choice]:
        """For every name the option that held-out clients prefer, the first one if they do not care."""
        scores = self.scores([choice for some in options.values() for choice in some], seeds)
        chosen = {name: max(some, key=scores) for name, some in options.items()}
        for name, choice in chosen.items():
            print(f"  {name}: {scores(choice):.4f} {choice[0]}", flush=True)
        return chosen

    def improved(self, best: dict[str, Choice], changes: list[dict[str, Any]]) -> dict[str, Choice]:
        """Each with the best change, the two best ones of different options, or none, by all choosing seeds."""
        options = {name: [(changed(s, change), e) for change in changes] for name, (s, e) in best.items()}
        scores = self.scores([*best.values(), *(c for some in options.values() for c in some)], CHOOSING_SEEDS[:1])
        finalists = {}
        for name, (setting, epsilon) in best.items():
            ranked = [changes[i] for i in sorted(range(len(changes)), key=lambda i: -scores(options[name][i]))]
            second = next(change for change in ranked if not set(change) & set(ranked[0]))
            finalists[name] = [
                (setting, epsilon),
                (changed(setting, ranked[0]), epsilon),
                (changed(setting, ranked[0] | second), epsilon),
            ]
        return self.best_of(finalists, CHOOSING_SEEDS)

    def scores(self, choices: list[Choice], seeds: tuple[int, ...]) -> Callable[[Choice], float]:
        """The mean accuracy over the seeds."""
        trials: list[Trial] = [(setting, epsilon, seed) for setting, epsilon in choices for seed in seeds]
        found = dict(zip(trials, self._runs.accuracies(trials), strict=True))
        return lambda choice: statistics.mean(found[(*choice, seed)] for seed in seeds)


def write_choices(file: Path, world: World, chosen: dict[str, Choice]) -> None:
    settings = {name: {"epsilon": epsilon} | asdict(setting) for name, (setting, epsilon) in chosen.items()}
    file.write_text(json.dumps({"world": asdict(world), "chosen": settings}, indent=2) + "\n", encoding="utf-8")


def read_choices(file: Path) -> tuple[World, dict[str, Choice]]:
    data = json.loads(file.read_text(encoding="utf-8"))
    chosen = {name: (values.pop("epsilon"), values) for name, values in data["chosen"].items()}
    world = World(**(data["world"] | {"rounds": tuple(data["world"]["rounds"])}))
    return world, {name: (Setting(**values), epsilon) for name, (epsilon, values) in chosen.items()}
