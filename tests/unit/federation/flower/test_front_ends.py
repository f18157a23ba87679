"""A front end in a federation: made by every node, or read from its owner's file, and never loaded from a server."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr", reason="flwr is not installed: pip install '.[flower]'")

import torch
from flower_tools import PRIVATE, SEED, SERVER, SIZES, LocalFederation, config_for, offer_of, refusal, weights_of

from conftest import make_population
from laconic.data.federated import FederatedData
from laconic.data.population import Records
from laconic.errors import ConfigError, PrivacyError, WireError
from laconic.federation.entropy import TEST_SEED
from laconic.federation.flower.server_app import ServerData, run_federation
from laconic.federation.front_ends import OfferedFrontEnd, own_front_end
from laconic.federation.offer import Offer, read_offer, sign_offer
from laconic.runner.outcome import RunResult
from laconic.settings.build import Settled, settle
from laconic.settings.config import RunConfig
from laconic.store.folder import RunFolder

SHAPE = (1, 8, 8)
SCATTERING = {"front_end.name": "scattering", "model.name": "auto", "run.rounds": 2}
PUBLIC = {"front_end.projection": "public", "front_end.features": 12, "front_end.images": 60}
RANDOM = {"front_end.projection": "random", "front_end.features": 20}
LEAVES = SCATTERING | PUBLIC | {"data.public_dataset": "dead-leaves", "front_end.mirror": True}


def pictures(count: int, seed: int) -> Records:
    drawn = torch.Generator().manual_seed(seed)
    return Records(torch.rand(count, *SHAPE, generator=drawn), torch.randint(0, 3, (count,), generator=drawn))


class PictureFederation(LocalFederation):
    """The same five nodes, with pictures of 8 × 8 pixels."""

    def __post_init__(self) -> None:
        super().__post_init__()
        pool = pictures(sum(SIZES), seed=1)
        self.population = make_population(SIZES)
        self.population = type(self.population)(pool, [self.population.rows(n) for n in range(len(SIZES))])
        self.test, self.public = pictures(40, seed=2), pictures(20, seed=3)

    def settled(self, config: RunConfig | None = None) -> Settled:
        return settle(config or self.config, FederatedData(self.population, self.test, None, self.public, 3, SHAPE))

    def run(self, *, resume: bool = False, config: RunConfig | None = None) -> RunResult:
        data = ServerData(example=self.test.some(np.arange(2)), num_classes=3, test=self.test, public=self.public)
        folder, key = RunFolder(self.path / "run"), self.path / "server.key"
        return run_federation(self.grid, config or self.config, data.federation, folder=folder, key=key, resume=resume)


@pytest.mark.parametrize(
    ("scheme", "changes"),
    [
        ("fl-std-dp", PRIVATE | LEAVES),
        ("fl-sign", SCATTERING | RANDOM | {"model.name": "mlp", "model.hidden": 4, "scheme.downlink": "half"}),
    ],
)
def test_a_head_behind_a_front_end_is_the_simulators(
    scheme: str, changes: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(TEST_SEED, str(SEED))
    some = PictureFederation(tmp_path, config_for(scheme, **changes))
    result, again = some.run(), some.simulated()
    assert torch.equal(weights_of(result), weights_of(again))
    assert [row["accuracy"] for row in result.history] == [row["accuracy"] for row in again.history]
    assert result.statement["mechanism"]["front_end"] if "dp" in scheme else True


def offered(path: Path, **changes: Any) -> tuple[PictureFederation, Offer]:
    some = PictureFederation(path, config_for("fl-std", **LEAVES | changes))
    return some, offer_of(some)


def test_an_offer_carries_what_a_front_end_is_made_from(tmp_path: Path) -> None:
    _, offer = offered(tmp_path)
    again = read_offer(sign_offer(offer, 0, SERVER))[1]
    assert again == offer and offer.front_end is not None
    assert (offer.front_end.leaves, offer.head_shape, offer.model_options) == (60, (12,), {"zero": True})


@pytest.mark.parametrize(
    "lie",
    [{"digest": "0" * 64}, {"mirror": False}, {"leaves": 61}, {"ridge": 0.5}, {"source": "the clients' pictures"}],
)
def test_a_lie_about_the_front_end_is_refused_before_any_record_is_read(tmp_path: Path, lie: dict[str, Any]) -> None:
    some, offer = offered(tmp_path)
    assert offer.front_end is not None
    assert not refusal(some, offer)
    lying = replace(offer, front_end=replace(offer.front_end, **lie), run=bytes(16))
    some.population = None  # type: ignore[assignment] # whoever reads records now fails
    assert "is not the server's" in refusal(some, lying)


def test_what_no_node_can_make_comes_from_its_owners_file(tmp_path: Path) -> None:
    """The server's projection is of public pictures that nodes do not have: each owner gets the file by another way."""
    some = PictureFederation(tmp_path, config_for("fl-std", **SCATTERING | PUBLIC))
    offer = offer_of(some)
    assert offer.front_end is not None and offer.front_end.leaves == 0
    with pytest.raises(PrivacyError, match="no node can make it again"):
        some.run()
    file = tmp_path / "run/front_end.safetensors"  # which the server leaves there for the owners
    some.front_end = file
    assert len(some.run().history) == 2
    _, another = offered(tmp_path / "other")
    with pytest.raises(WireError, match="is not the server's"):
        own_front_end(another, file)
    file.write_bytes(b"\x80\x04cos\nsystem\n.")
    with pytest.raises(ConfigError, match="is no front_end.safetensors"):
        own_front_end(offer, file)


NET = {"front_end.name": "own_front_ends:net", "front_end.width": 9, "model.name": "auto", "run.rounds": 2}


def test_a_module_is_the_owners_and_never_the_servers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every node has the code and names it; a server that names other code gets a refusal, and nothing is imported."""
    monkeypatch.setenv(TEST_SEED, str(SEED))
    some = PictureFederation(tmp_path, config_for("fl-std", **NET), front_end_module="own_front_ends:net")
    assert torch.equal(weights_of(some.run()), weights_of(some.simulated()))
    offer = offer_of(some)
    assert offer.front_end is not None and offer.head_shape == (9,)
    assert not refusal(some, offer)
    some.population = None  # type: ignore[assignment] # whoever reads records now fails
    for lie in ({"digest": "0" * 64}, {"options": {"width": 9, "extra": 1}}, {"mirror": True}, {"shape": (8,)}):
        lying = replace(offer, front_end=replace(offer.front_end, **lie), run=bytes(16))
        assert refusal(some, lying), lie
    named = replace(offer, front_end=replace(offer.front_end, name="os:system"), run=bytes(16))
    assert "which is code" in refusal(some, named)
    some.front_end_module = None
    assert "--front-end-module" in refusal(some, replace(offer, run=bytes(16)))


def test_fourier_features_of_tables_are_made_by_every_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TEST_SEED, str(SEED))
    fourier = {"front_end.name": "fourier", "front_end.features": 16, "model.name": "auto", "run.rounds": 2}
    for number, bandwidth in enumerate(({"front_end.bandwidth": 2.0}, {"data.public_records": 20})):
        some = LocalFederation(tmp_path / str(number), config_for("fl-std", **fourier | bandwidth))
        assert torch.equal(weights_of(some.run()), weights_of(some.simulated()))


PATCHES: dict[str, Any] = {"name": "patches", "patterns": 16, "leaves": 100, "shape": (32, 4, 4)}
PROJECTED: dict[str, Any] = {"projection": "public", "features": 9, "shape": (9,)}


def test_patches_of_usual_pictures_are_an_offer() -> None:
    for shape in ((1, 28, 28), (3, 32, 32), (3, 64, 64)):
        OfferedFrontEnd(digest="0" * 64, **PATCHES | {"patterns": 1600, "leaves": 1000}).check(shape)
        joined = PATCHES | PROJECTED | {"name": "scattering+patches", "patterns": 128, "leaves": 10_000}
        if shape[1] <= 32:
            OfferedFrontEnd(digest="0" * 64, **joined).check(shape)


@pytest.mark.parametrize(
    "changes", [{}, {"front_end.name": "scattering+patches"}, RANDOM, PUBLIC | {"front_end.mirror": True}]
)
def test_patches_of_dead_leaves_are_made_by_every_node(tmp_path: Path, changes: dict[str, Any]) -> None:
    """Also without a projection: what the patterns were learnt from is in the digest, so the offer must say it."""
    asked = {"front_end.name": "patches", "front_end.patterns": 8, "front_end.images": 60, "model.name": "auto"}
    config = config_for("fl-std", **asked | {"data.public_dataset": "dead-leaves"} | changes)
    some = PictureFederation(tmp_path, config)
    assert not refusal(some, offer_of(some))


@pytest.mark.parametrize(
    ("shape", "described"),
    [
        ((1, 8192, 8192), {}),
        ((1, 28, 28), {"name": "own:net", "shape": (1 << 30,)}),
        ((1 << 20,), {"name": "fourier", "shape": (1 << 12,), "features": 1 << 12}),
        (
            (1, 28, 28),
            {"name": "scattering+own:net", "shape": (9,), "features": 9, "projection": "public", "leaves": 10**9},
        ),
        ((1, 28, 28), {"name": "own:net", "shape": (9,), "features": 8, "projection": "random"}),
        ((3, 512, 512), {"projection": "public", "features": 9, "leaves": 100}),
        ((1, 28, 28), {"projection": "public", "features": 9, "leaves": 10**9}),
        ((1, 28, 28), {"projection": "random", "features": 10**12}),
        ((1, 28, 28), {"projection": "public", "features": 10, "leaves": -1}),
        ((1, 28, 28), {"name": "os:system"}),
        ((7,), {}),
        ((1, 256, 256), PATCHES | {"patterns": 2048}),  # the maps of a block of records
        ((1, 1024, 1024), PATCHES | {"leaves": 20}),
        ((1000, 8, 8), PATCHES),  # the covariance of patches
        ((7,), PATCHES),
        ((1, 28, 28), PATCHES | {"patterns": True}),
        ((1, 28, 28), PATCHES | {"patterns": 0}),
        ((1, 28, 28), {"name": "scattering", "patterns": 9}),
        ((3, 128, 128), PATCHES | PROJECTED | {"name": "scattering+patches"}),  # the covariance of features
        ((3, 224, 224), PROJECTED | {"name": "pca", "leaves": 100}),
    ],
)
def test_front_ends_that_would_fill_the_memory_are_no_offer(shape: tuple[int, ...], described: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        OfferedFrontEnd(digest="0" * 64, **described).check(shape)
