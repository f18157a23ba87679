"""Front ends: whitening, selections, features made once, runs that are resumed, and what is refused."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import laconic
from laconic import schemes
from laconic.catalogue import SCHEMES, build_scheme
from laconic.data.population import FunctionPopulation, PooledPopulation, Records, gather
from laconic.data.synthetic import dead_leaves
from laconic.errors import ConfigError, DataError, RunFolderError
from laconic.features.kinds import public_front_end
from laconic.features.population import ClientFeatures, as_features
from laconic.features.projection import principal_components, random_selection
from laconic.features.scattering import Scattering, ScatteringFrontEnd
from laconic.runner.run import Run
from laconic.settings.build import settle
from laconic.settings.config import RunConfig
from laconic.settings.forecast import forecast

CPU = torch.device("cpu")
SHAPE = (1, 8, 8)
PLAIN = schemes.fl_std(local_lr=0.1, local_steps=2, batch_size=4)


def picture_records(count: int, seed: int = 0) -> Records:
    """Bars that stand or lie, and noise."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 2, count)
    inputs = 0.3 * rng.random((count, *SHAPE), dtype=np.float32)
    place = rng.integers(1, 7, count)
    for image, label, where in zip(inputs, labels, place, strict=True):
        image[0, where, :] += label
        image[0, :, where] += 1 - label
    return Records(torch.from_numpy(inputs), torch.from_numpy(labels))


def clients(count: int = 30, each: int = 6) -> PooledPopulation:
    return PooledPopulation(picture_records(count * each), np.arange(count * each).reshape(count, each))


class Counting(nn.Module):
    """A front end of one's own that counts the records it sees."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("scale", torch.tensor(2.0))
        self.seen = 0

    def forward(self, inputs: Tensor) -> Tensor:
        self.seen += len(inputs)
        return self.scale * inputs.flatten(1)

    def __deepcopy__(self, memo: Any) -> Counting:
        return self


def head(size: int) -> nn.Module:
    torch.manual_seed(0)
    return nn.Linear(size, 2)


def run(scheme: Any = PLAIN, **options: Any) -> laconic.RunResult:
    defaults: dict[str, Any] = {
        "clients": clients(),
        "test": picture_records(100, seed=1),
        "sampling_rate": 0.5,
        "rounds": 4,
        "eval_every": 4,
        "front_end": public_front_end("scattering", SHAPE, features=40, projection="random"),
        "model": head(40),
    }
    if scheme.private:
        defaults["delta"] = 1e-5
    return laconic.run(scheme, **(defaults | options))


# --- the map ---


def test_features_are_normalised_in_27_groups() -> None:
    images = torch.rand(4, 3, 16, 12)
    features = ScatteringFrontEnd((3, 16, 12))(images)
    assert features.shape == (4, 243, 4, 3)
    raw = Scattering(16, 12)(images).reshape(4, 27, -1)
    centred = raw - raw.mean(-1, keepdim=True)
    expected = centred / (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt()
    assert torch.allclose(features.reshape(4, 27, -1), expected, atol=1e-4)


def test_mirror_images_have_the_same_features() -> None:
    front_end = public_front_end("scattering", SHAPE, features=20, projection="random", mirror=True)
    images = torch.rand(5, *SHAPE)
    assert torch.allclose(front_end(images), front_end(images.flip(-1)), atol=1e-5)
    assert not torch.allclose(
        front_end(images), public_front_end("scattering", SHAPE, features=20, projection="random")(images)
    )
    assert "mirror image" in front_end.sentence


def test_principal_components_are_whitened_and_of_equal_length() -> None:
    rng = torch.Generator().manual_seed(0)
    mixing = torch.randn(20, 20, generator=rng)
    public = torch.randn(4000, 20, generator=rng) @ mixing + 3
    ridge = 0.01
    whitening = principal_components(public, 6, ridge=ridge)
    raw = (public - whitening.mean) @ whitening.matrix.T
    values = torch.linalg.eigvalsh(torch.cov(public.T, correction=0)).flip(0)[:6]
    expected = torch.diag(values / (values + ridge * values[0]))
    assert torch.allclose(torch.cov(raw.T, correction=0), expected, atol=1e-3)
    lengths = torch.linalg.vector_norm(whitening(torch.randn(50, 20, generator=rng)), dim=1)
    assert torch.allclose(lengths, torch.full((50,), math.sqrt(6)), atol=1e-4)


def test_a_record_at_the_mean_has_no_direction() -> None:
    whitening = principal_components(torch.randn(100, 5), 2)
    assert bool((whitening(whitening.mean[None]) == 0).all())


def test_a_random_selection_follows_from_its_seed() -> None:
    features = torch.arange(30.0).reshape(2, 3, 5)
    chosen = [random_selection(15, 4, np.random.default_rng(seed))(features) for seed in (5, 5, 6)]
    assert torch.equal(chosen[0], chosen[1])
    assert not torch.equal(chosen[0], chosen[2])
    assert torch.equal(chosen[0][1] - chosen[0][0], torch.full((4,), 15.0))
    assert len(set(chosen[0][0].tolist())) == 4


@pytest.mark.parametrize("projection", ["none", "public", "random"])
def test_written_down_and_read_back(projection: str, tmp_path: Path) -> None:
    images = torch.rand(40, *SHAPE)
    features = None if projection == "none" else 12
    front_end = public_front_end(
        "scattering", SHAPE, features=features, projection=projection, images=images, source="noise"
    )
    (tmp_path / "f").write_bytes(front_end.to_bytes())
    again = ScatteringFrontEnd.load(tmp_path / "f")
    assert torch.equal(again(images), front_end(images))
    assert again.sentence == front_end.sentence
    assert again(images).shape[1:] == again.output_shape
    assert ("noise" in again.sentence) == (projection == "public")
    (tmp_path / "f").write_bytes(front_end.to_bytes()[:-3])
    with pytest.raises(RunFolderError, match="damaged"):
        ScatteringFrontEnd.load(tmp_path / "f")


def test_dead_leaves_are_images_from_a_seed() -> None:
    first, again, other = (dead_leaves(600, (3, 12, 20), np.random.default_rng(seed)) for seed in (1, 1, 2))
    assert first.shape == (600, 3, 12, 20)
    assert first.dtype == torch.float32
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert float(first.min()) >= 0
    assert float(first.max()) <= 1
    assert float(first.flatten(1).std(1).min()) > 0  # something is to be seen on each


# --- features once per record ---


def test_pooled_records_are_mapped_once_and_only_when_needed() -> None:
    front_end, population = Counting(), clients()
    features = as_features(population, front_end, CPU)
    assert front_end.seen == 0
    for _ in range(3):
        block = gather(features, [4, 7], CPU)
    assert front_end.seen == 180
    assert torch.equal(block.inputs[1], 2 * population.records(7).inputs.flatten(1))
    assert features.num_clients == 30


def test_clients_made_on_demand_are_mapped_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    front_end, population = Counting(), clients()
    lazy = FunctionPopulation(10**6, lambda client: population.records(client % 30), size=lambda client: 6)
    features = as_features(lazy, front_end, CPU)
    assert isinstance(features, ClientFeatures)
    for client in (3, 999_999, 3, 3):
        features.records(client)
    assert front_end.seen == 12
    monkeypatch.setattr("laconic.features.population._CACHE_BYTES", 3 * features.records(3).inputs.nbytes)
    for client in range(10):
        features.records(client)
    assert len(features._kept) == 3
    assert features.size(5) == 6
    assert features.to(CPU) is features


def test_a_run_maps_every_record_once() -> None:
    front_end = Counting()
    run(front_end=front_end, model=head(64), rounds=6)
    assert front_end.seen == 180 + 100 + 2  # clients, test, and the two that the model is tried with


# --- runs ---


def test_the_exported_model_takes_images() -> None:
    result = run(schemes.fl_std(local_lr=0.2, local_steps=4), rounds=8, eval_every=8)
    test = picture_records(100, seed=1)
    with torch.no_grad():
        hits = result.model(test.inputs).argmax(1) == test.targets
    assert float(hits.float().mean()) == pytest.approx(result.last["accuracy"])
    assert result.last["accuracy"] > 0.9


def test_a_name_is_enough() -> None:
    result = run(front_end="scattering", model=nn.Sequential(nn.Flatten(), head(324)))
    assert result.model(torch.rand(3, *SHAPE)).shape == (3, 2)
    with pytest.raises(ConfigError, match="front end 'scatering': did you mean"):
        run(front_end="scatering")


def test_pooled_and_lazy_populations_give_the_same_model() -> None:
    population = clients()
    lazy = [population.records(client) for client in range(30)]
    a, b = run(clients=population), run(clients=lazy)
    assert torch.allclose(a.model.head.weight, b.model.head.weight, atol=1e-5)


@pytest.mark.parametrize("name", ["fl-std-dp", "fl-sign-dp", "fl-top-dp", "fl-freq-dp", "fl-cs-dp"])
def test_any_scheme_with_server_momentum(name: str) -> None:
    """Momentum belongs to every rule; with it, the velocity of earlier rounds moves the weights."""
    values: dict[str, Any] = {
        "clip_norm": 0.5,
        "noise_multiplier": 1.5,
        "ratio": 0.5,
        "num_chunks": 3,
        "sign_step": 0.01,
        "local_lr": 0.1,
        "local_steps": 2,
    }
    results = []
    for momentum in (0.0, 0.9):
        options = {k: v for k, v in (values | {"momentum": momentum}).items() if k in SCHEMES[name].options}
        results.append(run(build_scheme(name, **options), public=picture_records(10, seed=2), rounds=5, eval_every=5))
    assert not torch.allclose(results[0].model.head.weight, results[1].model.head.weight)
    assert all(r.statement["mechanism"]["front_end"].startswith("scattering transform") for r in results)


def test_the_bytes_of_a_head_of_8330_weights() -> None:
    images = torch.rand(20, 1, 28, 28)
    front_end = public_front_end("scattering", (1, 28, 28), features=832, projection="random")
    targets = torch.arange(20) % 10
    result = run(
        schemes.fl_std_dp(clip_norm=0.1, noise_multiplier=1.0, local_lr=0.02, local_steps=1),
        front_end=front_end,
        model=nn.Linear(832, 10),
        clients=[(images[i : i + 2], targets[i : i + 2]) for i in range(0, 20, 2)],
        test=None,
        rounds=1,
    )
    bits = result.statement["mechanism"]["grid"]["bits"]
    assert result.ledger["bytes_up_per_client_and_round"] == 60 + math.ceil(bits * 8330 / 8)
    assert result.ledger["bytes_down_per_client_and_round"] == 60 + 4 * 8330


def test_the_statement_names_the_public_data() -> None:
    images = dead_leaves(50, SHAPE, np.random.default_rng(0))
    front_end = public_front_end("scattering", SHAPE, features=40, images=images, source="50 dead leaves")
    private = schemes.fl_std_dp(clip_norm=0.5, noise_multiplier=1.0, local_lr=0.1, local_steps=1)
    statement = run(private, front_end=front_end).statement
    sentence = "projected on the 40 leading principal components of 50 dead leaves"
    assert sentence in statement["mechanism"]["front_end"]
    assert any("front end is public" in text and sentence in text for text in statement["assumptions"])


def test_a_resumed_run_gives_the_same_model(tmp_path: Path) -> None:
    private = schemes.fl_std_dp(clip_norm=0.5, noise_multiplier=1.0, local_lr=0.1, local_steps=2)
    for lazy in (False, True):
        people: Any = [clients().records(c) for c in range(30)] if lazy else clients()
        out = tmp_path / str(lazy)
        run(private, clients=people, out=out / "a", rounds=3)
        more = run(private, clients=people, out=out / "a", rounds=6, resume=True)
        whole = run(private, clients=people, out=out / "b", rounds=6)
        assert torch.equal(more.model.head.weight, whole.model.head.weight)


def test_another_front_end_is_another_run(tmp_path: Path) -> None:
    run(out=tmp_path / "a")
    other = public_front_end("scattering", SHAPE, features=40, projection="random", rng=np.random.default_rng(1))
    with pytest.raises(RunFolderError, match="started with another front end"):
        run(out=tmp_path / "a", rounds=6, resume=True, front_end=other)


# --- from a configuration ---

CONFIG: dict[str, Any] = {
    "data.dataset": "digits",
    "data.num_clients": 40,
    "run.rounds": 2,
    "run.device": "cpu",
    "front_end.name": "scattering",
    "front_end.features": 30,
    "front_end.projection": "public",
    "front_end.images": 60,
    "data.public_dataset": "dead-leaves",
}


def config(**changes: Any) -> RunConfig:
    values = {k: v for k, v in (CONFIG | changes).items() if v is not None}
    return RunConfig().with_values(values)


def test_from_a_configuration_to_a_model_that_takes_images() -> None:
    settled = settle(config())
    assert settled.config.front_end.ridge == 0.001
    assert (settled.config.model.name, settled.config.model.options) == ("logistic", {"zero": True})
    result = Run(settled.experiment).run()
    assert result.model(torch.rand(2, 1, 8, 8)).shape == (2, 10)
    assert settle(settled.config).config == settled.config


def test_the_stored_front_end_is_used_not_computed_again(tmp_path: Path) -> None:
    settled = settle(config())
    front_end = settled.experiment.front_end
    assert isinstance(front_end, ScatteringFrontEnd)
    front_end.projection.matrix.mul_(-1)  # as another machine might have computed it
    (tmp_path / "front_end.safetensors").write_bytes(front_end.to_bytes())
    stored = settle(settled.config, stored=tmp_path).experiment.front_end
    assert torch.equal(stored.projection.matrix, front_end.projection.matrix)


def test_a_plan_computes_no_features(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("a plan must not fit a projection")

    monkeypatch.setattr("laconic.features.kinds.principal_components", refuse)
    plan = forecast(config())
    assert plan["size"] == 310
    assert plan["bytes_up_per_client_and_round"] == 60 + 4 * 310
    assert plan["front_end"] == {
        "name": "scattering",
        "features": 30,
        "available": 324,
        "projection": "public",
        "projection_bytes": 4 * 324 * 31,
    }
    with pytest.raises(ConfigError, match="--public-dataset"):
        forecast(config(**{"data.public_dataset": None}))


def test_public_images_can_be_records_set_aside() -> None:
    front_end = settle(config(**{"data.public_dataset": None, "data.public_records": 60})).experiment.front_end
    assert isinstance(front_end, ScatteringFrontEnd)
    assert "60 training records set aside as public" in front_end.sentence


def test_public_images_can_be_a_file_of_ones_own(tmp_path: Path) -> None:
    images = (255 * dead_leaves(80, SHAPE, np.random.default_rng(3))).byte().numpy()
    np.savez(tmp_path / "mine.npz", inputs=images, targets=np.zeros(80, dtype=int))
    own = config(**{"data.public_dataset": str(tmp_path / "mine.npz")})
    front_end = settle(own).experiment.front_end
    assert isinstance(front_end, ScatteringFrontEnd)
    assert front_end.sentence.endswith("30 leading principal components of 60 images of the public data set mine.npz")
    np.savez(tmp_path / "mine.npz", inputs=images[:, :, 1:], targets=np.zeros(80, dtype=int))
    with pytest.raises(ConfigError, match=r"mine.npz has inputs of \(1, 7, 8\), the clients' are \(1, 8, 8\)"):
        settle(own)
    (tmp_path / "mine.txt").write_text("1")
    with pytest.raises(DataError, match=r"mine.txt: expected a file that ends in .npz"):
        settle(config(**{"data.public_dataset": str(tmp_path / "mine.txt")}))


def test_whole_numbers_are_pixels_from_0_to_255() -> None:
    images = (255 * dead_leaves(20, SHAPE, np.random.default_rng(3))).round()
    front_end = ScatteringFrontEnd(SHAPE)
    assert torch.equal(front_end(images.byte()), front_end(images / 255))


def test_the_clipping_threshold_can_be_measured_on_features() -> None:
    settled = settle(
        config(**{"scheme.name": "fl-std-dp", "scheme.noise_multiplier": 1.0, "scheme.clip_norm": "public"})
    )
    assert settled.experiment.sensitivity > 0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {
                "data.dataset": "synthetic",
                "data.public_dataset": None,
                "front_end.projection": "random",
                "front_end.images": None,
            },
            r"needs images .* have shape \(20,\): leave out --front-end",
        ),
        ({"data.dataset": "synthetic"}, r"dead-leaves are images, and the records have shape \(20,\): name another"),
        ({"data.public_dataset": None}, "--front-end-projection public needs public images: give --public-dataset"),
        ({"data.public_dataset": None, "data.public_records": 20}, "30 principal components need more than 30"),
        ({"front_end.features": 400}, "--front-end-features 400: the transform of these images has only 324"),
        (
            {"front_end.features": 400, "front_end.projection": "random", "front_end.images": None},
            "--front-end-features 400: the transform of these images has only 324",
        ),
        ({"front_end.features": None}, "--front-end-projection public needs --front-end-features"),
        ({"front_end.projection": None, "front_end.images": None}, "--front-end-features needs --front-end-projection"),
        ({"front_end.projection": "pca"}, "front-end projection 'pca'"),
        ({"front_end.projection": "random"}, "--front-end-images means nothing without --front-end-projection public"),
        ({"front_end.name": None}, "--front-end-features means nothing without --front-end scattering"),
        ({"front_end.name": "cnn"}, "front end 'cnn'"),
        ({"front_end.ridge": -1.0}, "ridge must be"),
        ({"data.public_dataset": "mist"}, "public data set 'mist': did you mean"),
        ({"data.public_dataset": "digits"}, "--public-dataset digits is what the clients hold, so it is not public"),
    ],
)
def test_what_cannot_work_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        settle(config(**changes))
