"""Patterns learnt from public images, and where a picture shows them."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save
from torch.nn import functional

import laconic
from laconic.data.synthetic import dead_leaves
from laconic.errors import ConfigError, LaconicError
from laconic.features import patches, projection
from laconic.features.base import FrontEnd
from laconic.features.kinds import JoinedFrontEnd, Wanted
from laconic.features.patches import CONTRAST, SIDE, THRESHOLD, PatchesFrontEnd, learnt
from laconic.features.population import in_blocks
from laconic.features.projection import leading_directions
from laconic.settings.build import settle
from laconic.settings.config import RunConfig

SHAPE = (1, 12, 12)
LEAVES = dead_leaves(300, SHAPE, np.random.default_rng(0))


def made(name: str = "patches", **options: Any) -> FrontEnd:
    return Wanted(name=name, patterns=8, **options).made(SHAPE, public=LEAVES, source="300 images of dead leaves")


def test_features_are_the_formula_place_by_place() -> None:
    """√ of the mean over a part of max(0, ±z − ½), with z = ⟨F, p⟩/√(var(p) + c) + b for every patch p."""
    filters, offsets = learnt(LEAVES, 8)
    front_end = PatchesFrontEnd(SHAPE, filters, offsets)
    picture = LEAVES[:1]
    patches = functional.unfold(picture, SIDE)[0].T.double()
    spread = (patches.var(1, correction=0) + CONTRAST).sqrt()
    centred = patches - patches.mean(1, keepdim=True)
    seen = (centred @ filters.flatten(1).double().T) / spread[:, None] + offsets.double()
    strong = torch.cat([(seen - THRESHOLD).clamp(min=0), (-seen - THRESHOLD).clamp(min=0)], dim=1)
    maps = strong.T.reshape(1, 16, 7, 7)
    expected = functional.adaptive_avg_pool2d(maps, 4).sqrt()
    torch.testing.assert_close(front_end(picture).double(), expected, atol=1e-3, rtol=1e-3)
    assert front_end.output_shape == (16, 4, 4) == tuple(front_end(picture).shape[1:])


def test_the_patterns_follow_from_the_images_and_are_whitened_directions() -> None:
    first, second, other = (learnt(images, 8) for images in (LEAVES, LEAVES, LEAVES.flip(2)))
    assert torch.equal(first[0], second[0]) and torch.equal(first[1], second[1])
    assert not torch.equal(first[0], other[0])
    means = first[0].flatten(1).mean(1)
    assert means.abs().max() < 1e-6, "a brighter patch is the same patch"
    gram = functional.normalize(first[0].flatten(1), dim=1)
    products = (gram @ gram.T - torch.eye(8)).abs()
    assert products.max() < 0.999, "no pattern is learnt twice"


def test_brightness_and_contrast_of_a_strong_edge_hardly_matter() -> None:
    front_end = made()
    picture = torch.zeros(1, *SHAPE)
    picture[..., 6:] = 1.0
    ours, darker = front_end(picture), front_end(picture * 0.7 + 0.2)
    assert (ours - darker).norm() < 0.05 * ours.norm()
    flat = front_end(torch.full((1, *SHAPE), 0.4))
    assert flat.norm() < 0.5 * ours.norm()


def test_a_record_has_the_same_features_in_any_company_and_as_bytes() -> None:
    front_end = made(mirror=True)
    several, alone = front_end(LEAVES[:9]), front_end(LEAVES[4:5])
    torch.testing.assert_close(several[4:5], alone)
    whole = (LEAVES[:3] * 255).to(torch.uint8)
    torch.testing.assert_close(front_end(whole), front_end(whole.float() / 255))
    torch.testing.assert_close(front_end(LEAVES[:3].flip(-1)), front_end(LEAVES[:3]), atol=1e-5, rtol=1e-4)


def test_threads_change_no_bit() -> None:
    front_end, threads = made(), torch.get_num_threads()
    found = []
    try:
        for number in (1, 3):
            torch.set_num_threads(number)
            found.append(in_blocks(front_end, LEAVES, torch.device("cpu")))
            assert torch.get_num_threads() == number
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(*found)


def test_code_of_the_user_s_own_is_called_by_one_thread_alone() -> None:
    class Own(torch.nn.Module):
        """Remembers who called it."""

        def __init__(self) -> None:
            super().__init__()
            self.callers: set[int] = set()

        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            self.callers.add(threading.get_ident())
            return inputs.flatten(1)

    own, threads = Own(), torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        in_blocks(own, LEAVES, torch.device("cpu"))
    finally:
        torch.set_num_threads(threads)
    assert own.callers == {threading.get_ident()}
    assert made("scattering+patches").for_threads
    assert not made("scattering+own_front_ends:net").for_threads


def test_written_down_and_read_back_alone_and_joined(tmp_path: Path) -> None:
    for name in ("patches", "scattering+patches"):
        front_end = made(name, features=20, projection="public")
        (tmp_path / "f").write_bytes(front_end.to_bytes())
        back = FrontEnd.load(tmp_path / "f")
        assert back.digest == front_end.digest and torch.equal(back(LEAVES[:5]), front_end(LEAVES[:5]))
        assert "8 patterns of 6×6 pixels in 4×4 parts" in back.sentence
        assert "learnt from 300 images of dead leaves" in back.sentence
    assert isinstance(back, JoinedFrontEnd)


def test_the_digest_knows_the_patterns() -> None:
    ours, other = made(), Wanted(name="patches", patterns=8).made(SHAPE, public=LEAVES.flip(2), source="other")
    assert ours.digest != other.digest


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    whole = made().to_bytes()
    for damaged in (whole[: len(whole) // 2], whole.replace(b"patterns", b"patterms"), b""):
        (tmp_path / "f").write_bytes(damaged)
        with pytest.raises(LaconicError, match="damaged"):
            FrontEnd.load(tmp_path / "f")


@pytest.mark.parametrize(
    "changes",
    [
        {"patterns": 10**9},
        {"patterns": -1},
        {"patterns": float("inf")},
        {"input_shape": [1, 10**9, 8]},
        {"input_shape": "abc"},
        {"kind": "joined", "parts": []},
        {"kind": "joined", "parts": {}},
        None,
    ],
)
def test_a_file_that_lies_about_sizes_is_refused(tmp_path: Path, changes: dict[str, Any] | None) -> None:
    """The file may come from a server: what it says of itself is not yet what is in it."""
    front_end = made()
    about = [] if changes is None else front_end.about | changes
    (tmp_path / "f").write_bytes(save(front_end.tensors, metadata={"front_end": json.dumps(about)}))
    with pytest.raises(LaconicError, match="damaged"):
        FrontEnd.load(tmp_path / "f")


def test_a_file_with_numbers_that_are_none_is_refused(tmp_path: Path) -> None:
    """Otherwise it would be found out on records, and by whom that is told would depend on them."""
    front_end = made()
    front_end.filters[0, 0, 0, 0] = torch.nan
    (tmp_path / "f").write_bytes(front_end.to_bytes())
    with pytest.raises(LaconicError, match="not finite"):
        FrontEnd.load(tmp_path / "f")


def test_patches_of_large_pictures_are_cut_out_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """All patches of 4,000 pictures of 256 × 256 would be 36 GB."""
    monkeypatch.setattr(functional, "unfold", None)
    learnt(LEAVES, 8)


def test_features_in_small_pieces_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    front_end = made()
    whole = front_end(LEAVES[:9])
    monkeypatch.setattr(patches, "_AT_ONCE", 2 * 8 * 7 * 7)
    torch.testing.assert_close(front_end(LEAVES[:9]), whole)


def test_some_directions_of_a_large_matrix_are_those_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    features = torch.randn(500, 40, generator=torch.Generator().manual_seed(0)) * torch.linspace(1, 3, 40)
    mean, values, vectors = leading_directions(features, 6)
    monkeypatch.setattr(projection, "_WHOLE", 10)
    again = leading_directions(features, 6)
    assert torch.equal(mean, again[0])
    torch.testing.assert_close(values, again[1])
    torch.testing.assert_close((vectors.T @ again[2]).abs(), torch.eye(6), atol=1e-4, rtol=0)


def test_in_a_run_the_statement_names_what_was_learnt_from_what(tmp_path: Path) -> None:
    clients = list(zip(LEAVES.split(10), torch.arange(300).remainder(3).split(10), strict=True))
    front_end = laconic.public_front_end(
        "scattering+patches", SHAPE, images=LEAVES, features=20, patterns=8, source="300 dead leaves"
    )
    scheme = laconic.schemes.fl_std_dp(clip_norm=0.1, noise_multiplier=2.0, local_lr=0.1, local_steps=2)
    asked: dict[str, Any] = {"sampling_rate": 0.5, "rounds": 2, "delta": 1e-5, "device": "cpu"}
    result = laconic.run(scheme, model=torch.nn.Linear(20, 3), front_end=front_end, clients=clients, **asked)
    said = result.statement["mechanism"]["front_end"]
    assert "8 patterns" in said and "learnt from 300 dead leaves" in said
    assert result.statement["mechanism"]["front_end_digest"] == front_end.digest


def config(**values: Any) -> RunConfig:
    given = {"data.dataset": "digits", "front_end.name": "patches", "scheme.name": "fl-std", "run.rounds": 1}
    return RunConfig().with_values(given | {key.replace("__", "."): value for key, value in values.items()})


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({}, "--front-end patches learns its patterns from public images"),
        ({"front_end__patterns": 0, "data__public_dataset": "dead-leaves"}, "patterns"),
        ({"front_end__name": "scattering", "front_end__patterns": 9}, "--front-end-patterns means nothing without"),
        ({"front_end__name": "patch", "data__public_dataset": "dead-leaves"}, "did you mean 'patches'"),
        (
            {"front_end__patterns": 500, "front_end__images": 20, "data__public_dataset": "dead-leaves"},
            "500 patterns cannot be learnt from 20 public images",
        ),
        ({"front_end__patterns": 10**9, "data__public_dataset": "dead-leaves"}, "at most 10,000 patterns"),
        ({"front_end__name": "patches+patches", "data__public_dataset": "dead-leaves"}, "each may be named once"),
        ({"data__dataset": "synthetic", "data__public_dataset": "dead-leaves"}, "images"),
    ],
)
def test_what_cannot_be_is_refused(values: dict[str, Any], reason: str) -> None:
    with pytest.raises(LaconicError, match=reason):
        settle(config(**values))


def test_pictures_that_are_too_small_are_refused() -> None:
    with pytest.raises(ConfigError, match="8 × 8 or more"):
        Wanted(name="patches").made((1, 7, 9), public=torch.rand(50, 1, 7, 9))
    with pytest.raises(ConfigError, match="public images are of"):
        Wanted(name="patches").made((1, 9, 9), public=torch.rand(50, 1, 8, 8))


def test_a_run_on_the_smallest_pictures_is_settled_by_the_command_line_s_defaults() -> None:
    settled = settle(config(front_end__patterns=16, front_end__images=400, data__public_dataset="dead-leaves"))
    front_end = settled.experiment.front_end
    assert isinstance(front_end, PatchesFrontEnd) and front_end.output_shape == (32, 3, 3)
    assert settled.config.front_end.patterns == 16
