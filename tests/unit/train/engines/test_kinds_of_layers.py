"""Layers of every kind in the cohort engine: the same updates as one by one, and none is done client by client."""

from __future__ import annotations

import logging
import re
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from laconic.data.population import PooledPopulation, Records
from laconic.errors import ConfigError
from laconic.streams import Streams
from laconic.train.engines import choose
from laconic.train.engines.choose import choose_engine, numbers_per_operation
from laconic.train.engines.engine import Engine, Task
from laconic.train.flat import FlatModel
from laconic.train.layers.attention import as_products
from laconic.train.layers.conv import use_client_norms
from laconic.train.local import LocalSGD

CPU = torch.device("cpu")
WIDTH, LENGTH, WORDS, CLASSES = 8, 6, 20, 3
SIZES = [3, 4, 5]
LATER = torch.triu(torch.ones(LENGTH, LENGTH, dtype=torch.bool), 1)


class Does(nn.Module):
    """A `forward` of one's own, with the layers it needs."""

    def __init__(self, forward: Callable[..., Any], **layers: Any) -> None:
        super().__init__()
        self.does = forward
        for name, layer in layers.items():
            setattr(self, name, layer)

    def forward(self, x: Tensor) -> Any:
        return self.does(self, x)


class Reader(nn.Module):
    """Words as vectors, the layers in question, the mean over time, logits."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.words, self.inner = nn.Embedding(WORDS, WIDTH, padding_idx=0), inner
        found = self._seen(torch.ones(2, LENGTH, dtype=torch.int64))
        self.output = nn.Linear(found.shape[-1], CLASSES)

    def forward(self, words: Tensor) -> Tensor:
        return self.output(self._seen(words))

    def _seen(self, words: Tensor) -> Tensor:
        found = self.inner(self.words(words))
        return (found[0] if isinstance(found, tuple) else found).mean(1)


def attention(**options: Any) -> nn.MultiheadAttention:
    return nn.MultiheadAttention(WIDTH, 2, **{"batch_first": True, **options})


def encoder_layer(**options: Any) -> nn.TransformerEncoderLayer:
    return nn.TransformerEncoderLayer(WIDTH, 2, 12, batch_first=True, **options)


def heads(x: Tensor) -> Tensor:
    return x.unflatten(-1, (2, -1)).transpose(1, 2)


def functional_attention(**options: Any) -> nn.Module:
    def forward(self: Any, x: Tensor) -> Tensor:
        given = {name: value(x) if callable(value) else value for name, value in options.items()}
        found = functional.scaled_dot_product_attention(*(heads(p(x)) for p in (self.q, self.k, self.v)), **given)
        return found.transpose(1, 2).flatten(2)

    return Does(forward, **{name: nn.Linear(WIDTH, WIDTH) for name in "qkv"})


def over_time(layer: nn.Module) -> nn.Module:
    return Does(lambda self, x: self.layer(x.transpose(1, 2)).transpose(1, 2), layer=layer)


def as_picture(layer: nn.Module, channels: int = 4) -> nn.Module:
    first = nn.Conv2d(1, channels, 3, padding=1)
    return Does(lambda self, x: self.layer(self.first(x[:, None])).flatten(2), first=first, layer=layer)


def step_by_step(cell: nn.Module) -> nn.Module:
    def forward(self: Any, x: Tensor) -> Tensor:
        state = None
        for now in x.unbind(1):
            state = self.cell(now, state)
        return (state[0] if isinstance(state, tuple) else state)[:, None]

    return Does(forward, cell=cell)


def from_a_start() -> nn.Module:
    """The first state is trained, and the last one is looked at."""

    def forward(self: Any, x: Tensor) -> Tensor:
        start = self.start.expand(-1, len(x), -1)
        return self.lstm(x, (start, 2 * start))[1][1].transpose(0, 1)

    return Does(forward, lstm=nn.LSTM(WIDTH, 5, batch_first=True), start=nn.Parameter(torch.randn(1, 1, 5)))


KINDS: dict[str, Callable[[], nn.Module]] = {
    "attention": lambda: Does(lambda self, x: self.a(x, x, x), a=attention()),
    "attention without its weights": lambda: Does(lambda self, x: self.a(x, x, x, need_weights=False), a=attention()),
    "attention with dropout": lambda: Does(lambda self, x: self.a(x, x, x), a=attention(dropout=0.3)),
    "causal attention": lambda: Does(
        lambda self, x: self.a(x, x, x, need_weights=False, attn_mask=LATER, is_causal=True), a=attention(bias=False)
    ),
    "attention, time first": lambda: Does(
        lambda self, x: self.a(*[x.transpose(0, 1)] * 3, need_weights=False)[0].transpose(0, 1),
        a=attention(batch_first=False),
    ),
    "attention to something narrower": lambda: Does(
        lambda self, x: self.a(x, x[..., :4], x[..., :6], need_weights=False), a=attention(kdim=4, vdim=6)
    ),
    "an encoder with dropout": lambda: nn.TransformerEncoder(encoder_layer(), 2, enable_nested_tensor=False),
    "an encoder layer with masks": lambda: Does(
        lambda self, x: self.a(x, LATER, src_key_padding_mask=x[..., 0] > 1e9),
        a=encoder_layer(dropout=0.0, activation="gelu", norm_first=True),
    ),
    "a decoder layer": lambda: Does(
        lambda self, x: self.a(x, x), a=nn.TransformerDecoderLayer(WIDTH, 2, 12, batch_first=True)
    ),
    "functional attention": lambda: functional_attention(),
    "functional attention, causal": lambda: functional_attention(is_causal=True, scale=0.3),
    "functional attention, one mask": lambda: functional_attention(attn_mask=~LATER),
    "functional attention, a mask per record": lambda: functional_attention(
        attn_mask=lambda x: 0.1 * x[..., 0][:, None, None]
    ),
    "layer norm and GELU": lambda: nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 6), nn.GELU(), nn.RMSNorm(6)),
    "group norm": lambda: over_time(nn.GroupNorm(2, WIDTH)),
    "convolution": lambda: over_time(nn.Conv1d(WIDTH, 6, 3)),
    "depthwise convolution": lambda: over_time(nn.Conv1d(WIDTH, WIDTH, 3, groups=WIDTH, padding=1)),
    "depthwise convolution of pictures": lambda: as_picture(nn.Conv2d(4, 8, 3, groups=4, padding="same")),
    "dilated convolution": lambda: over_time(nn.Conv1d(WIDTH, 6, 3, dilation=2)),
    "adaptive pooling": lambda: over_time(
        nn.Sequential(nn.Conv1d(WIDTH, 6, 3), nn.AdaptiveAvgPool1d(4), nn.AdaptiveMaxPool1d(2))
    ),
    "adaptive pooling of pictures": lambda: as_picture(nn.AdaptiveAvgPool2d((3, 2))),
    "LSTM": lambda: nn.LSTM(WIDTH, 5, batch_first=True),
    "LSTM, two layers and ways, dropout": lambda: nn.LSTM(
        WIDTH, 5, 2, batch_first=True, bidirectional=True, dropout=0.3
    ),
    "LSTM from a start": from_a_start,
    "GRU, two layers and ways, dropout": lambda: nn.GRU(WIDTH, 5, 2, bidirectional=True, dropout=0.3, batch_first=True),
    "GRU without bias, time first": lambda: Does(
        lambda self, x: self.gru(x.transpose(0, 1))[1].transpose(0, 1), gru=nn.GRU(WIDTH, 5, bias=False)
    ),
    "LSTM cell": lambda: step_by_step(nn.LSTMCell(WIDTH, 5)),
    "GRU cell": lambda: step_by_step(nn.GRUCell(WIDTH, 5)),
}


def population() -> PooledPopulation:
    rng = np.random.default_rng(0)
    count, ends = sum(SIZES), np.cumsum(SIZES)
    words, targets = (torch.from_numpy(rng.integers(0, *n)) for n in ((WORDS, (count, LENGTH)), (CLASSES, count)))
    return PooledPopulation(Records(words, targets), [np.arange(e - s, e) for s, e in zip(SIZES, ends, strict=True)])


def flat(inner: nn.Module) -> FlatModel:
    return FlatModel(Reader(inner), example=tuple(population().records(0).some(np.arange(2))))


def updates(engine: Engine, model: FlatModel) -> Tensor:
    task = Task(
        train=LocalSGD(local_lr=0.5, local_steps=2, batch_size=4),
        weights=model.initial,
        population=population(),
        clients=np.arange(len(SIZES)),
        streams=Streams(3),
        path=("batches", 1, 0),
    )
    return torch.cat([u.values for u in engine.updates(task)])


@pytest.mark.parametrize("kind", KINDS)
def test_a_cohort_at_once_trains_what_clients_train_one_by_one(kind: str) -> None:
    torch.manual_seed(0)
    model = flat(KINDS[kind]())
    assert model.deterministic
    single = updates(choose_engine("one-by-one", model, CPU, model.example), model)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # vmap says so when it goes client by client
        many = updates(choose_engine("cohort", model, CPU, model.example), model)
    assert float(single.abs().max()) > 0.05
    assert float((many - single).abs().max()) < 1e-6


@pytest.mark.parametrize(
    "options",
    [{}, {"is_causal": True}, {"scale": 0.7}, {"attn_mask": ~LATER}, {"attn_mask": torch.randn(3, 1, 1, LENGTH)}],
)
def test_attention_as_products_is_that_of_torch(options: dict[str, Any]) -> None:
    torch.manual_seed(0)
    q, k, v = (torch.randn(3, 2, LENGTH, 4, requires_grad=True) for _ in range(3))
    others = {name: value for name, value in options.items() if name != "attn_mask"}
    found = []
    for y in (
        as_products(q, k, v, options.get("attn_mask"), **others),
        functional.scaled_dot_product_attention(q, k, v, **options),
    ):
        found.append([y, *torch.autograd.grad(y.square().sum(), [q, k, v])])
    assert all(torch.allclose(a, b, atol=1e-5) for a, b in zip(*found, strict=True))


@pytest.mark.parametrize("affine", [True, False])
def test_group_norms_of_all_clients_are_one(affine: bool) -> None:
    """As on a GPU: also behind another one, and of values whose clients are not on the first axis."""
    torch.manual_seed(0)
    module = nn.Sequential(nn.GroupNorm(2, 6, affine=affine), nn.ReLU(), nn.GroupNorm(3, 6), nn.Flatten())
    params = {name: torch.randn(4, *value.shape) for name, value in module.named_parameters()}
    inputs = torch.randn(5, 4, 6, 3, 3)  # (batch, clients, …)

    def gradients(one: nn.Module) -> list[Tensor]:
        leaves = {name: value.clone().requires_grad_() for name, value in params.items()}
        x = inputs.clone().requires_grad_()
        y = torch.func.vmap(lambda p, x: torch.func.functional_call(one, p, (x,)), in_dims=(0, 1))(leaves, x)
        return [y, *torch.autograd.grad((y * y.detach().cos()).sum(), [x, *leaves.values()])]

    expected = gradients(module)
    use_client_norms(module)
    assert [type(layer).__name__ for layer in module] == ["ClientGroupNorm", "ReLU", "ClientGroupNorm", "Flatten"]
    for mine, theirs in zip(gradients(module), expected, strict=True):
        assert torch.allclose(mine, theirs, atol=1e-5)


@pytest.mark.parametrize("kind", ["attention with dropout", "LSTM, two layers and ways, dropout"])
def test_dropout_inside_a_layer_follows_from_its_key(kind: str) -> None:
    """The masks differ from step to step and from client to client, and are the same every time."""
    torch.manual_seed(0)
    model = flat(KINDS[kind]())
    inputs = model.example[0]
    found = []
    for key in (1, 1, 2):
        model.set_dropout_key(torch.tensor(key))
        found.append(model.module.train()(inputs))
    assert torch.equal(found[0], found[1]) and not torch.equal(found[0], found[2])


def test_without_dropout_attention_is_that_of_torch() -> None:
    torch.manual_seed(0)
    module = Reader(KINDS["attention with dropout"]()).eval()
    model = FlatModel(module, example=tuple(population().records(0)))
    inputs = population().records(0).inputs
    assert torch.allclose(next(model.outputs(model.initial, inputs)), module(inputs), atol=1e-6)


ODD = {
    "rnn": lambda: nn.RNN(WIDTH, 5, batch_first=True),
    "bilinear": lambda: Does(lambda self, x: self.product(x, x), product=nn.Bilinear(WIDTH, WIDTH, 4)),
    "own dropout": lambda: Does(lambda self, x: functional.dropout(self.l(x), 0.5, self.training), l=nn.Linear(8, 8)),
}


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("rnn", r"'inner' \(RNN\), torch cannot vectorise rnn_tanh"),
        ("bilinear", r"'inner.product' \(Bilinear\), torch cannot vectorise bilinear"),
        ("own dropout", r"'inner' \(Does\), vmap: called random operation"),
    ],
)
def test_a_layer_that_forces_clients_one_by_one_is_named_once(
    kind: str, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    choose._say.cache_clear()
    with caplog.at_level(logging.WARNING, "laconic"):
        for _ in range(2):
            model = flat(ODD[kind]())
            assert choose_engine("auto", model, CPU, model.example).name == "one-by-one"
    (said,) = caplog.messages
    assert "about as fast as a plain loop" in said
    assert re.search(words, said)


def test_a_cohort_is_refused_where_it_is_impossible_and_slow_where_it_is_not(caplog: pytest.LogCaptureFixture) -> None:
    choose._say.cache_clear()
    model = flat(ODD["rnn"]())
    with pytest.raises(ConfigError, match=r"'inner' \(RNN\).*use --engine one-by-one"):
        choose_engine("cohort", model, CPU, model.example)
    model = flat(ODD["bilinear"]())
    with caplog.at_level(logging.WARNING, "laconic"):
        assert choose_engine("cohort", model, CPU, model.example).name == "cohort"
    assert "computed client by client" in caplog.text


@pytest.mark.parametrize(
    ("module", "shape", "batch", "name"),
    [
        (lambda: nn.Sequential(nn.Conv2d(3, 16, 3), nn.GroupNorm(4, 16), nn.Flatten()), (3, 32, 32), 10, "one-by-one"),
        (lambda: nn.Sequential(nn.Conv2d(3, 16, 3), nn.GroupNorm(4, 16), nn.Flatten()), (3, 32, 32), 1, "cohort"),
        (lambda: nn.Sequential(nn.Conv2d(3, 16, 3), nn.Flatten()), (3, 32, 32), 10, "cohort"),
    ],
)
def test_large_operations_are_done_client_by_client_on_a_cpu(
    module: Callable[[], nn.Module], shape: tuple[int, ...], batch: int, name: str
) -> None:
    """Several clients would only take the cache from each other. Without such layers the choice is as it always was."""
    model = FlatModel(module(), example=(torch.rand(2, *shape), torch.tensor([0, 1])))
    assert choose_engine("auto", model, CPU, model.example, batch=batch).name == name


def test_numbers_of_an_operation_are_counted_for_the_batch() -> None:
    module = nn.Sequential(nn.Linear(4, 6), nn.LayerNorm(6), nn.Linear(6, 3))
    assert numbers_per_operation(module, torch.rand(2, 4), 10) == 10 * (6 + 6 + 3) / 3
    assert numbers_per_operation(nn.Sequential(nn.Linear(4, 6)), torch.rand(2, 4), 10) is None
