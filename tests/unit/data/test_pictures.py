"""Pictures kept as bytes: what is picked is what an independent shift makes of the originals, bit for bit."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
import scipy.ndimage
import torch

from laconic.data.inputs import Pictures, concatenated, dense, tensors_of
from laconic.data.population import PooledPopulation, Records, gather
from laconic.errors import ConfigError
from laconic.streams import Streams

PIXELS = torch.from_numpy(np.random.default_rng(1).integers(0, 256, (12, 3, 10, 14), dtype=np.uint8))


def augmented(variants: int = 4, pixels: torch.Tensor = PIXELS, seed: int = 3) -> Pictures:
    return Pictures(pixels).augmented(variants, np.random.default_rng(seed))


def test_bytes_stand_for_zero_to_one() -> None:
    plain = Pictures(PIXELS)
    assert plain.shape == (12, 3, 10, 14) and plain.ndim == 4 and len(plain) == 12
    assert torch.equal(plain.dense(), PIXELS.to(torch.float32).div(255))
    floats = Pictures(torch.rand(5, 1, 4, 4))
    assert torch.equal(floats.dense(), floats.pixels)


@pytest.mark.parametrize("pixels", [PIXELS, PIXELS.float() / 255], ids=["bytes", "floats"])
def test_a_variant_is_what_scipy_shifts_and_mirrors(pixels: torch.Tensor) -> None:
    some = augmented(pixels=pixels)
    assert some.moves is not None
    for record, made in enumerate(some.dense().numpy()):
        down, right, mirrored = some.moves[record // 4, record % 4].tolist()
        original = PIXELS[record // 4].numpy() / 255
        for channel in range(3):
            shifted = scipy.ndimage.shift(original[channel], (down / 256, right / 256), order=1, mode="nearest")
            expected = shifted[:, ::-1] if mirrored else shifted
            np.testing.assert_allclose(made[channel], expected, atol=2e-6)


def test_a_variant_of_bytes_is_exact_up_to_one_division() -> None:
    """In whole numbers, so that no device and no fused product can round otherwise."""
    some = augmented(2)
    assert some.moves is not None
    for record, made in enumerate(some.dense().numpy()):
        down, right, mirrored = (int(m) for m in some.moves[record // 2, record % 2])
        rows, columns = np.arange(10) * 256 - down, np.arange(14) * 256 - right
        columns = columns[::-1] if mirrored else columns
        total = np.zeros((3, 10, 14), dtype=np.int64)
        for y, weight_y in ((rows // 256, 256 - rows % 256), (rows // 256 + 1, rows % 256)):
            for x, weight_x in ((columns // 256, 256 - columns % 256), (columns // 256 + 1, columns % 256)):
                there = PIXELS[record // 2].numpy()[:, y.clip(0, 9)][:, :, x.clip(0, 13)].astype(np.int64)
                total += there * weight_y[:, None] * weight_x
        assert total.max() < 2**24
        np.testing.assert_array_equal(made, total.astype(np.float32) / np.float32(255 * 65536))


def test_shifts_reach_a_tenth_of_each_side_and_half_of_the_pictures_are_mirrored() -> None:
    moves = augmented(2000).moves
    assert moves is not None
    down, right, mirrored = moves.reshape(-1, 3).T
    assert (down.abs().max(), right.abs().max()) == (256, 358)  # 10 and 14 pixels
    assert abs(down.double().mean()) < 5 and abs(right.double().mean()) < 7
    assert abs(mirrored.double().mean() - 0.5) < 0.02 and set(mirrored.tolist()) == {0, 1}


def test_the_same_seed_gives_the_same_variants_on_every_machine() -> None:
    pictures = Pictures(torch.arange(2 * 3 * 32 * 32).remainder(251).to(torch.uint8).reshape(2, 3, 32, 32))
    some = pictures.augmented(3, Streams(0).numpy("augmentation"))
    digest = hashlib.sha256(some.dense().numpy().tobytes()).hexdigest()
    assert digest[:16] == "9201e71eebc97937"
    other = pictures.augmented(3, Streams(1).numpy("augmentation"))
    assert not torch.equal(some.dense(), other.dense())


def test_records_are_picked_in_any_order_and_shape() -> None:
    some = augmented()
    everything = some.dense()
    assert everything.shape == some.shape == (48, 3, 10, 14)
    block = torch.tensor([[3, 47, 0], [5, 5, -1]])
    assert torch.equal(some[block], everything[block])
    assert torch.equal(some[np.array([7, 2])], everything[[7, 2]])
    assert torch.equal(some[4:20:3], everything[4:20:3])
    assert torch.equal(some[torch.arange(48) % 5 == 0], everything[::5])
    assert torch.equal(torch.cat(list(some.split(7))), everything)
    assert torch.equal(some.to("cpu")[block], everything[block])
    assert torch.equal(dense(concatenated([some, some])), torch.cat([everything, everything]))


def test_more_records_than_are_made_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    some = augmented()
    everything = some.dense()
    monkeypatch.setattr("laconic.data.inputs._PICTURES_AT_ONCE", 7)
    assert torch.equal(some.dense(), everything)


def test_ten_variants_take_hardly_more_memory_than_the_bytes() -> None:
    pixels = torch.zeros(1000, 3, 32, 32, dtype=torch.uint8)
    some = augmented(10, pixels)
    held = sum(tensor.nbytes for tensor in tensors_of(some))
    assert len(some) == 10_000 and held < 1.05 * pixels.nbytes
    assert all(tensor.data_ptr() != 0 for tensor in some.tensors)
    assert some.pixels.data_ptr() == pixels.data_ptr()  # not copied


def test_originals_stay_bytes_and_are_not_moved() -> None:
    few = augmented().originals(np.array([4, 1]))
    assert few.pixels.dtype == torch.uint8
    assert torch.equal(few.dense(), Pictures(PIXELS)[[4, 1]])


def test_a_cohort_of_clients_is_gathered_from_pictures() -> None:
    some = augmented()
    targets = torch.arange(48)
    population = PooledPopulation(Records(some, targets), [np.array([0, 9, 40]), np.array([7])])
    block = gather(population, [1, 0], torch.device("cpu"))
    assert torch.equal(block.inputs[1], some[[0, 9, 40]]) and torch.equal(block.inputs[0, :1], some[[7]])
    assert torch.equal(population.records(0).inputs[2], some[[40]][0])
    assert population.targets(0).tolist() == [0, 9, 40]


def test_only_pictures_are_augmented() -> None:
    with pytest.raises(ConfigError, match="--augment 3 is for pictures, not for records of \\(6,\\)"):
        Pictures(torch.zeros(4, 6)).augmented(3, np.random.default_rng(0))
    with pytest.raises(ConfigError, match="augment"):
        augmented(0)
