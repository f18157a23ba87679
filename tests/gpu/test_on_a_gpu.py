"""What runs on a GPU only: recorded graphs, kernels for many clients, sampling on the device. Skipped without one."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import laconic
from laconic.codecs.base import Identity
from laconic.codecs.dct import LowPassDCT
from laconic.codecs.solvers import Fista
from laconic.codecs.subset import FixedRandomSubset
from laconic.data.inputs import Pictures
from laconic.data.population import PooledPopulation, Records, gather
from laconic.errors import Diverged
from laconic.guard.noise import exact_tables
from laconic.models.networks import cnn, mlp
from laconic.models.registry import build_model
from laconic.plan import RoundPlan
from laconic.privacy.mechanism.clip import L2Clip
from laconic.privacy.mechanism.discrete_gaussian import draw_discrete_gaussian, fixed_point
from laconic.schemes import fl_std_dp
from laconic.streams import Stream, Streams
from laconic.train.engines.cohort import CohortAtOnce
from laconic.train.engines.engine import Task, products_in
from laconic.train.engines.one_by_one import OneByOne
from laconic.train.flat import FlatModel
from laconic.train.layers.conv import as_rows, input_gradients, window_of
from laconic.train.layers.dropout import KeyedDropout
from laconic.train.local import LocalSGD
from laconic.train.units.ghost import find_ghosts
from laconic.train.units.groups import Groups
from laconic.train.units.networks import NetworkUnits
from laconic.train.units.rounding import UnitGrid

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
CPU, GPU = torch.device("cpu"), torch.device("cuda")
SIZES = [9, 12, 7, 3, 12]

MODELS = {
    "cnn": lambda: cnn(input_shape=(1, 12, 12), num_classes=4),
    "padded convolution": lambda: nn.Sequential(
        nn.Conv2d(1, 5, 3, padding=1), nn.ReLU(), nn.Conv2d(5, 7, (2, 4), bias=False), nn.Flatten(), nn.LazyLinear(4)
    ),
    "group norm": lambda: nn.Sequential(nn.Conv2d(1, 4, 3), nn.GroupNorm(2, 4), nn.Flatten(), nn.Linear(400, 4)),
    "mlp with dropout": lambda: mlp(input_shape=(1, 12, 12), num_classes=4, dropout=0.5, hidden=300),
    "transformer layer": lambda: _of_rows(nn.TransformerEncoderLayer(12, 2, 16, activation="gelu", batch_first=True)),
    "causal attention": lambda: _of_rows(_Causal()),
    "LSTM": lambda: _of_rows(_First(nn.LSTM(12, 12, 2, dropout=0.2, batch_first=True))),
    "GRU": lambda: _of_rows(_First(nn.GRU(12, 6, bidirectional=True, batch_first=True))),
    "low-rank adapters": lambda: laconic.lora(
        _of_rows(nn.TransformerEncoderLayer(12, 2, 16, batch_first=True)), rank=2
    ),
}


class _Causal(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(12, 12) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.scaled_dot_product_attention(self.q(x), self.k(x), self.v(x), is_causal=True)


class _First(nn.Module):
    """The first of what a layer returns."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x)[0]


def _of_rows(layer: nn.Module) -> nn.Module:
    """The rows of a picture as a sequence."""
    return nn.Sequential(nn.Flatten(1, 2), layer, nn.Flatten(), nn.Linear(144, 4))


def population() -> PooledPopulation:
    rng = np.random.default_rng(0)
    inputs = torch.from_numpy(rng.normal(size=(sum(SIZES), 1, 12, 12)).astype(np.float32))
    records = Records(inputs, torch.from_numpy(rng.integers(0, 4, sum(SIZES))))
    ends = np.cumsum(SIZES)
    return PooledPopulation(records, [np.arange(e - s, e) for s, e in zip(SIZES, ends, strict=True)])


def task(model: FlatModel, train: LocalSGD, device: torch.device, trained: Tensor | None) -> Task:
    return Task(
        train=train,
        weights=model.initial.to(device),
        population=population().to(device),
        clients=np.arange(len(SIZES)),
        streams=Streams(3),
        path=("batches", 1, 0),
        trained=None if trained is None else trained.to(device),
    )


@pytest.mark.parametrize("some", [False, True])
@pytest.mark.parametrize("name", MODELS)
def test_recorded_training_agrees_with_one_by_one(name: str, some: bool) -> None:
    torch.manual_seed(0)
    module = MODELS[name]()
    module(torch.zeros(2, 1, 12, 12))
    example = population().records(1)
    model = FlatModel(module, example=(example.inputs, example.targets))
    kept = torch.arange(0, model.size, 7) if some else None
    train = LocalSGD(local_lr=0.1, local_steps=4, batch_size=3)
    plain = torch.cat([u.values for u in OneByOne(model, CPU).updates(task(model, train, CPU, kept))])
    assert float(plain.abs().max()) > 1e-3
    on_gpu = FlatModel(module, example=(example.inputs, example.targets)).to(GPU)
    engine = CohortAtOnce(on_gpu, GPU, example.inputs, precision="float32")
    moved = task(on_gpu, train, GPU, kept)
    counts = torch.arange(1.0, 6.0, device=GPU)
    summed = replace(moved, then=lambda trained: _summed(trained, counts))
    for _ in range(4):  # as it is, recorded, replayed, replayed again
        values = torch.cat([u.values for u in engine.updates(moved)]).cpu()
        assert float((values - plain).abs().max()) < 2e-5
        total = next(iter(engine.updates(summed))).values[0].cpu()
        assert float((total - counts.cpu() @ plain).abs().max()) < 2e-4


_NETWORKS = {
    "cnn-lstm": ((30,), {"vocabulary": 40, "embedding": 6, "filters": 10, "units": 7}),
    "text-cnn": ((30,), {"vocabulary": 40, "embedding": 6, "filters": 10, "dropout": 0.5}),
    "sensor-cnn": ((20, 3), {"filters": 6, "hidden": 9}),
    "all-cnn-c": ((3, 12, 12), {"dropout": 0.0}),
    "lfw-cnn": ((3, 24, 22), {}),
}


@pytest.mark.parametrize("name", _NETWORKS)
def test_the_larger_networks_are_recorded_and_agree(name: str, caplog: pytest.LogCaptureFixture) -> None:
    shape, options = _NETWORKS[name]
    rng = np.random.default_rng(0)
    words = len(shape) == 1
    inputs = rng.integers(0, 40, (60, *shape)) if words else rng.normal(size=(60, *shape)).astype(np.float32)
    records = Records(torch.from_numpy(inputs), torch.from_numpy(rng.integers(0, 2, 60)))
    held = PooledPopulation(records, np.arange(60).reshape(5, 12))
    module = build_model(name, input_shape=shape, num_classes=2, seed=0, options=options)
    train = LocalSGD(local_lr=0.1, local_steps=4, batch_size=6)
    found = []
    for device in (CPU, GPU):
        model = FlatModel(module, example=tuple(held.records(0))).to(device)
        here = replace(task(model, train, device, None), population=held.to(device))
        engine = OneByOne(model, CPU) if device is CPU else CohortAtOnce(model, GPU, precision="float32")
        for _ in range(1 if device is CPU else 3):
            found.append(torch.cat([u.values for u in engine.updates(here)]).cpu())
    assert "not recorded" not in caplog.text
    # Of all the units of All-CNN-C a few are within 1e-6 of ReLU's kink, and rounding decides on which side. On a CPU,
    # too, products that differ by 1e-6 change its updates by up to 6e-4.
    for values in found[1:]:
        assert float((values - found[0]).abs().max()) < (1e-3 if name == "all-cnn-c" else 2e-5)
    assert torch.equal(found[2], found[3])


@pytest.mark.parametrize("depth", [16, 32])
@pytest.mark.parametrize("way", ["as it is", "by tap", "by output", "both", "bfloat16"])
def test_kernels_however_divided_are_the_products(way: str, depth: int) -> None:
    from benchmarks.conv_products import products
    from laconic.train.layers.kernels import Tiles, kernels

    marks = {"by_tap": way in ("by tap", "both"), "by_output": way in ("by output", "both")}
    tiles = Tiles(rows=64, columns=32, depth=depth, warps=4, stages=2, **marks)
    kind = torch.bfloat16 if way == "bfloat16" else torch.float32
    mine, theirs = kernels(tiles, replace(tiles, by_tap=False, by_output=False)), products()
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(3, 5, 11, 10, 32, generator=generator).to(GPU, kind)
    weight = torch.randn(3, 40, 32, 3, 3, generator=generator).to(GPU)
    window = window_of((11, 10), (3, 3), (2, 2), (1, 1, 0, 1))
    gradients = torch.randn(3, 5, *window.outputs, 40, generator=generator).to(GPU, kind)
    with products_in("float32", GPU):
        pairs = (
            (w.convolve(x, as_rows(weight), None, window), w.weight_gradients(x, gradients, window),
             input_gradients(w.convolve, gradients, weight, window, (11, 10)))
            for w in (mine, theirs)
        )  # fmt: skip
        for a, b in zip(*pairs, strict=True):
            assert float((a - b).norm() / b.norm()) < (1e-2 if way == "bfloat16" else 1e-5)


@pytest.mark.parametrize("relu", [True, False])
@pytest.mark.parametrize(("shape", "window"), [((2, 3, 9, 11, 6), (2, 2)), ((2, 2, 1, 20, 5), (1, 3))])
def test_pooling_kernels_have_the_bits_of_torch(shape: tuple[int, ...], window: tuple[int, int], relu: bool) -> None:
    """Also where values tie, and where no window reaches the last rows and columns."""
    from laconic.train.layers.kernels import pool, unpool

    generator = torch.Generator().manual_seed(0)
    y = torch.randint(-3, 4, shape, generator=generator).float()
    images = y.flatten(0, 1).permute(0, 3, 1, 2).requires_grad_()
    expected = nn.functional.max_pool2d(images, window)
    expected = expected.relu() if relu else expected
    gradients = torch.randn(expected.shape, generator=generator)
    (back,) = torch.autograd.grad(expected, images, gradients)
    pooled, places = pool(y.to(GPU), window, relu)
    assert torch.equal(pooled.flatten(0, 1).permute(0, 3, 1, 2).cpu(), expected)
    turned = gradients.permute(0, 2, 3, 1).contiguous().view(pooled.shape).to(GPU)
    found = unpool(turned, places, window, (shape[2], shape[3]))
    assert torch.equal(found.flatten(0, 1).permute(0, 3, 1, 2).cpu(), back)


def test_clipped_codes_are_summed_to_the_integers_of_a_cpu() -> None:
    """Rows of every length, and two without a norm, which count nothing."""
    from laconic.privacy.mechanism.kernels import clipped_sum

    generator = torch.Generator().manual_seed(0)
    codes = torch.randn(7, 5000, generator=generator) * torch.tensor([1e-3, 1, 10, 1e20, 1, 1, 0.01])[:, None]
    codes[4, 3], codes[5, 7] = float("nan"), float("inf")
    clip, units = L2Clip(clip_norm=0.5), 12345.678
    # The norms are of a CPU too: their last bit depends on the order of a sum.
    roots = clip.roots(codes)
    there = clipped_sum(codes.to(GPU), roots.to(GPU), units * 256).cpu()
    assert torch.equal(there, fixed_point(clip(codes), units).sum(0))
    plain = clipped_sum(codes.to(GPU), roots.to(GPU), None).cpu()
    assert float((plain - clip(codes).sum(0)).abs().max()) < 1e-6


@pytest.mark.parametrize(("scale", "means"), [(2.0, 256), (37.3, 1), (1000.0, 1)])
def test_the_kernel_draws_from_tables_what_a_cpu_draws(scale: float, means: int) -> None:
    """From the same words; some equal a boundary, which the next word decides."""
    from laconic.privacy.mechanism.kernels import KernelTables

    count, rng = 20_000, np.random.default_rng(1)
    tables = exact_tables(scale, means)
    words = rng.integers(-(2**63), 2**63, 2 * count)
    rows = rng.integers(0, means, count)
    words[:100] = tables.high[rows[:100], 7 * np.arange(100) % tables.high.shape[1]]

    class Words:
        def __init__(self, words: Any) -> None:
            self._words = words

        def words(self, count: int) -> Any:
            return self._words[:count]

        def words_at(self, places: Any, total: int) -> Any:
            return self._words[total + places]

        def fork(self, name: str) -> Words:
            return self

    there = KernelTables(**vars(tables)).mapped(lambda array: torch.from_numpy(array).to(GPU))
    drawn = there.draw(torch.from_numpy(rows).to(GPU), count, Words(torch.from_numpy(words).to(GPU)))
    assert np.array_equal(drawn.cpu().numpy(), tables.draw(rows, count, Words(words)))


@pytest.mark.parametrize("shape", [(4, 6, 5, 3), (7, 30)])
@pytest.mark.parametrize("p", [0.3, 0.5])
def test_dropout_has_the_same_masks_as_on_a_cpu(shape: tuple[int, ...], p: float) -> None:
    keys = torch.tensor([3, -99, 2**62 + 17])

    def dropped(device: torch.device) -> Tensor:
        layer = KeyedDropout(p, whole_channels=False)

        def one(key: Tensor, x: Tensor) -> Tensor:
            layer.key = key
            return layer(x)

        return torch.func.vmap(one)(keys.to(device), torch.ones(3, *shape, device=device)).cpu()

    assert torch.equal(dropped(CPU), dropped(GPU))


def test_bfloat16_is_near_and_the_same_every_time() -> None:
    held = population()
    module = build_model("all-cnn-c", input_shape=(1, 12, 12), num_classes=4, seed=0, options={"dropout": 0.0})
    train = LocalSGD(local_lr=0.1, local_steps=4, batch_size=3)
    found = {}
    for precision in ("float32", "bfloat16"):
        model = FlatModel(module, example=tuple(held.records(0))).to(GPU)
        engine = CohortAtOnce(model, GPU, precision=precision)
        runs = [torch.cat([u.values for u in engine.updates(task(model, train, GPU, None))]).cpu() for _ in range(3)]
        assert torch.equal(runs[1], runs[2])
        found[precision] = runs[2]
    assert 1e-4 < float((found["bfloat16"] - found["float32"]).norm() / found["float32"].norm()) < 0.1


def _summed(trained: object, counts: Tensor) -> object:
    from laconic.train.engines.engine import Updates

    total = trained.weighted_sum(counts)  # type: ignore[attr-defined]
    return Updates(trained.clients, total[None], trained.num_records)  # type: ignore[attr-defined]


@pytest.mark.parametrize("iterations", [24, 25, 50, 97])
def test_recorded_decoding_agrees_with_a_cpu(iterations: int) -> None:
    solver = Fista(l1_weight=1e-3, max_iterations=iterations, tolerance=0.0)
    codec = LowPassDCT(ratio=0.1, num_chunks=4, order="natural", solver=solver)
    plan = RoundPlan(
        round=1, attempt=0, cohort=np.arange(3), planned_cohort=3.0, run_seed=5, round_seed=6, fingerprint=""
    )
    generator = torch.Generator().manual_seed(1)
    for _ in range(4):
        code = torch.randn(codec.code_size(2000), generator=generator)
        there = codec.decode(code.to(GPU), 2000, plan).cpu()
        assert float((there - codec.decode(code, 2000, plan)).abs().max()) < 1e-3


@pytest.mark.parametrize("mean", [0.0, 0.37])
def test_integers_drawn_on_the_device_have_the_stated_moments(mean: float) -> None:
    """Mean and variance within six standard errors; and two per cent less noise is noticed."""
    count, scale = 4_000_000, 5.0
    cut = int(mean * 256) / 256
    for factor in (1.0, 0.98):
        drawn = draw_discrete_gaussian(torch.full((count,), mean, device=GPU), factor * scale, Stream(3)).double()
        assert abs(float(drawn.mean()) - cut) < 6 * scale / count**0.5
        right = abs(float(drawn.var()) / scale**2 - 1) < 6 * (2 / count) ** 0.5
        assert right == (factor == 1.0)


@pytest.mark.parametrize("noise", ["integer", "continuous"])
def test_a_private_run_on_the_device(noise: str) -> None:
    """Masked and simulated sums of integers give the same model there, too."""
    scheme = fl_std_dp(clip_norm=0.5, noise_multiplier=1.0, noise=noise, local_lr=0.1, local_steps=2, batch_size=4)
    torch.manual_seed(0)
    model = MODELS["cnn"]()

    def trained(secagg: str) -> Tensor:
        result = laconic.run(
            scheme,
            model=model,
            clients=population(),
            sampling_rate=0.8,
            rounds=3,
            delta=1e-5,
            device="cuda",
            secagg=secagg,
            noise_draws="per-client",  # masked sums need each client's share; simulated ones draw all at once
        )
        return torch.cat([p.reshape(-1).cpu() for p in result.model.parameters()])

    first = trained("simulated")
    assert torch.isfinite(first).all()
    if noise == "integer":
        assert torch.equal(first, trained("masked"))


def test_a_run_on_the_device_that_diverges_ends_within_a_round_and_keeps_no_such_weights(tmp_path: Path) -> None:
    """Between evaluations a GPU is asked only after it has been given the next round."""
    torch.manual_seed(0)
    model, rows = MODELS["cnn"](), []
    with pytest.raises(Diverged, match="after round 1:"):
        laconic.run(
            laconic.schemes.fl_std(local_lr=1e38, local_steps=2, batch_size=4),
            model=model,
            clients=population(),
            sampling_rate=1.0,
            rounds=50,
            eval_every=50,
            device="cuda",
            observer=rows.append,
            out=tmp_path / "run",
        )
    assert [row["round"] for row in rows] == [1]
    assert not (tmp_path / "run" / "model.safetensors").exists()


def test_variants_of_pictures_have_the_same_bits_as_on_a_cpu() -> None:
    pixels = torch.from_numpy(np.random.default_rng(2).integers(0, 256, (300, 3, 32, 32), dtype=np.uint8))
    some = Pictures(pixels).augmented(10, Streams(0).numpy("augmentation"))
    rows = np.random.default_rng(3).permutation(3000).reshape(10, 300)
    there = PooledPopulation(Records(some, torch.arange(3000)), rows).to(GPU)
    block = gather(there, range(10), GPU)
    assert block.inputs.is_cuda and torch.equal(block.inputs.cpu(), some[torch.from_numpy(rows)])
    assert torch.equal(block.targets.cpu(), torch.from_numpy(rows))


@pytest.mark.parametrize("part", [None, 0.1])
def test_records_of_a_network_are_clipped_without_waiting_for_the_device(part: float | None) -> None:
    torch.manual_seed(0)
    x, y = torch.randn(40, 1, 12, 12), torch.arange(40) % 4
    mask = None if part is None else (torch.rand(FlatModel(MODELS["cnn"](), example=(x, y)).size) < part).float()
    torch.manual_seed(1)
    module, grid = MODELS["cnn"](), UnitGrid(clip_norm=0.5, grid_units=2.0**14)

    def total(device: torch.device, strict: bool) -> Tensor:
        model = FlatModel(module, example=(x, y)).to(device)
        ghosts = find_ghosts(model)  # its comparison needs float32, where TF32 is the default
        assert ghosts is not None
        given = (model.initial, x.to(device), y.to(device), torch.ones(40, device=device))
        kept = None if mask is None else mask.to(device)
        found = ghosts.total(*given, kept, grid)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that this is a prototype, which as an error would leave the mode on
            torch.cuda.set_sync_debug_mode("error" if strict else "default")
            try:
                with products_in("float32", device):
                    found = ghosts.total(*given, kept, grid)
            finally:
                torch.cuda.set_sync_debug_mode("default")
        return found.cpu()

    there, here = total(GPU, strict=True), total(CPU, strict=False)
    assert torch.equal(there, there.round())
    assert float((there - here).norm()) <= 1e-3 * float(here.norm())


@pytest.mark.parametrize("part", [None, 0.1])
def test_recorded_passes_over_records_give_what_they_give_when_they_run(part: float | None) -> None:
    torch.manual_seed(0)
    x, y = torch.randn(500, 1, 12, 12), torch.arange(500) % 4
    model = FlatModel(MODELS["cnn"](), example=(x[:1], y[:1])).to(GPU)
    codec = Identity() if part is None else FixedRandomSubset(ratio=part, train_only_kept=False)
    records = Records(x, y).to(GPU)
    found = []
    for replays in (False, True):
        units = NetworkUnits(model, records, Groups(None, 500), None)
        assert units.replays
        units.replays = replays
        rounds = []
        for round in range(6):
            plan = RoundPlan(
                round=round + 1,
                attempt=0,
                cohort=np.arange(2),
                planned_cohort=2.0,
                run_seed=1,
                round_seed=round,
                fingerprint="",
            )
            drawn = torch.rand(500, generator=torch.Generator().manual_seed(round)) < 0.5
            grid = UnitGrid(clip_norm=0.5, grid_units=2.0**14)
            rounds.append(units.terms(model.initial + 0.01 * round, drawn.to(GPU), codec, plan, grid).cpu())
        assert not replays or all(one._run._graph is not None for one in units._passes.values() if one._run._calls > 1)
        found.append(torch.stack(rounds).double())
    assert float((found[0] - found[1]).norm()) <= 1e-3 * float(found[0].norm())
