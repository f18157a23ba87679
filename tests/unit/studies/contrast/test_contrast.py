"""A network trained by contrast on made pictures: from a seed, to a file, to a front end."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from laconic.errors import ConfigError, RunFolderError
from laconic.features.kinds import Wanted
from laconic_studies.contrast.front_end import ContrastFrontEnd
from laconic_studies.contrast.network import contrast
from laconic_studies.contrast.scenes import Scenes
from laconic_studies.contrast.training import train_contrast

SHAPE = (1, 16, 16)


def trained(steps: int = 2, seed: int = 0) -> ContrastFrontEnd:
    return train_contrast(SHAPE, steps=steps, width=4, batch=16, seed=seed)


def test_views_of_a_scene_are_pictures_that_resemble_each_other() -> None:
    rng = torch.Generator().manual_seed(0)
    scenes = Scenes.draw(200, 3, rng)
    first, second = scenes.view((16, 20), rng), scenes.view((16, 20), rng)
    assert first.shape == (200, 3, 16, 20) and float(first.min()) >= 0 and float(first.max()) <= 1
    assert not torch.equal(first, second)
    own = (first - second).square().flatten(1).mean(1)
    other = (first - second.roll(1, 0)).square().flatten(1).mean(1)
    assert float((own < other).float().mean()) > 0.8


def test_the_contrast_is_small_for_partners_that_are_alike_and_unlike_others() -> None:
    views = torch.eye(4)
    assert float(contrast(views, views, 0.1)) < 0.01
    assert float(contrast(views, views.roll(1, 0), 0.1)) > 5
    expected = torch.tensor(7.0).log()  # all of the seven others are alike
    assert float(contrast(torch.ones(4, 1), torch.ones(4, 1), 0.1)) == pytest.approx(float(expected))


def test_training_follows_from_its_seed() -> None:
    assert trained().digest == trained().digest != trained(seed=1).digest


@pytest.mark.slow
def test_training_lowers_the_contrast() -> None:
    losses: list[float] = []
    train_contrast(
        SHAPE, steps=200, width=4, batch=16, learning_rate=0.01, report=lambda step, loss: losses.append(loss)
    )
    assert losses[-1] < losses[0] - 0.1


def test_its_file_is_the_front_end_and_features_depend_on_one_record_only(tmp_path: Path) -> None:
    front_end, images = trained(), torch.rand(6, *SHAPE)
    (tmp_path / "net").write_bytes(front_end.to_bytes())
    again = ContrastFrontEnd.read(tmp_path / "net", SHAPE)
    assert torch.equal(again(images), front_end(images)) and again.digest == front_end.digest
    assert again(images).shape[1:] == again.output_shape == (16, 3, 3)
    assert torch.allclose(again(images[:1]), again(images)[:1], atol=1e-5)
    assert "made images of dead leaves alone" in again.sentence
    with pytest.raises(ConfigError, match="--shape 1x20x20"):
        ContrastFrontEnd.read(tmp_path / "net", (1, 20, 20))
    (tmp_path / "net").write_bytes(front_end.to_bytes()[:-3])
    with pytest.raises(ConfigError, match="damaged"):
        ContrastFrontEnd.read(tmp_path / "net", SHAPE)


def test_whitened_together_with_scattering(tmp_path: Path) -> None:
    (tmp_path / "net").write_bytes(trained().to_bytes())
    wanted = Wanted(name="scattering+contrast", weights=str(tmp_path / "net"), features=10, projection="public")
    images = torch.rand(40, *SHAPE)
    front_end = wanted.made(SHAPE, public=images, source="noise")
    assert front_end(images).shape == (40, 10)
    (tmp_path / "joined").write_bytes(front_end.to_bytes())
    assert torch.equal(type(front_end).load(tmp_path / "joined")(images), front_end(images))
    with pytest.raises(ConfigError, match="is no network"):
        ContrastFrontEnd.read(tmp_path / "joined", SHAPE)
    with pytest.raises(RunFolderError, match="another front end"):
        ContrastFrontEnd.load(tmp_path / "joined")


@pytest.mark.parametrize("shape", [(7,), (1, 8, 8), (16, 16)])
def test_what_is_no_picture_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ConfigError, match="needs images"):
        train_contrast(shape, steps=1)
