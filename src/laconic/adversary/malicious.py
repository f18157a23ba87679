"""Who is malicious: a fixed set of clients for the whole run, and how many of them are in a cohort."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from laconic.adversary.attack import Attack
from laconic.errors import ConfigError
from laconic.streams import Streams


def malicious_clients(attack: Attack, num_clients: int, streams: Streams) -> np.ndarray:
    """𝕄, sorted: the clients that the attack names, or round(α·N) of all, drawn from a stream of their own."""
    if attack.fraction is None:
        if max(attack.malicious) >= num_clients:
            raise ConfigError(
                f"⟨attack-malicious⟩ names client {max(attack.malicious)}, but there are {num_clients}, numbered from 0"
            )
        return np.unique(np.array(attack.malicious, dtype=np.int64))
    count = round(attack.fraction * num_clients)
    if attack.fraction > 0 and count == 0:
        raise ConfigError(
            f"a fraction {attack.fraction:g} of {num_clients} clients is nobody: raise ⟨attack-fraction⟩ or"
            " ⟨num-clients⟩"
        )
    return np.sort(streams.numpy("malicious").choice(num_clients, size=count, replace=False)).astype(np.int64)


@dataclass(frozen=True)
class Infiltration:
    """Puts the wanted fraction of malicious clients into a cohort, as the thesis has it: α·|𝕂| in each.

    A cohort of a fixed size c has a = round(α·c) malicious clients and c − a honest ones, each kind drawn uniformly;
    a is rounded up where honest clients would otherwise come more often than c/N, the rate that their ε assumes.
    In a Poisson cohort the honest clients are those that were drawn, whoever attacks, and round(α·q·N) malicious ones
    join them in every round. Their number must not depend on who came: boosted codes would show it, and with it whether
    an honest client took part.
    """

    malicious: np.ndarray
    fraction: float
    num_clients: int
    fixed_size: bool
    planned: float
    """How large a cohort is expected to be."""

    def __call__(self, drawn: np.ndarray, exhausted: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """The cohort, sorted; `exhausted` clients take part no more."""
        bad = np.isin(drawn, self.malicious)
        attacking, honest = drawn[bad], drawn[~bad]
        wanted = round(self.fraction * self.planned)
        if self.fixed_size:
            least = -(-len(drawn) * len(self.malicious) // self.num_clients)
            wanted = min(len(drawn), max(round(self.fraction * len(drawn)), least))
        attacking = self._of(attacking, wanted, np.setdiff1d(self.malicious, exhausted), rng)
        if self.fixed_size:
            others = np.setdiff1d(np.arange(self.num_clients), np.concatenate([self.malicious, exhausted]))
            honest = self._of(honest, len(drawn) - wanted, others, rng)
        return np.sort(np.concatenate([attacking, honest])).astype(np.int64)

    @staticmethod
    def _of(drawn: np.ndarray, wanted: int, everyone: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """So many clients: some of those drawn if there are too many, others beside them if there are too few."""
        if len(drawn) >= wanted:
            return rng.choice(drawn, size=wanted, replace=False)
        free = np.setdiff1d(everyone, drawn)
        more = rng.choice(free, size=min(len(free), wanted - len(drawn)), replace=False)
        return np.concatenate([drawn, more])
