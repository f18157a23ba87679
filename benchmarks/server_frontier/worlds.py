"""The federations, and what is chosen for each."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from laconic.advice.question import CLIP_NORM, LOCAL_LR, LOCAL_STEPS

EPSILONS = (0.1, 0.25, 0.5, 1.0, 2.0, 4.0)
DELTA = 1e-5
LIMITS = (110_880, 222_000)
"""Bytes of a client each way in the whole run."""
RECORDS, CLASSES = 10, 10
RIDGE = 0.01
MOST_FEATURES = 820


@dataclass(frozen=True, kw_only=True)
class World:
    """A federation of pictures: who takes part, and which front end stands before the linear layer."""

    dataset: str
    clients: int
    front_end: str
    patterns: int = 128
    mirror: bool
    images: int = 10_000
    most_features: int = MOST_FEATURES
    epsilons: tuple[float, ...] = EPSILONS


WORLDS = {
    world.dataset: world
    for world in (
        World(dataset="fashion-mnist", clients=6000, front_end="scattering+patches", mirror=True),
        World(dataset="mnist", clients=6000, front_end="patches", mirror=False),
        World(
            dataset="cifar10",
            clients=5000,
            front_end="patches",
            patterns=192,
            mirror=True,
            epsilons=(*EPSILONS[:-1], 3.0, 4.0),
        ),
    )
}
"""Clients have ten pictures each. Left and right matter for digits, and not for things."""


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What is chosen. `step` is server_lr·S: every update is clipped, so only this product counts."""

    rounds: int
    features: int
    step: float
    precondition: float
    momentum: float = 0.4

    @property
    def options(self) -> dict[str, Any]:
        """As `fl_std_dp` takes them."""
        return {
            "local_lr": LOCAL_LR,
            "local_steps": LOCAL_STEPS,
            "batch_size": RECORDS,
            "clip_norm": CLIP_NORM,
            "momentum": self.momentum,
            "server_lr": self.step / CLIP_NORM,
            "precondition": self.precondition,
            "downlink": "half",
        }

    def command(self, world: World, epsilon: float, seed: int) -> str:
        """The run on the command line."""
        flags: dict[str, Any] = {"dataset": world.dataset, "num-clients": world.clients, "sampling-rate": 1}
        flags |= {"public-dataset": "dead-leaves", "front-end": world.front_end, "front-end-projection": "public"}
        flags |= {"front-end-features": self.features, "front-end-ridge": RIDGE, "front-end-images": world.images}
        flags |= {"front-end-patterns": world.patterns, "front-end-mirror": str(world.mirror).lower()}
        flags |= {"epsilon": f"{epsilon:g}", "delta": "1e-5", "rounds": self.rounds}
        flags |= {name.replace("_", "-"): value for name, value in self.options.items()}
        flags |= {"eval-every": self.rounds, "seed": seed}
        shown = {name: f"{value:g}" if isinstance(value, float) else value for name, value in flags.items()}
        return "laconic run fl-std-dp " + " ".join(f"--{name} {value}" for name, value in shown.items())

    def row(self) -> dict[str, Any]:
        return asdict(self)
