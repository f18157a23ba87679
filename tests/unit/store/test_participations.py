"""How often each client took part, and what the journal says of its charges, beside the plain way to count."""

from __future__ import annotations

import itertools
from collections import Counter

import numpy as np
import pytest
import torch

from laconic.plan import RoundPlan
from laconic.store.checkpoint import RunState, parsed_state, state_bytes
from laconic.store.journal import Journal, Participations, released_charges


def cohorts(count: int, clients: int = 60) -> list[np.ndarray]:
    rng = np.random.default_rng(3)
    return [np.sort(rng.choice(clients, rng.integers(0, 9), replace=False)) for _ in range(count)]


def test_they_are_counted_as_one_by_one() -> None:
    taken, plain = Participations(), Counter[int]()
    for cohort in cohorts(40):
        assert taken.most_of(cohort) == max((plain[client] for client in cohort.tolist()), default=0)
        taken.add(cohort)
        plain.update(cohort.tolist())
        assert taken.most == max(plain.values(), default=0)
        assert dict(zip(taken.clients.tolist(), taken.counts.tolist(), strict=True)) == plain
        assert taken.at_least(3).tolist() == sorted(client for client, count in plain.items() if count >= 3)
    assert [client in taken for client in range(70)] == [client in plain for client in range(70)]
    again = taken.copy()
    again.add(np.array([0]))
    assert plain == dict(zip(taken.clients.tolist(), taken.counts.tolist(), strict=True)), "a copy is apart"


def test_a_client_takes_four_bytes_however_often_it_came() -> None:
    taken = Participations()
    for _ in range(100):
        taken.add(np.array([5, 9_999_999]))
    assert taken._counts.nbytes <= 1.2 * 4 * 10_000_000
    assert taken.clients.tolist() == [5, 9_999_999] and taken.most == 100


def test_a_state_is_read_back_and_a_damaged_one_is_not() -> None:
    state = RunState(weights=torch.zeros(3), rule={})
    state.take_part(np.array([2, 7]))
    state.take_part(np.array([7]))
    data = state_bytes(state, "")
    again, _ = parsed_state(data, __file__, 3, torch.device("cpu"))  # type: ignore[arg-type]
    assert (again.participations.clients.tolist(), again.participations.counts.tolist()) == ([2, 7], [1, 2])
    for clients, counts in (([2, 7], [1]), ([7, 2], [1, 1]), ([-1], [1]), ([], [1])):
        with pytest.raises(ValueError):
            Participations(np.array(clients, dtype=np.int64), np.array(counts, dtype=np.int64))


def plan(round: int, attempt: int, cohort: np.ndarray) -> RoundPlan:
    return RoundPlan(
        round=round, attempt=attempt, cohort=cohort, planned_cohort=4.0, run_seed=0, round_seed=0, fingerprint=""
    )


@pytest.mark.parametrize("order", [[1, 2, 3, 4], [1, 2, 3, 2, 3, 4], [1, 1, 1, 2], [1, 2, 3, 1, 2, 3, 3]])
def test_what_a_journal_remembers_is_what_its_charges_say(order: list[int]) -> None:
    """Rounds that are charged again are new attempts, as after a resume elsewhere."""
    journal, again = Journal(None, "here"), Counter[int]()
    for round, cohort in zip(order, itertools.cycle(cohorts(5)), strict=False):
        charged = [charge.round for charge in journal.charges]
        assert journal.repeated(also=(round, again[round])) == Counter(
            {r: count - 1 for r, count in Counter([*charged, round]).items() if count > 1}
        )
        journal.charge(plan(round, again[round], cohort))
        again[round] += 1
        charges = journal.charges
        plain = Counter(client for charge in charges for client in charge.cohort.tolist())
        assert journal.most_participations() == max(plain.values(), default=0)
        assert journal.last_round == max(charge.round for charge in charges)
        for through in range(6):
            released = released_charges(charges, through, "here")
            assert journal.num_released(through) == len(released)
            repeats = {r: n - 1 for r, n in Counter(charge.round for charge in released).items() if n > 1}
            assert journal.repeated(through=through) == repeats
    assert journal.attempt_of(9) == 0
