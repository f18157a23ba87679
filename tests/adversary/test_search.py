"""No lie that the search finds opens anything; and where a fix is undone, it finds one."""

from __future__ import annotations

import pytest
from adversary_sabotage import SABOTAGES, copied_keys_accepted, copied_keys_useful
from adversary_search import Sabotage, search


def searched(messages: int, length: int, stories: int = 40) -> None:
    """Search until nodes were sent so many messages, with longer and longer stories."""
    sent = 0
    while sent < messages:
        sent += search(stories, length)
        length += 1


@pytest.mark.parametrize(("messages", "length", "stories"), [(2_000, 10, 40), (1_500, 20, 15)])
def test_no_lie_opens_less_than_an_honest_sum(messages: int, length: int, stories: int) -> None:
    searched(messages, length, stories)


@pytest.mark.slow
@pytest.mark.parametrize("length", [15, 70])
def test_no_lie_in_a_long_search_opens_less_than_an_honest_sum(length: int) -> None:
    """200,000 of them."""
    searched(100_000, length)


def found(sabotage: Sabotage) -> bool:
    """Whether the search finds a sabotage, by short searches of several lengths: each fix has its own best one."""
    for stories in (20, 40, 80, 160):
        for length in (3, 5, 2, 4, 6):
            try:
                search(stories, length, sabotage)
            except AssertionError:
                return True
    return False


@pytest.mark.parametrize("sabotage", SABOTAGES, ids=lambda sabotage: sabotage.__name__)
def test_every_fix_is_missed_when_it_is_undone(sabotage: Sabotage) -> None:
    assert found(sabotage)


def test_a_copied_key_is_worthless_even_where_it_is_accepted() -> None:
    """Numbers in every derivation hold by themselves; without them a copied key opens one node."""
    search(40, 2, copied_keys_accepted, only_leaks=True)
    with pytest.raises(AssertionError, match="fewer than 3 honest codes"):
        search(400, 2, copied_keys_useful, only_leaks=True)
