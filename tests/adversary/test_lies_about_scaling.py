"""A server that lies about the round that measures the columns, and about the figures that it tells afterwards.

The nodes are unchanged. Two nodes may have records of one patient, and coins draw half of the patients.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from adversary_knowledge import Watch
from adversary_world import SERVER, Attempt, World

from laconic import schemes
from laconic.clients import wire
from laconic.codecs.scaling import BIAS, SCALING, Moments, Scaled
from laconic.errors import ConfigError
from laconic.federation.node.training import NodeWork
from laconic.federation.offer import Offer
from laconic.federation.requests import REFUSED as REFUSAL
from laconic.federation.requests import Fields
from laconic.federation.weights import write_shared
from laconic.guard.contract import PARTS, SignedOffer
from laconic.guard.limits import planned
from laconic.guard.noise import MEAN_BITS
from laconic.guard.transcript import JOINED, UPLOADED
from laconic.packing import FLOAT32
from laconic.privacy.accounting.sampling import Poisson
from laconic.round import uplink_encoding

COLUMNS, QUANTITIES, OWNERS, COINS, ASKING = 6, 2, 2, 0.5, 6.0
MOMENTS = Moments(
    columns=COLUMNS, quantities=QUANTITIES, classes=3, bound=3.0, rare=0.01, noise_multiplier=ASKING, steepest=0.2
)
SCALED = replace(
    schemes.fl_std_dp(
        unit="patient",
        clip_norm=0.5,
        noise_multiplier=4.0,
        num_units=12,
        unit_rate=COINS,
        max_owners_per_patient=OWNERS,
    ),
    codec=Scaled(columns=COLUMNS, quantities=QUANTITIES, ones=4),
    queries=(MOMENTS,),
)


@pytest.fixture
def watch() -> Iterator[Watch]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        yield Watch(patch)


class ScalingWorld(World):
    """Six nodes with two patients each. Round 1 asks; what is told later is `shared`."""

    shared = b""

    def __init__(self, path: Path, **policy: Any) -> None:
        super().__init__(path, **policy)
        self.offer = replace(self.offer, scheme=SCALED, sampler=Poisson(sampling_rate=1.0))

    def asked(self, round: int = 1, attempt: int = 0) -> Attempt:
        scheme, size = SCALED.at(round), SCALED.at(round).codec.code_size(self.offer.size)
        plan = replace(self.offer.mechanism.typical_plan(), cohort=np.arange(self.clients), round=round)
        bits = uplink_encoding(scheme, size, plan).bits
        return self.attempt(round=round, attempt=attempt, size=size, bits=bits)

    def request(self, attempt: Attempt, told: Any = None) -> Fields:
        return super().request(attempt, told) | ({"shared": self.shared} if self.shared else {})


def rows(world: World, client: int, what: str) -> list[dict[str, Any]]:
    return [row for row in world.folder(client).log.rows() if row["what"] == what]


def told(**places: float) -> torch.Tensor:
    values = torch.cat([torch.zeros(COLUMNS), torch.ones(COLUMNS), torch.tensor([BIAS, 1.0])])
    for place, value in places.items():
        values[int(place.removeprefix("at"))] = value
    return values


def shared_of(values: torch.Tensor) -> bytes:
    return write_shared({SCALING: values}, SCALED.fingerprint)


# What it costs


def test_the_round_that_asks_is_a_release_of_its_own_in_the_contract(tmp_path: Path) -> None:
    """Every patient's part is clipped to 1/h there, as h nodes may have records of it."""
    offer = ScalingWorld(tmp_path).offer
    asks, trains = offer.contract.releases
    assert (asks.phase, asks.after, asks.last, asks.every) == ("scaling", 0, 1, 1)
    assert asks.code_size == MOMENTS.cells == QUANTITIES + COLUMNS + 3
    for release, sensitivity, multiplier in ((asks, 1.0, ASKING), (trains, 0.5, 4.0)):
        assert release.clip == PARTS and release.bound == sensitivity / OWNERS
        assert release.coins == COINS and release.owners == OWNERS
        assert 0.99 * multiplier <= release.multiplier <= multiplier


def test_the_round_that_asks_is_charged_at_its_own_price_before_a_record_is_read(tmp_path: Path, watch: Watch) -> None:
    world = ScalingWorld(tmp_path)
    world.invite_all()
    assert world.whole_round(world.asked()) == []
    (row,) = rows(world, 0, UPLOADED)
    seen = row["price"]["patient"]
    assert 0.99 * ASKING <= seen["noise_multiplier"] <= ASKING and seen["count"] == 1
    assert seen["rate"] == pytest.approx(1 - (1 - COINS) ** OWNERS)
    assert row["noise"]["share"] == pytest.approx(ASKING / (6 - world.offer.max_dropouts - 1) ** 0.5, rel=0.05)
    world.population = None  # type: ignore[assignment]
    assert world.ask_upload(world.asked(2), 0) == ""  # noise alone: charged all the same
    assert [row["price"]["patient"]["noise_multiplier"] for row in rows(world, 0, UPLOADED)] == [
        pytest.approx(ASKING, rel=0.01),
        pytest.approx(4.0, rel=0.01),
    ]


@pytest.mark.parametrize("unit", ["patient", "record"])
def test_a_limit_counts_the_round_that_asks(unit: str, tmp_path: Path) -> None:
    """With little noise of its own, that round breaks a limit which training keeps."""
    world = ScalingWorld(tmp_path / "figures")
    loud = replace(world.offer, scheme=replace(SCALED, queries=(replace(MOMENTS, noise_multiplier=0.8),)))
    quiet = planned(world.offer.contract, unit)
    assert planned(loud.contract, unit) > 1.1 * quiet
    limit = f"max_{unit}_participant_epsilon"
    world = ScalingWorld(tmp_path / "world", max_delta=1e-5, **{limit: 1.05 * quiet})
    assert f"above {limit}" in world.invite(0, loud)
    assert world.invite(0) == ""


def test_a_replay_of_the_round_that_asks_is_charged_once_and_a_repeat_again(tmp_path: Path, watch: Watch) -> None:
    world = ScalingWorld(tmp_path)
    world.invite_all()
    request = world.request(world.asked())
    first = world.send(0, "upload", request)
    assert REFUSAL not in first and world.send(0, "upload", request) == first
    world.restart(0)
    assert REFUSAL in world.send(0, "upload", request | {"shared": shared_of(told())})
    assert len(rows(world, 0, UPLOADED)) == 1
    world.send(0, "ready", {"run": world.offer.run})
    assert world.ask_upload(world.asked(attempt=1), 0) == ""
    assert len(rows(world, 0, UPLOADED)) == 2


def bent(offer: Offer, change: Callable[[dict[str, Any]], None]) -> bytes:
    values = json.loads(offer.to_bytes())
    change(values)
    body = json.dumps(values, sort_keys=True, separators=(",", ":")).encode()
    signed = SignedOffer(0, offer.server, body)
    return signed.to_bytes(SERVER.sign(signed.statement))


def _release(**fields: Any) -> Callable[[dict[str, Any]], None]:
    return lambda values: values["contract"]["releases"][0].update(fields)


def _query(**fields: Any) -> Callable[[dict[str, Any]], None]:
    return lambda values: values["scheme"]["queries"][0].update(fields)


LIES = {
    "the round is not in the contract": lambda values: values["contract"]["releases"].pop(0),
    "it has the price of more noise": _release(multiplier=60.0),
    "a larger part": _release(bound=1.0),
    "a whole code is bounded": _release(clip="l2"),
    "no coins": _release(coins=0.1),
    "one node for a patient": _release(owners=1),
    "fewer values": _release(code_size=3),
    "no noise": _query(noise_multiplier=0.0),
    "less noise than the contract says": _query(noise_multiplier=0.1),
    "a negative bound": _query(bound=-1.0),
    "columns that the records do not have": _query(columns=7),
    "quantities that the codec does not shift": _query(quantities=1),
    "more classes": _query(classes=30),
    "a codec for other columns": lambda values: values["scheme"]["codec"].update(columns=7),
    "values that fill the memory": lambda values: (
        values["scheme"]["queries"][0].update(columns=2**40),
        values["scheme"]["codec"].update(columns=2**40),
        values["contract"]["releases"][0].update(code_size=2**40 + 5),
    ),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_bent_offer_is_refused_before_a_record_is_read(lie: str, tmp_path: Path) -> None:
    world = ScalingWorld(tmp_path)
    world.population = None  # type: ignore[assignment]
    assert REFUSAL in world.send(0, "keys", {"offer": bent(world.offer, LIES[lie])})
    assert not rows(world, 0, JOINED)


def test_an_honest_offer_is_not_bent(tmp_path: Path) -> None:
    """Guards the test above."""
    world = ScalingWorld(tmp_path)
    assert "announcement" in world.send(0, "keys", {"offer": bent(world.offer, lambda values: None)})


def test_an_offer_whose_codec_fits_no_node_cannot_be_made(tmp_path: Path) -> None:
    """A model of another shape is refused on joining; other classes, when the offer is made."""
    world = ScalingWorld(tmp_path)
    narrow = replace(SCALED, codec=replace(SCALED.codec, columns=2), queries=())  # type: ignore[type-var]
    assert "one linear layer with a bias on 2 columns" in world.invite(0, replace(world.offer, scheme=narrow))
    with pytest.raises(ConfigError, match="shares of 3 classes, and there are 4"):
        replace(world.offer, num_classes=4)


# What is told


BAD = {
    "another length": told()[:-1],
    "no number": told(at0=float("nan")),
    "no scale": told(at7=0.0),
    "a scale below 0": told(at7=-1.0),
    "a scale beyond all": told(at7=float("inf")),
    "no bias": told(at12=0.0),
    "a shift of a column that only marks": told(at5=0.1),
}


@pytest.mark.parametrize("lie", BAD)
def test_a_scaling_that_is_none_is_refused_uncharged_and_forgotten(lie: str, tmp_path: Path, watch: Watch) -> None:
    """An honest one is taken afterwards: what could not be read was not kept."""
    world = ScalingWorld(tmp_path)
    world.invite_all()
    message = wire.Message("shared", 0, 0, 0, 0.0, SCALED.fingerprint, BAD[lie])
    world.shared = wire.encode(message, FLOAT32)
    assert world.ask_upload(world.asked(2), 0)
    assert not rows(world, 0, UPLOADED) and not watch.uploads
    world.shared = shared_of(told())
    assert world.ask_upload(world.asked(2), 0) == ""


def test_another_scaling_later_is_refused(tmp_path: Path, watch: Watch) -> None:
    """Also where the first was told before the round that asks."""
    world = ScalingWorld(tmp_path)
    world.invite_all()
    world.shared = shared_of(told())
    assert world.ask_upload(world.asked(), 0) == ""
    world.shared = shared_of(told(at7=2.0))
    assert "another shared before" in world.ask_upload(world.asked(2), 0)
    world.shared = b""
    assert world.ask_upload(world.asked(2), 0) == ""


@pytest.mark.parametrize("size", [1e-30, 1.0, 1e6, 3e38])
def test_no_scaling_lets_a_patient_exceed_its_part(
    size: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whole numbers on the grid, of all patients of a node: each is within S/h, and the noise is what was charged."""
    sums: list[torch.Tensor] = []
    vector = NodeWork.vector

    def noted(work: NodeWork, plan: Any, weights: Any) -> torch.Tensor:
        sums.append(vector(work, plan, weights))
        return sums[-1]

    monkeypatch.setattr(NodeWork, "vector", noted)
    noise = []
    for name, shared in (("usual", b""), ("told", shared_of(size * told(at0=-1.0)))):
        world = ScalingWorld(tmp_path / name)
        world.invite_all()
        world.shared = shared
        for number in range(4):
            assert world.ask_upload(world.asked(2, number), 0) == ""
        noise.append([row["noise"] for row in rows(world, 0, UPLOADED)])
        release = world.offer.contract.releases[1]
    assert noise[0] == noise[1] and len(sums) == 8
    part = release.units * release.bound * 2**MEAN_BITS
    for one in sums:
        assert float(one.double().norm()) <= 2 * part  # two patients
