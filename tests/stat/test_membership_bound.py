"""No attack on a sum may beat what its noise allows; and the attack must be able to tell if noise were missing.

For each private scheme the lower confidence bound of the true positives is compared with the bound at the upper one of
the false positives, at 0.1 % and 1 %. A mechanism that keeps its promise fails one such test with probability 10⁻⁶ at
most (ALARM), whatever the attack does.
"""

from __future__ import annotations

import pytest
from inference_tools import asked, forgetful, private_schemes

from laconic.scheme import Scheme
from laconic_studies.inference.membership.game import Membership, MembershipGame, membership

pytestmark = pytest.mark.stat
ALARM = 1e-6
SIGMA = 2.0


def attacked(scheme: Scheme, level: str = "client", **options: int) -> Membership:
    numbers = {"targets": 2, "shadows": 500, "trials": 700, "draws": 4} | options
    (found,) = membership(asked(scheme), level=level, game=MembershipGame(**numbers, views=("others",)))
    return found


@pytest.mark.parametrize("name", private_schemes(SIGMA))
def test_no_scheme_gives_away_more_than_it_claims(name: str) -> None:
    assert not attacked(private_schemes(SIGMA)[name]).exceeds(ALARM)


@pytest.mark.parametrize("name", private_schemes(SIGMA))
def test_forgotten_noise_is_noticed(name: str) -> None:
    assert attacked(forgetful(private_schemes(SIGMA)[name])).exceeds(ALARM)


def test_the_attack_comes_near_to_what_is_possible() -> None:
    """Or it would notice nothing: a perfect one has an AUC of Φ(1/(σ·√2)) = 0.76 at σ = 1."""
    assert 0.66 < attacked(private_schemes(1.0)["fl-std-dp"]).roc.auc.value < 0.8


def test_a_record_is_protected_with_its_client() -> None:
    assert not attacked(private_schemes(SIGMA)["fl-std-dp"], level="record", shadows=200, trials=400).exceeds(ALARM)
