"""What all attacks have in common. An attack is one class: see `attacks/`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from laconic.errors import ConfigError
from laconic.parts import Part, below_one, non_negative_int, one_of, positive, positive_int
from laconic.scheme import Scheme
from laconic.streams import Stream, Streams

SHARES = ("all", "cohort")
BOOSTS = ("update", "step")
STEPS = ("client", "pool")


@dataclass(frozen=True, kw_only=True)
class Scene:
    """What attackers know when they forge: the round, who of them is in its cohort, and how large an update is.

    They do not see who else is in the cohort, nor how many: what they send could tell an outsider. `planned_cohort` is
    how many are expected, a public number.
    """

    round: int
    attempt: int
    attackers: np.ndarray
    planned_cohort: float
    size: int
    device: torch.device
    streams: Streams

    def stream(self, *path: str | int) -> Stream:
        """Randomness of the attack, apart from everything that honest clients draw."""
        return self.streams.stream("attack", self.round, self.attempt, *path)


@dataclass(frozen=True, kw_only=True)
class Attack(Part):
    """Base of the attacks: who attacks, when, and how what they send is scaled.

    In every cohort a `fraction` of the clients is malicious, drawn from a fixed set of that fraction of all clients
    (thesis section 6.2); or `malicious` names the set, and cohorts are drawn as usual. Colluders pool their data,
    train once with the scheme's own local training, and all send the same update (thesis section 6.1); `share` says
    whose data are pooled: those of all malicious clients, or of those in the cohort. They take as many steps as one
    client does, or with `steps="pool"` as many passes over the pool as a client over its own records.

    What is sent is `boost` times the update; or, with `boost_as="step"`, what comes of local steps that much larger.
    Under a private scheme attackers leave out clip and noise (`omit_noise`). They attack in the rounds `from_round` to
    `until_round`, and follow the protocol in others.
    """

    fraction: float | None = None
    malicious: tuple[int, ...] = ()
    boost: float = 1.0
    boost_as: str = "update"
    collude: bool = True
    share: str = "all"
    steps: str = "client"
    omit_noise: bool = True
    from_round: int = 1
    until_round: int | None = None

    ascends: ClassVar[bool] = False
    """Whether the attackers' training makes the loss larger instead of smaller."""
    relabels: ClassVar[bool] = False
    """Whether they train on other labels than their records have: then records must have classes."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "malicious", tuple(self.malicious))
        if (self.fraction is None) == (not self.malicious):
            raise ConfigError("say who attacks: a fraction of every cohort (fraction), or which clients (malicious)")
        if self.fraction is not None:
            below_one(fraction=self.fraction)
        for client in self.malicious:
            non_negative_int(malicious=client)
        positive(boost=self.boost)
        one_of(BOOSTS, boost_as=self.boost_as)
        one_of(SHARES, share=self.share)
        one_of(STEPS, steps=self.steps)
        positive_int(from_round=self.from_round)
        if self.until_round is not None and self.until_round < self.from_round:
            raise ConfigError(f"the attack ends in round {self.until_round}, before it begins in {self.from_round}")

    def active(self, number: int) -> bool:
        """Whether attackers attack in the round of that number."""
        return self.from_round <= number and (self.until_round is None or number <= self.until_round)

    @property
    def trains(self) -> str:
        """On what attackers train: 'union' (together, once), 'each' (its own records), or 'nothing'."""
        return "union" if self.collude else "each"

    @property
    def backdoor(self) -> tuple[int, int] | None:
        """The class that is attacked, and what it is to be taken for; None if there is no such class."""
        return None

    def dropped(self, *, malicious: bool) -> tuple[int, ...]:
        """Classes whose records such clients do not hold."""
        return ()

    def relabelled(self, targets: Tensor, num_classes: int, rng: np.random.Generator) -> Tensor:
        """The labels of an attacker's records as it trains on them."""
        return targets

    def forged(self, trained: Tensor, scene: Scene) -> Tensor:
        """What attackers send before it is boosted and encoded, (1, n) if all send the same, else (attackers, n).

        `trained` are the updates they trained: (1, n) together, (attackers, n) each, (0, n) none.
        """
        return trained

    def claimed(self, sizes: np.ndarray) -> np.ndarray:
        """How many records attackers say they hold."""
        return sizes

    def problems(self, scheme: Scheme) -> Iterator[str]:
        """Why it cannot be tried on a scheme."""
        if scheme.pooled:
            yield "the centralised reference has no clients, so no client can attack it: use a federated scheme"
        if scheme.noise.private and self.omit_noise and not scheme.noise.on_integers:
            yield (
                f"{scheme.name} has continuous noise, which no secure sum can carry, so attackers cannot hide in one:"
                " use ⟨noise⟩ integer"
            )
        if scheme.sums_units and not self.omit_noise:
            yield (
                f"{scheme.name} clips what every {scheme.unit} adds, and a forged update has none: attackers that"
                " clip it and add their noise are not defined here; leave out ⟨attack-omit-noise⟩ false"
            )
        if scheme.record_level and self.trains == "union":
            yield (
                f"{scheme.name} draws records by a rate that is meant for one client's records, so attackers cannot"
                " pool theirs: use ⟨attack-collude⟩ false"
            )


def check_together(attack: Attack) -> None:
    """For attacks that are made of what several attackers trained."""
    if not attack.collude:
        raise ConfigError("this attack is made of all attackers' updates, so they collude: leave out collude = false")


def check_backdoor(source: int, target: int) -> None:
    """Two different classes."""
    non_negative_int(source=source, target=target)
    if source == target:
        raise ConfigError(f"the attacked class {source} is to be taken for itself: choose another target")
