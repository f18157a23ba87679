"""Low-rank adapters: few trained weights, the same module at the start, torch's own layers at the end."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import laconic
from laconic.data.population import PooledPopulation, Records
from laconic.errors import ConfigError
from laconic.models import lora as adapters
from laconic.streams import Streams
from laconic.train.engines.choose import choose_engine
from laconic.train.engines.engine import Task
from laconic.train.flat import FlatModel
from laconic.train.local import LocalSGD

CPU = torch.device("cpu")


class Reader(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(11, 8)
        layer = nn.TransformerEncoderLayer(8, 2, 12, dropout=0.1, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2)
        self.output = nn.Linear(8, 3)

    def forward(self, words: Tensor) -> Tensor:
        found: Tensor = self.output(self.encoder(self.words(words)).mean(1))
        return found


def reader() -> Reader:
    torch.manual_seed(0)
    return Reader()


def records(count: int = 24) -> Records:
    rng = np.random.default_rng(0)
    return Records(torch.from_numpy(rng.integers(0, 11, (count, 5))), torch.from_numpy(rng.integers(0, 3, count)))


def moved(model: nn.Module) -> nn.Module:
    """Every trained weight somewhere else."""
    with torch.no_grad():
        for weight in model.parameters():
            if weight.requires_grad:
                weight += 0.3 * torch.randn_like(weight)
    return model.eval()


def test_training_starts_from_the_module_as_it_was_and_ends_with_torchs_own_layers() -> None:
    base, words = reader().eval(), records().inputs
    model = laconic.lora(base, rank=2, alpha=6.0, also=["output"]).eval()
    with torch.no_grad():
        assert torch.allclose(model(words), base(words), atol=1e-6)
        moved(model)
        plain = laconic.merged(model).eval()
        assert float((model(words) - base(words)).abs().max()) > 0.1
        # With no gradients torch's encoder layers take a fast path that reads their weights: adapters must not be lost.
        assert torch.allclose(plain(words), model(words), atol=1e-5)
    assert list(plain.state_dict()) == list(base.state_dict())
    assert {type(m) for m in plain.modules()} == {type(m) for m in base.modules()}
    assert all(p.requires_grad for p in plain.parameters())


def test_the_fast_path_of_torch_would_lose_the_adapters(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sabotaged twin of the test above."""
    monkeypatch.setattr(adapters, "_without_fast_path", lambda module: None)
    model, words = moved(laconic.lora(reader(), rank=2, targets=["*.self_attn"])), records().inputs
    with torch.no_grad():
        assert not torch.allclose(laconic.merged(model).eval()(words), model(words), atol=1e-2)


def test_engines_agree_on_adapters() -> None:
    every = records()
    held = PooledPopulation(every, np.arange(24).reshape(4, 6))
    model = FlatModel(moved(laconic.lora(reader(), rank=2, also=["output"])), example=tuple(every.some(np.arange(2))))
    assert model.size == 2 * ((8 + 24) * 2 + (8 + 8) * 2 + 2 * (8 + 12) * 2) + 8 * 3 + 3
    task = Task(
        train=LocalSGD(local_lr=0.5, local_steps=3, batch_size=4),
        weights=model.initial,
        population=held,
        clients=np.arange(4),
        streams=Streams(3),
        path=("batches", 1, 0),
    )
    one, many = (
        torch.cat([u.values for u in choose_engine(name, model, CPU, model.example).updates(task)])
        for name in ("one-by-one", "cohort")
    )
    assert float(one.abs().max()) > 0.05
    assert float((many - one).abs().max()) < 1e-6


@pytest.mark.parametrize("scheme", [pytest.param("fl_std_dp", marks=pytest.mark.slow), "fl_top_dp"])
def test_only_adapters_are_trained_and_sent(scheme: str) -> None:
    every, base = records(), reader()
    clients = list(zip(every.inputs.split(3), every.targets.split(3), strict=True))
    model = laconic.lora(base, rank=1, targets=["encoder.layers.1"])
    size = sum(p.numel() for p in model.parameters() if p.requires_grad)
    options: dict[str, Any] = {"local_lr": 0.5, "local_steps": 2, "clip_norm": 0.5, "noise_multiplier": 1.0}
    if scheme == "fl_top_dp":
        options["ratio"] = 0.1
    result = laconic.run(
        getattr(laconic.schemes, scheme)(**options),
        model=model,
        clients=clients,
        public=(every.inputs, every.targets),
        sampling_rate=1.0,
        rounds=2,
        delta=1e-2,
    )
    before, after = base.state_dict(), laconic.merged(result.model).state_dict()
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert changed and all(name.startswith("encoder.layers.1.") and "norm" not in name for name in changed)
    sent = result.ledger["bytes_up"] / (2 * len(clients))
    assert sent < (4 * size if scheme == "fl_std_dp" else size) + 200


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"rank": 0}, "rank must be a whole number"),
        ({"alpha": -1.0}, "alpha must be a positive number"),
        ({"targets": ["encoder.layers.7"]}, "lora, targets: the module has no 'encoder.layers.7'"),
        ({"also": ["outptu"]}, "did you mean 'output'?"),
        ({"targets": ["output"], "also": ["output"]}, "no layer gets an adapter"),
    ],
)
def test_what_cannot_be_meant_is_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError) as problem:
        laconic.lora(reader(), **options)
    assert words in str(problem.value)


def test_a_layer_that_is_used_twice_has_one_adapter_and_shared_weights_stay_shared() -> None:
    layer = nn.Linear(4, 4)
    model = laconic.lora(nn.Sequential(layer, nn.Tanh(), layer), rank=1)
    assert model[0] is model[2]  # type: ignore[index]
    moved(model)
    plain = laconic.merged(model)
    assert plain[0] is plain[2]  # type: ignore[index]
    inputs = torch.randn(3, 4)
    assert torch.allclose(plain(inputs), model(inputs), atol=1e-6)
