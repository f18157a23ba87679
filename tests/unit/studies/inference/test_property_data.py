"""Who holds which records, and what is drawn from them."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from laconic.data.population import Records
from laconic.data.registry import Source
from laconic.errors import ConfigError, DataError
from laconic_studies.inference.property_data import Batches, Holdings, dealt, property_of

HAS = np.random.default_rng(0).choice([1, 0, -1], 1000, p=[0.2, 0.7, 0.1])


def deal(participants: int = 4, records: int = 16) -> Holdings:
    return dealt(HAS, participants=participants, records=records, public_records=10, rng=np.random.default_rng(1))


def hands(held: Holdings) -> list[np.ndarray]:
    named = (held.victim_with, held.victim_without, held.attacker_with, held.attacker_without, held.public)
    return [*named, *held.others]


@pytest.mark.parametrize("participants", [2, 3, 6])
def test_nobody_shares_a_record_with_anybody(participants: int) -> None:
    rows = np.concatenate(hands(deal(participants)))
    assert len(rows) == len(set(rows.tolist()))
    assert len(rows) == 1000 if participants > 2 else len(rows) < 1000


def test_the_property_is_as_it_was_dealt() -> None:
    held = deal()
    assert (HAS[held.victim_with] == 1).all() and (HAS[held.attacker_with] == 1).all()
    assert (HAS[held.victim_without] == 0).all() and (HAS[held.attacker_without] == 0).all()
    assert not (HAS[np.concatenate(held.others)] == 1).any()
    assert len(held.attacker_with) == round(0.3 * (len(held.attacker_with) + len(held.victim_with)))
    assert len(held.victim_without) == len(held.victim_with)


def test_batches_have_the_share_that_was_asked_for() -> None:
    targets = np.random.default_rng(2).integers(0, 2, 1000)
    batches = Batches(deal(), targets, records=20, match_labels=False)
    rng = np.random.default_rng(3)
    assert (HAS[batches.victim(True, rng)] == 1).all() and (HAS[batches.victim(False, rng)] == 0).all()
    for share in (1.0, 0.8, 0.4, 0.0):
        rows = batches.emulated(share, rng)
        assert len(set(rows.tolist())) == 20 and (HAS[rows] == 1).sum() == round(20 * share)
    assert (HAS[batches.attacker(rng)] == 1).sum() == 4


def test_matched_batches_have_the_labels_of_those_with_the_property() -> None:
    """Records with the property are of class 1 in 9 of 10 cases, those without in 3: means of 50 batches of 16."""
    rng = np.random.default_rng(4)
    targets = (rng.random(1000) < np.where(HAS == 1, 0.9, 0.3)).astype(np.int64)
    means = {}
    for match in (False, True):
        batches = Batches(deal(), targets, records=16, match_labels=match)
        means[match] = np.mean([targets[batches.victim(False, rng)].mean() for _ in range(50)])
    assert means[False] == pytest.approx(0.3, abs=0.1)
    assert means[True] == pytest.approx(0.9, abs=0.1)


def test_labels_that_cannot_be_matched_are_refused() -> None:
    with pytest.raises(DataError, match="--match-labels needs records of class 1"):
        Batches(deal(), (HAS == 1).astype(np.int64), records=16, match_labels=True)


def test_too_few_records_are_refused_in_one_line() -> None:
    with pytest.raises(DataError, match="too few records: there are .* for the attacker with the property") as refused:
        deal(records=100)
    assert "\n" not in str(refused.value) and "lower --records" in str(refused.value)


def source(attributes: dict[str, np.ndarray]) -> Source:
    records = Records(torch.zeros(6, 2), torch.tensor([0, 1, 0, 1, 0, 1]))
    return Source("mine", records, records, 2, (2,), "made", attributes=attributes)


def test_properties_are_attributes_or_their_opposites() -> None:
    made = source({"young": np.array([1, 1, 0, 0, -1, 1])})
    assert property_of(made, "young").tolist() == [1, 1, 0, 0, -1, 1]
    assert property_of(made, "not-young").tolist() == [0, 0, 1, 1, -1, 0]


@pytest.mark.parametrize(
    ("attributes", "name", "problem"),
    [
        ({}, "young", "says nothing of its records"),
        ({"young": np.array([1, 1, 0, 0, 1, 1])}, "yuong", "unknown property 'yuong': did you mean 'young'"),
        ({"male": np.array([0, 1, 0, 1, 0, 1])}, "male", "is the main task itself"),
        ({"male": np.array([0, 1, -1, 1, 0, 1])}, "not-male", "is the main task itself"),
        ({"young": np.array([1, 1, 1, -1, 1, 1])}, "young", "nothing can be inferred"),
    ],
)
def test_what_cannot_be_inferred_is_refused_in_one_line(
    attributes: dict[str, np.ndarray], name: str, problem: str
) -> None:
    with pytest.raises((ConfigError, DataError), match=problem) as refused:
        property_of(source(attributes), name)
    assert "\n" not in str(refused.value)
