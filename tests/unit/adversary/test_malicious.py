"""Who is malicious: a fixed set, exactly the wanted fraction of every cohort, and honest draws as they always were."""

from __future__ import annotations

import numpy as np
import pytest
from attack_tools import TRAIN, experiment

import laconic
from conftest import make_population
from laconic import schemes
from laconic.adversary.attacks.gradient_ascent import RandomUpdate
from laconic.errors import ConfigError
from laconic.experiment.experiment import Experiment
from laconic.planning import drawn_cohort
from laconic.privacy.accounting.sampling import Sampler
from laconic.streams import Streams

STD = schemes.fl_std(**TRAIN)


def attacked(sampler: Sampler, clients: int = 300, **who: object) -> Experiment:
    return experiment(STD, RandomUpdate(**who), population=make_population([3] * clients), sampler=sampler)  # type: ignore[arg-type]


def cohort(e: Experiment, number: int, exhausted: tuple[int, ...] = ()) -> np.ndarray:
    return drawn_cohort(e.sampler, Streams(0), number, 0, e.population.num_clients, exhausted, e.arrange)


@pytest.mark.parametrize(("fraction", "wanted"), [(0.1, 4), (0.2, 8), (0.4, 16), (0.6, 24), (0.02, 1)])
def test_every_cohort_of_a_fixed_size_has_exactly_that_many_attackers(fraction: float, wanted: int) -> None:
    e = attacked(laconic.FixedSize(cohort_size=40), fraction=fraction)
    assert len(e.malicious) == round(fraction * 300)
    for number in range(1, 30):
        clients = cohort(e, number)
        assert len(clients) == 40 and len(set(clients.tolist())) == 40 and (np.diff(clients) > 0).all()
        assert np.isin(clients, e.malicious).sum() == wanted


def test_all_malicious_and_all_honest_clients_come_equally_often() -> None:
    e = attacked(laconic.FixedSize(cohort_size=40), fraction=0.3)
    counts = np.bincount(np.concatenate([cohort(e, number) for number in range(1, 601)]), minlength=300)
    bad = np.isin(np.arange(300), e.malicious)
    for group in (counts[bad], counts[~bad]):
        # 600 rounds at 40/300: 80 on average, binomial; of 300 clients none is 5 deviations off (chance below 2e-4).
        assert abs(group - 80).max() < 5 * np.sqrt(80 * (1 - 40 / 300))


def test_a_poisson_cohort_keeps_its_honest_clients() -> None:
    """So an honest client is there with the sampler's probability, whoever attacks; the ε needs that."""
    sampler = laconic.Poisson(sampling_rate=0.2)
    e = attacked(sampler, fraction=0.25)
    for number in range(1, 30):
        before = drawn_cohort(sampler, Streams(0), number, 0, 300)
        clients = cohort(e, number)
        honest = clients[~np.isin(clients, e.malicious)]
        assert np.array_equal(honest, before[~np.isin(before, e.malicious)])
        assert len(clients) - len(honest) == 15  # a quarter of the 60 that are expected, whoever came


def test_honest_clients_never_come_more_often_than_their_epsilon_assumes() -> None:
    """11 of 30 are malicious: with one of four, the others would come at 3/19 instead of 4/30."""
    e = experiment(STD, RandomUpdate(fraction=0.37), population=make_population([3] * 30),
                   sampler=laconic.FixedSize(cohort_size=4))  # fmt: skip
    honest = [int((~np.isin(cohort(e, number), e.malicious)).sum()) for number in range(1, 50)]
    assert len(e.malicious) == 11 and set(honest) == {2}
    assert 2 / 19 <= 4 / 30


def test_a_fixed_set_leaves_cohorts_as_they_are_drawn() -> None:
    sampler = laconic.FixedSize(cohort_size=40)
    e = attacked(sampler, malicious=(3, 7))
    assert e.malicious.tolist() == [3, 7] and e.arrange is None
    assert all(np.array_equal(cohort(e, n), drawn_cohort(sampler, Streams(0), n, 0, 300)) for n in range(1, 10))


def test_exhausted_clients_are_not_brought_back() -> None:
    e = attacked(laconic.Poisson(sampling_rate=0.2), fraction=0.25)
    gone = tuple(e.malicious[:60].tolist())
    for number in range(1, 10):
        assert not np.isin(cohort(e, number, gone), gone).any()


def test_who_is_malicious_follows_from_the_seed_alone() -> None:
    one, other = (
        attacked(s, fraction=0.1) for s in (laconic.FixedSize(cohort_size=40), laconic.Poisson(sampling_rate=0.5))
    )
    assert np.array_equal(one.malicious, other.malicious)
    e = experiment(STD, RandomUpdate(fraction=0.1), population=make_population([3] * 300), seed=1,
                   sampler=laconic.FixedSize(cohort_size=40))  # fmt: skip
    assert not np.array_equal(one.malicious, e.malicious)


@pytest.mark.parametrize(
    ("who", "message"),
    [
        ({"fraction": 0.001}, "a fraction 0.001 of 300 clients is less than one"),
        ({"fraction": 0.01}, "a fraction 0.01 of a cohort of 40 is no client"),
        ({"malicious": (3, 300)}, "names client 300, but there are 300, numbered from 0"),
        ({}, "say who attacks"),
        ({"fraction": 0.1, "malicious": (1,)}, "say who attacks"),
        ({"fraction": 1.0}, "fraction must be at least 0 and below 1"),
        ({"fraction": 0.1, "from_round": 5, "until_round": 3}, "ends in round 3, before it begins in 5"),
        ({"fraction": 0.1, "boost": -1.0}, "boost must be a positive number"),
    ],
)
def test_no_attacker_at_all_is_refused(who: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        attacked(laconic.FixedSize(cohort_size=40), **who)


def test_nobody_of_a_poisson_cohort_is_refused() -> None:
    """As many attack in every round: with none in one there would be none at all."""
    with pytest.raises(ConfigError, match="a fraction 0.05 of a cohort of 6 is no client"):
        attacked(laconic.Poisson(sampling_rate=0.02), fraction=0.05)
