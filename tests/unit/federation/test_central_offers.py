"""No node takes part where the server would add the noise, or say whose turn it is: not even if a server offers it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from node_tools import SERVER, make_offer, model

import laconic.federation.offer as offers
from laconic import schemes
from laconic.errors import ConfigError
from laconic.federation.node.node import Node
from laconic.guard.folder import NodeFolder
from laconic.guard.policy import Policy
from laconic.guard.transcript import REFUSED
from laconic.privacy.accounting.sampling import Cyclic
from laconic.privacy.mechanism.correlated import CorrelatedGaussian

NOISE = CorrelatedGaussian(noise_multiplier=1.0, coefficients=(1024, 512))
SCHEME = replace(schemes.fl_std_dp(clip_norm=0.5, noise_multiplier=1.0, local_lr=0.1, local_steps=2), noise=NOISE)
TURNS = Cyclic(separation=2)


def unread(offer: offers.Offer) -> Any:
    raise AssertionError("a record was read")


@pytest.mark.parametrize(
    ("changes", "words", "told"),
    [
        (
            {"scheme": SCHEME, "sampler": TURNS},
            "the server would add the noise",
            "the noise of a sum is less than its noise multiplier says",
        ),
        ({"sampler": TURNS}, "take turns are for simulations", "take turns are for simulations"),
    ],
    ids=["central noise", "turns"],
)
def test_such_an_offer_is_none(
    changes: dict[str, Any], words: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ConfigError, match=words):
        make_offer(**changes)
    with monkeypatch.context() as lying:  # a server that does not check what it offers
        lying.setattr(offers, "check_noise_of_nodes", lambda scheme, sampler: None)
        signed = offers.sign_offer(make_offer(**changes), 0, SERVER)
    node = Node(NodeFolder(tmp_path), Policy(min_cohort=1), model=lambda offer: model(), records=unread)
    answer = node.answer("keys", {"offer": signed})
    assert told in str(answer[REFUSED])
