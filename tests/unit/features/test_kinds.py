"""Frozen modules of the user's own, features of tables, and several front ends side by side."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import own_front_ends
import pytest
import torch
from torch import nn

import laconic
from laconic.data.synthetic import dead_leaves
from laconic.errors import ConfigError, DataError, RunFolderError
from laconic.experiment.about import about_mechanism
from laconic.features.base import FrontEnd
from laconic.features.kinds import Wanted
from laconic.features.module import module_front_end
from laconic.features.population import in_blocks
from laconic.features.tables import fourier_front_end, median_distance
from laconic.runner.run import Run
from laconic.settings.build import settle
from laconic.settings.config import RunConfig

SHAPE = (1, 8, 8)
NET = "own_front_ends:net"


def kept(front_end: FrontEnd, path: Path, factory: str | None = None) -> FrontEnd:
    """Written down and read back."""
    (path / "f").write_bytes(front_end.to_bytes())
    return FrontEnd.load(path / "f", factory=factory)


# --- a module of one's own ---


def test_a_frozen_module_is_a_fixed_map_that_is_named_by_its_weights_and_its_source(tmp_path: Path) -> None:
    front_end, again, other = (module_front_end(NET, SHAPE, seed=seed) for seed in (1, 1, 2))
    images = torch.rand(5, *SHAPE)
    assert torch.equal(front_end(images), again(images))
    assert front_end.digest == again.digest != other.digest
    assert front_end.about["weights"] in front_end.sentence and front_end.about["code"] in front_end.sentence
    assert front_end.output_shape == (12,) and not front_end.module.training
    assert not any(p.requires_grad for p in front_end.parameters())
    back = kept(front_end, tmp_path, NET)
    assert back.digest == front_end.digest and torch.equal(back(images), front_end(images))


def test_a_name_in_a_file_is_never_imported(tmp_path: Path) -> None:
    """Whoever writes a file could otherwise choose what runs."""
    front_end = module_front_end(NET, SHAPE)
    front_end.about["factory"] = "os:system"
    for factory in (None, NET):
        with pytest.raises(ConfigError, match="os:system, which is code"):
            kept(front_end, tmp_path, factory)


def test_other_weights_or_other_code_are_another_front_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    front_end = module_front_end(NET, SHAPE)
    for key in ("weights", "code"):
        changed = dict(front_end.about) | {key: "0" * 64}
        monkeypatch.setattr(front_end, "about", changed)
        with pytest.raises(ConfigError, match=r"its (weights|source code) changed"):
            kept(front_end, tmp_path, NET)
    source = Path(own_front_ends.__file__).read_text()
    monkeypatch.syspath_prepend(str(tmp_path))
    digests = set()
    for name, text in (("own_a", source), ("own_b", source.replace("nn.ReLU()", "nn.Tanh()"))):
        (tmp_path / f"{name}.py").write_text(text)
        digests.add(module_front_end(f"{name}:net", SHAPE).about["code"])
    assert len(digests) == 2


@pytest.mark.parametrize(
    ("name", "options", "reason"),
    [
        ("own_front_ends:batch_dependent", {}, "other features in another batch"),
        ("own_front_ends:always_training", {}, r"second time|another batch|changes when"),
        ("own_front_ends:custom", {"kind": "random"}, "draws random numbers"),
        ("own_front_ends:custom", {"kind": "remembers"}, "changes when it is used"),
        ("own_front_ends:custom", {"kind": "not finite"}, "not finite"),
        ("own_front_ends:custom", {"kind": "a tuple"}, "gave a tuple"),
        ("own_front_ends:custom", {"kind": "one number"}, "must give a tensor"),
        ("own_front_ends:custom", {"kind": "fails"}, r"cannot take records of shape \(1, 8, 8\)"),
        ("own_front_ends:not_to_be_copied", {}, "cannot be frozen"),
        ("own_front_ends:no_module", {}, "gave a list, not a torch.nn.Module"),
        ("own_front_ends:fails", {}, r"cannot be built: no weights here$"),
        ("own_front_ends:NOT_A_FUNCTION", {}, "is a int, not a function"),
        ("own_front_ends:nett", {}, "did you mean 'net'"),
        ("nowhere.at_all:net", {}, "cannot import 'nowhere.at_all'"),
        (NET, {"widht": 3}, "did you mean 'width'"),
        (":net", {}, "write it as package.module:name"),
    ],
)
def test_what_is_no_front_end_is_refused_in_one_line(name: str, options: dict[str, Any], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason) as refused:
        module_front_end(name, SHAPE, options=options)
    assert "\n" not in str(refused.value)


def test_features_that_are_not_finite_end_the_run() -> None:
    front_end = module_front_end("own_front_ends:only_big_pixels", SHAPE)
    with pytest.raises(DataError, match="not finite"):
        in_blocks(front_end, torch.zeros(3, *SHAPE), torch.device("cpu"))


# --- tables ---


def test_inner_products_of_fourier_features_are_the_kernel() -> None:
    front_end = fourier_front_end((3,), features=20_000, bandwidth=1.5)
    x, y = torch.tensor([[0.2, -1.0, 0.5]]), torch.tensor([[1.0, 0.3, 0.1]])
    expected = math.exp(-float((x - y).square().sum()) / (2 * 1.5**2))
    assert float(front_end(x) @ front_end(y).T) / 20_000 == pytest.approx(expected, abs=0.02)
    wrong = fourier_front_end((3,), features=20_000, bandwidth=0.5)
    assert float(wrong(x) @ wrong(y).T) / 20_000 != pytest.approx(expected, abs=0.02)


def test_the_bandwidth_is_given_or_measured_on_public_rows(tmp_path: Path) -> None:
    rows = torch.tensor([[0.0], [1.0], [3.0]])
    assert median_distance(rows) == 2.0
    front_end = fourier_front_end((1,), features=4, public=rows, source="3 public rows")
    assert "bandwidth 2 (the median distance in 3 public rows)" in front_end.sentence
    assert kept(front_end, tmp_path).digest == front_end.digest
    with pytest.raises(ConfigError, match="not taken from the clients' records"):
        fourier_front_end((1,), features=4)
    with pytest.raises(ConfigError, match="all alike"):
        median_distance(torch.ones(5, 2))


def test_public_components_of_a_table(tmp_path: Path) -> None:
    public = torch.randn(200, 6) @ torch.randn(6, 6)
    front_end = Wanted(name="pca", features=3, projection="public").made((6,), public=public, source="200 public rows")
    assert front_end.output_shape == (3,)
    assert "3 leading principal components of 200 public rows" in front_end.sentence
    assert torch.equal(kept(front_end, tmp_path)(public), front_end(public))


def test_rows_keep_their_lengths_unless_an_older_file_says_otherwise(tmp_path: Path) -> None:
    public = torch.randn(200, 6) @ torch.randn(6, 6)
    front_end = Wanted(name="pca", features=3, projection="public").made((6,), public=public, source="200 public rows")
    found = front_end(public)
    assert torch.allclose(found.T @ found / 200, torch.eye(3), atol=0.01)  # whitened, up to the ridge
    assert float(found.norm(dim=1).std()) > 0.1
    front_end.about.pop("lengths")
    older = kept(front_end, tmp_path)
    assert torch.allclose(older(public).norm(dim=1), torch.full((200,), 3**0.5), atol=1e-4)


# --- side by side ---


def test_front_ends_side_by_side_count_alike_on_public_images(tmp_path: Path) -> None:
    images = dead_leaves(80, SHAPE, np.random.default_rng(0))
    wanted = Wanted(name=f"scattering+{NET}", features=20, projection="public", mirror=True)
    front_end = wanted.made(SHAPE, public=images, source="80 leaves")
    raw = (front_end.raw(images) + front_end.raw(images.flip(-1))) / 2
    assert raw.shape == (80, 324 + 12)
    assert [float(part.var(0, correction=0).sum()) for part in (raw[:, :324], raw[:, 324:])] == pytest.approx([1, 1])
    assert torch.allclose(front_end(images), front_end(images.flip(-1)), atol=1e-4)
    assert "scattering transform" in front_end.sentence and NET in front_end.sentence
    back = kept(front_end, tmp_path, NET)
    assert torch.equal(back(images), front_end(images)) and back.digest == front_end.digest
    with pytest.raises(ConfigError, match="which is code"):
        kept(front_end, tmp_path)


# --- from a configuration ---

DIGITS: dict[str, Any] = {"data.dataset": "digits", "data.num_clients": 40, "run.rounds": 2, "run.device": "cpu"}


def config(**changes: Any) -> RunConfig:
    return RunConfig().with_values(DIGITS | {f"front_end.{key}": value for key, value in changes.items()})


def test_a_module_from_a_configuration_has_its_hash_in_the_statement() -> None:
    settled = settle(config(name=NET, width=7))
    mechanism = about_mechanism(settled.experiment)
    assert mechanism["front_end_digest"] == settled.experiment.front_end.digest
    assert mechanism["front_end"].startswith(f"frozen module {NET} of 1×8×8 records, weights ")
    result = Run(settled.experiment).run()
    assert result.model(torch.rand(2, *SHAPE)).shape == (2, 10)
    assert result.model.head(torch.zeros(1, 7)).shape == (1, 10)


def test_another_module_is_another_run(tmp_path: Path) -> None:
    clients = [(torch.rand(6, *SHAPE), torch.arange(6) % 2) for _ in range(8)]
    options: dict[str, Any] = {"clients": clients, "sampling_rate": 0.5, "model": nn.Linear(12, 2)}
    scheme = laconic.schemes.fl_std(local_lr=0.1, local_steps=1)
    nn.init.zeros_(options["model"].weight)
    laconic.run(scheme, front_end=NET, rounds=1, out=tmp_path / "a", **options)
    other = module_front_end(NET, SHAPE, seed=5)
    with pytest.raises(RunFolderError, match="another front end"):
        laconic.run(scheme, front_end=other, rounds=2, out=tmp_path / "a", resume=True, **options)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"name": "fourier"}, "--front-end-features K"),
        ({"name": "fourier", "features": 5}, "not taken from the clients' records"),
        ({"name": "fourier", "features": 5, "bandwidth": -1.0}, "bandwidth"),
        ({"name": "fourier", "features": 5, "bandwidth": 1.0, "projection": "public"}, "its features are drawn"),
        ({"name": "fourier", "features": 5, "bandwidth": 1.0, "images": 9}, "--front-end-images means nothing"),
        ({"name": "pca"}, "needs --front-end-features"),
        ({"name": "pca", "features": 5, "projection": "random"}, "leave out --front-end-projection"),
        ({"name": "pca", "features": 5}, "needs public images"),
        ({"name": "pca", "features": 5, "mirror": True}, "--front-end-mirror means nothing"),
        ({"name": "contrast"}, "needs --front-end-weights FILE"),
        ({"name": "contrast", "weights": "nowhere.safetensors"}, "needs images"),
        ({"name": "scattering", "weights": "x"}, "--front-end-weights means nothing"),
        ({"name": "scattering", "bandwidth": 1.0}, "--front-end-bandwidth means nothing"),
        ({"name": "scattering", "widht": 1}, "key in [front_end] 'widht'"),
        ({"name": "scattering+pca"}, "pca stands alone"),
        ({"name": "scattering+scattering"}, "each may be named once"),
        ({"name": f"{NET}+own_front_ends:custom"}, "one of them may be your own"),
        ({"name": "scatering+contrast"}, "did you mean 'scattering'"),
        ({"name": ""}, "front end ''"),
        ({"width": 7}, "means nothing without --front-end"),
    ],
)
def test_options_that_do_not_go_together(changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(ConfigError) as refused:
        settle(config(**changes))
    assert reason in str(refused.value)
