"""Whom is asked about: targets, and their trials with and without them.

A *client* is there, or somebody else is in its place: the server counts messages, so a missing one would show. Under a
sum with noise it is there or not, as the ε has it (with cohorts of a fixed size, somebody else is there). A *record*
is among the client's records, or another one is in its place; under record-level privacy it is there or not.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from laconic.data.population import PooledPopulation, pooled_records
from laconic.experiment.experiment import Experiment
from laconic.privacy.accounting.sampling import FixedSize
from laconic_studies.inference.membership.trials import Pool, Trials, Victim, filters_for, statistics
from laconic_studies.inference.standing import Standing

_RECORD_DRAWS = 1 << 20
"""Batches of a victim are drawn under numbers from here on, apart from those of all clients."""

Seen = dict[tuple[str, bool], dict[str, np.ndarray]]
"""By part ("shadow", "test") and whether the target is there: the statistics of each view."""


@dataclass(frozen=True, kw_only=True)
class Numbers:
    """For each target and each of the two worlds, with and without it."""

    targets: int = 10
    shadows: int = 200
    """Rounds that the adversary plays for its fits and thresholds."""
    trials: int = 200
    """Rounds that are counted."""
    draws: int = 8
    """Draws of all clients' batches: for the direction that is looked at, for shadows, and for trials."""


def replaced(experiment: Experiment) -> bool:
    """Whether somebody else is in the place of a client that is not there."""
    return isinstance(experiment.sampler, FixedSize) or not experiment.scheme.noise.private


def drawn_clients(standing: Standing, available: int, count: int) -> list[int]:
    drawn = standing.clients.streams.numpy("membership", "clients").permutation(available)[:count]
    return [int(client) for client in drawn]


@dataclass(frozen=True, kw_only=True)
class Question:
    """One target, and its trials in both worlds: of the adversary, and of the test."""

    victim: Victim
    worlds: dict[tuple[str, bool], Trials]

    def play(self, pool: Pool, views: tuple[str, ...], training: slice) -> Seen:
        """All of them. `training` are the draws of batches from which the directions come that are looked at."""
        others = self.worlds["shadow", True].others
        filters = filters_for(pool, self.victim, others, training)
        return {name: statistics(pool, trials, views, filters) for name, trials in self.worlds.items()}


def _halves(pool: Pool, numbers: Numbers, *name: str | int) -> Iterator[tuple[str, bool, np.ndarray]]:
    """Part, whether the target is there, and which draw of batches each trial uses."""
    streams = pool.standing.clients.streams
    for place, (part, count) in enumerate((("shadow", numbers.shadows), ("test", numbers.trials)), start=1):
        for member in (True, False):
            rng = streams.numpy("membership", *name, part, int(member), "draws")
            yield part, member, place * numbers.draws + rng.integers(numbers.draws, size=count)


def clients_asked(pool: Pool, numbers: Numbers) -> Iterator[Question]:
    """Clients of the pool, drawn at random."""
    standing = pool.standing
    swapped = replaced(standing.experiment)
    for client in drawn_clients(standing, pool.num_clients, numbers.targets):
        sent = pool.codes[:, client]
        own = sent[: numbers.draws].mean(0)
        common = pool.codes[: numbers.draws, pool.all_but(client)].mean((0, 1))
        expected = own - common if swapped else own
        victim = Victim(expected=expected, own=own, records=standing.records(client), client=client)
        yield Question(
            victim=victim,
            worlds={
                (part, member): Trials(
                    victim=victim,
                    codes=sent[torch.from_numpy(draws)] if member else None,
                    others=standing.size - (0 if swapped and not member else 1),
                    draws=draws,
                    size=int(pool.sizes[client]),
                    name=("membership", "client", client, part, int(member)),
                )
                for part, member, draws in _halves(pool, numbers, "client", client)
            },
        )


def records_asked(pool: Pool, numbers: Numbers) -> Iterator[Question]:
    """Records of clients of the pool. The victim's other records are drawn from everybody's, anew in each trial."""
    standing = pool.standing
    e, streams = standing.experiment, standing.clients.streams
    every = pooled_records(e.population)
    sizes = [e.population.size(client) for client in range(e.population.num_clients)]
    owners = np.repeat(np.arange(len(sizes)), sizes)
    theirs = np.flatnonzero(owners < pool.num_clients)
    chosen = streams.numpy("membership", "records").permutation(theirs)[: numbers.targets]
    for number, record in enumerate(chosen.tolist()):
        owner = int(owners[record])
        held = sizes[owner]
        seen = standing.clients.seen(every.some(np.array([record])))
        assert seen is not None

        def sent(
            name: str, count: int, member: bool, draw: int, record: int = record, number: int = number, held: int = held
        ) -> Tensor:
            """What the victim sends with so many different data sets; the same ones for the same name."""
            rng = streams.numpy("membership", "record", record, name, "data")
            rows = _data_sets(rng, len(every.targets), record, held, count, member, removed=e.scheme.record_level)
            draw += _RECORD_DRAWS + 5 * number
            return standing.bounded(PooledPopulation(every, rows), np.arange(count), draw)

        # With all else the same, down to the batches: what is left is what the record does to a code.
        with_it, without = (sent("expected", numbers.shadows, member, 0) for member in (True, False))
        victim = Victim(expected=(with_it - without).mean(0), own=None, records=seen, client=owner)
        worlds = {}
        for place, (part, member, draws) in enumerate(_halves(pool, numbers, "record", record), start=1):
            codes = sent(f"{part} {int(member)}", len(draws), member, place)
            worlds[part, member] = Trials(
                victim=victim,
                codes=codes,
                others=standing.size - 1,
                draws=draws,
                size=held,
                name=("membership", "record", record, part, int(member)),
            )
        yield Question(victim=victim, worlds=worlds)


def _data_sets(
    rng: np.random.Generator, available: int, record: int, held: int, count: int, member: bool, *, removed: bool
) -> np.ndarray:
    """The victim's records in each trial, (trials, records); without the record another is there, or none."""
    rows = np.stack([rng.choice(available - 1, size=max(2, held), replace=False) for _ in range(count)])
    rows += rows >= record
    if member:
        rows[:, 0] = record
    return rows[:, 1:] if removed and not member else rows
