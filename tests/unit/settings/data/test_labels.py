"""How many classes labels make: as many as the largest says, unless hardly any of them occur."""

from __future__ import annotations

import pytest
import torch

from laconic.errors import DataError
from laconic.settings.data.declared import ClassCount, num_classes


def count(*clients: list[float] | list[int]) -> int:
    classes = ClassCount()
    for number, targets in enumerate(clients):
        classes.add(torch.tensor(targets), f"c{number}.npz")
    return classes.number


def test_the_largest_label_says_how_many_classes_there_are() -> None:
    assert num_classes(torch.tensor([0, 2]), "a.npz") == 3
    assert num_classes(torch.tensor([0, 0]), "a.npz") == 2  # one class could not be told from another
    assert count([5, 7], [6]) == 8


def test_real_targets_are_of_one_output_however_large() -> None:
    assert count([0.5, 1e6]) == 1


def test_a_small_sample_of_a_hundred_classes_passes() -> None:
    assert count([0, 1], [99]) == 100


def test_a_tenth_of_many_classes_is_enough() -> None:
    assert count(list(range(0, 10_000, 10)), [9_999]) == 10_000


def test_labels_that_are_other_numbers_are_refused_with_the_file_that_has_the_largest() -> None:
    with pytest.raises(DataError, match=r"c1.npz: .* 1,000,001 classes, but only 3 occur in all; renumber") as caught:
        count([0, 1], [1_000_000], [0])
    assert "\n" not in str(caught.value)
    with pytest.raises(DataError, match="256 classes"):
        count([0, 255])


def test_a_negative_label_is_refused_by_file() -> None:
    with pytest.raises(DataError, match="c1.npz: class targets must be numbered from 0"):
        count([0, 1], [-1])
