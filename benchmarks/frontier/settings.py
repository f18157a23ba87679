"""What is fixed (the federation and the promise) and what is chosen (a `Setting`)."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from laconic.catalogue import SCHEMES, build_scheme
from laconic.scheme import Scheme

EPSILONS = (0.1, 0.25, 0.5, 1.0, 2.0, 4.0)
DELTA = 1e-5
BUDGET = 110_880
"""Bytes each way that FL-TOP-DP (r = 0.5 %, 200 rounds) costs a client on average, by the papers' formula."""
TEST_SEEDS = (1, 2, 3)
"""Seeds of the runs with all clients, judged once by the test pictures; all others are judged by held-out clients."""
CHOOSING_SEEDS = (0, 10, 11)
HOLDOUT = 0.1


def noise_of(seed: int) -> str:
    """Settings are compared with continuous noise: as strong as the integer noise of real runs, and drawn faster."""
    return "integer" if seed in TEST_SEEDS else "continuous"


@dataclass(frozen=True)
class World:
    """The federation."""

    dataset: str = "fashion-mnist"
    clients: int = 6000
    cohort: int = 100
    images: int = 10_000
    most_features: int = 820
    budget: int = BUDGET
    rounds: tuple[int, ...] = (400, 600, 800)

    @property
    def rate(self) -> float:
        return self.cohort / self.clients

    def features_for(self, rounds: int) -> int:
        """The most features of a head for ten classes within the byte budget, as the ledger counts it.

        A message down is 60 bytes and 2 for each of the 10·(K + 1) weights (`--downlink half`); one up is no longer, as
        integers of 16 bits or fewer do. How often clients take part is random, so three standard deviations of its mean
        are left free.
        """
        expected = rounds * self.rate
        most = expected * (1 + 3 * math.sqrt((1 - self.rate) / (expected * self.clients)))
        return min(self.most_features, int((self.budget / most - 60) / 20 - 1))


QUICK = World(dataset="digits", clients=140, cohort=20, images=120, most_features=60, budget=2000, rounds=(4, 6))
"""The digits inside scikit-learn: to see that everything works."""


@dataclass(frozen=True)
class Setting:
    """Everything that is chosen.

    Where every update is clipped only the product of server_lr and clip_norm matters, so `reach` is given instead of
    server_lr: how far the weights could go in all rounds together, server_lr·clip_norm·rounds/(1 − momentum).
    """

    scheme: str = "fl-std-dp"
    features: int = 820
    public: str = "dead-leaves"
    mirror: bool = True
    ridge: float = 0.01
    rounds: int = 200
    local_lr: float = 0.05
    local_steps: int = 10
    clip_norm: float = 0.05
    reach: float = 60.0
    momentum: float = 0.9
    ratio: float | None = None
    sign_step: float | None = None
    downlink: str = "half"

    @property
    def server_lr(self) -> float:
        return self.reach * (1 - self.momentum) / self.clip_norm / self.rounds

    def options(self, sigma: float, noise: str) -> dict[str, Any]:
        """As the scheme takes them."""
        values = asdict(self) | {
            "server_lr": self.server_lr,
            "noise_multiplier": sigma,
            "batch_size": 10,
            "noise": noise,
        }
        if self.scheme.startswith("fl-cs"):
            values["max_iterations"] = 50
        return {k: v for k, v in values.items() if k in SCHEMES[self.scheme].options and v is not None}

    def build(self, sigma: float, noise: str) -> Scheme:
        return build_scheme(self.scheme, **self.options(sigma, noise))

    def command(self, world: World, epsilon: float, seed: int) -> str:
        """The run on the command line."""
        flags: dict[str, Any] = {"dataset": world.dataset, "num-clients": world.clients}
        flags |= {"public-dataset": self.public, "sampling-rate": f"{world.cohort}/{world.clients}"}
        flags |= {"front-end": "scattering", "front-end-projection": "public", "front-end-features": self.features}
        flags |= {"front-end-ridge": f"{self.ridge:g}", "front-end-mirror": str(self.mirror).lower()}
        flags |= {"front-end-images": world.images, "epsilon": f"{epsilon:g}", "rounds": self.rounds}
        chosen = {k: v for k, v in self.options(0.0, "integer").items() if k not in ("noise", "noise_multiplier")}
        flags |= {k.replace("_", "-"): v if isinstance(v, str) else f"{v:.6g}" for k, v in chosen.items()}
        flags |= {"eval-every": self.rounds, "seed": seed}
        return f"laconic run {self.scheme} " + " ".join(f"--{flag} {value}" for flag, value in flags.items())
