"""Clients that take turns: who is when, and what independent noise costs then."""

from __future__ import annotations

import math

import numpy as np
import pytest

from laconic.errors import ConfigError
from laconic.privacy.accounting.accountant import Accountant
from laconic.privacy.accounting.budget import Budget
from laconic.privacy.accounting.sampling import Cyclic, Sampler
from laconic.privacy.accounting.tight import gaussian_epsilon
from laconic.privacy.mechanism.gaussian import Gaussian
from laconic.streams import Streams


@pytest.mark.parametrize(("clients", "separation"), [(10, 3), (12, 4), (7, 7), (5, 1)])
def test_every_client_takes_part_once_in_so_many_rounds(clients: int, separation: int) -> None:
    turns, streams = Cyclic(separation=separation), Streams(4)
    rounds = [turns.cohort(clients, streams, number, 0) for number in range(1, 3 * separation + 1)]
    assert all(np.array_equal(rounds[t], rounds[t + separation]) for t in range(2 * separation))
    assert sorted(np.concatenate(rounds[:separation]).tolist()) == list(range(clients))
    sizes = {len(cohort) for cohort in rounds}
    assert max(sizes) - min(sizes) <= 1
    assert (min(sizes), max(sizes)) == (turns.least_cohort(clients, slack=clients), turns.largest_cohort(clients))
    assert turns.planned_cohort(clients) == pytest.approx(clients / separation)


def test_groups_are_dealt_at_random_and_an_attempt_changes_nothing() -> None:
    turns = Cyclic(separation=5)
    first = turns.cohort(100, Streams(0), 1, 0)
    assert np.array_equal(first, turns.cohort(100, Streams(0), 1, 3))
    assert not np.array_equal(first, turns.cohort(100, Streams(1), 1, 0))
    assert not np.array_equal(first, np.arange(0, 100, 5))


def accountant(separation: int, **options: object) -> Accountant:
    return Accountant(
        sampler=Cyclic(separation=separation),
        noise=Gaussian(noise_multiplier=2.0),
        num_clients=100,
        delta=1e-5,
        **options,  # type: ignore[arg-type]
    )


@pytest.mark.parametrize("rounds", [1, 9, 10, 11, 40])
def test_nothing_amplifies_and_epsilon_is_that_of_the_turns(rounds: int) -> None:
    asked, taken = accountant(10), math.ceil(rounds / 10)
    assert not asked.amplified(rounds)
    assert asked.released_epsilon(rounds) == asked.participant_epsilon(taken)
    assert asked.released_epsilon(rounds) == gaussian_epsilon(2.0 / math.sqrt(taken), 1e-5)


def test_a_repeated_round_is_a_participation_more() -> None:
    """Of ten charges two may be of a round that was charged before, with the same clients."""
    asked = accountant(10).with_repeats({"training": 2})
    assert asked.released_epsilon(12) == gaussian_epsilon(2.0 / math.sqrt(3), 1e-5)
    assert accountant(10, horizon=10).released_epsilon(12) == gaussian_epsilon(2.0 / math.sqrt(3), 1e-5)


def test_what_it_cannot_serve_is_refused() -> None:
    with pytest.raises(ConfigError, match="lower --separation"):
        Cyclic(separation=11).cohort(10, Streams(0), 1, 0)
    with pytest.raises(ConfigError, match="separation must be a whole number"):
        Cyclic(separation=0)
    with pytest.raises(ConfigError, match="follows from --rounds and --separation"):
        Budget(delta=1e-5, max_participations=3).check(Cyclic(separation=4))


def test_it_is_written_down_and_read_back() -> None:
    assert Sampler.from_dict(Cyclic(separation=4).to_dict()) == Cyclic(separation=4)
