"""A module as a function of one flat weight vector: what is trained, sent, clipped and noised is that vector.

Of inputs that are numbers of words it also checks that the model knows them. A number beyond the vocabulary must never
reach an engine: for many clients at once the vectors of all of them are one table, and the word would be looked up in
another client's part of it.
"""

from __future__ import annotations

import contextlib
import copy
import functools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call

from laconic.data.inputs import Inputs, SparseRows
from laconic.errors import ConfigError, DataError
from laconic.train.layers.attention import with_keyed_attention
from laconic.train.layers.dropout import KeyedDropout, layer_keys, with_keyed_dropout
from laconic.train.layers.first_linear import FirstLinear, find_first_linear
from laconic.train.layers.recurrent import with_keyed_recurrence
from laconic.train.losses import (
    Loss,
    by_client,
    choose_loss,
    correct,
    cross_entropy,
    cross_entropy_for_many,
    two_class_metrics,
    two_class_scores,
    value_metrics,
)
from laconic.train.memory import check_memory, let_forget


class FlatModel:
    """A copy of the user's module whose trained weights are the concatenation of its parameters, in their order.

    Parameters with `requires_grad=False` and buffers are constants: they are neither trained nor sent.
    """

    def __init__(self, module: nn.Module, *, example: tuple[Tensor, Tensor], loss: str | Loss = "auto") -> None:
        check_supported(module)
        self.module = copy.deepcopy(module)
        with_keyed_dropout(self.module)
        with_keyed_attention(self.module)
        with_keyed_recurrence(self.module)
        self._own_layers = let_forget(self.module)
        named = [(n, m) for n, m in self.module.named_modules() if isinstance(m, KeyedDropout)]
        self._dropout_names, self._dropouts = [n for n, _ in named], [m for _, m in named]
        trained = [(n, p) for n, p in self.module.named_parameters() if p.requires_grad]
        self.names = [n for n, _ in trained]
        self.shapes = [p.shape for _, p in trained]
        self.lengths = [p.numel() for _, p in trained]
        self.size = sum(self.lengths)
        ends = np.cumsum(self.lengths).tolist()
        self.places = {n: slice(end - size, end) for n, end, size in zip(self.names, ends, self.lengths, strict=True)}
        self.initial = torch.cat([p.detach().reshape(-1) for _, p in trained]).to(torch.float32)
        self._remember_constants()
        self.example = example
        outputs = self._tried(example[0])
        self.loss = choose_loss(loss, outputs, example[1])
        self._try_loss(outputs, example[1])
        self._own_code = self._own_layers or not isinstance(loss, str)
        self.deterministic = self._draws_nothing(example[0])

    def _draws_nothing(self, inputs: Tensor) -> bool:
        """Whether the module in training leaves the global random numbers alone (dropout has keys of its own)."""
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            before = torch.get_rng_state()
            self.module.train()(inputs)
            return torch.equal(before, torch.get_rng_state())

    def _tried(self, inputs: Tensor) -> Tensor:
        """The outputs for some records, or an error that says what does not fit."""
        known: list[int] = []
        try:
            with torch.no_grad(), vocabularies(self.module, inputs) as known:
                outputs = self.module.eval()(inputs)
        except Exception as error:  # a user's module may raise anything
            check_words(inputs, min(known, default=None))
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            what = f"inputs of shape {tuple(inputs.shape[1:])}"
            if not inputs.is_floating_point():  # kept whole, as they are for layers that look words up
                reason += "; the inputs are whole numbers: if they are quantities, save them as float32"
            raise DataError(f"the model does not take {what}: {reason}") from None
        if not isinstance(outputs, Tensor) or outputs.ndim == 0 or len(outputs) != len(inputs):
            what = f"shape {tuple(outputs.shape)}" if isinstance(outputs, Tensor) else type(outputs).__name__
            raise ConfigError(f"the model must return one output per record, but gave {what} for {len(inputs)} records")
        self._vocabulary = min(known, default=None)
        return outputs

    def check_words(self, inputs: Inputs) -> None:
        """Refuse numbers of words that the model does not know, if it looks words up."""
        if isinstance(inputs, Tensor):
            check_words(inputs, self._vocabulary)

    def check_classes(self, targets: Tensor) -> None:
        """Refuse classes that the model has no output for."""
        if self.loss is not cross_entropy or not targets.numel():
            return
        low, high = int(targets.min()), int(targets.max())
        if low < 0 or high >= self._num_outputs:
            raise ConfigError(
                f"the model has {self._num_outputs} outputs, but there is a class {low if low < 0 else high}: classes"
                " are numbered from 0; correct the targets, or give the model an output for each class"
            )

    def _try_loss(self, outputs: Tensor, targets: Tensor) -> None:
        self._num_outputs, self._num_axes = outputs.shape[-1], outputs.ndim
        self.check_classes(targets)
        try:
            losses = self.loss(outputs, targets)
        except Exception as error:  # a user's loss may raise anything
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            raise ConfigError(
                f"the loss does not fit outputs of shape {tuple(outputs.shape)} and targets of shape"
                f" {tuple(targets.shape)}: {reason}; choose another ⟨loss⟩"
            ) from None
        if losses.shape != (len(targets),):
            raise ConfigError(f"the loss must return one value per record, but gave shape {tuple(losses.shape)}")

    def to(self, device: torch.device) -> FlatModel:
        self.module.to(device)
        self.example = (self.example[0].to(device), self.example[1].to(device))
        self.__dict__.pop("first_linear", None)
        self._remember_constants()
        self.initial = self.initial.to(device)
        return self

    @property
    def num_classes(self) -> int:
        """Between how many classes the outputs decide: one output a record decides between two."""
        return self._num_outputs if self._num_axes == 2 else 2

    @property
    def num_outputs(self) -> int:
        """How many numbers the model gives for a record."""
        return self._num_outputs if self._num_axes == 2 else 1

    def start_bias(self, values: Sequence[float]) -> None:
        """Start the bias of the last layer at these values, one for each output."""
        if self.shapes[-1] != (len(values),):
            raise ConfigError(
                f"⟨prevalence⟩ starts the bias of the last layer, and the model's last weights are of shape"
                f" {tuple(self.shapes[-1])}, not one for each of its {len(values)} outputs: leave it out"
            )
        self.initial = self.initial.clone()
        self.initial[-len(values) :] = torch.tensor(values)

    def ascending(self) -> FlatModel:
        """A copy whose training makes the loss larger: what is minimised is −f."""
        other, loss = self.copy(), self.loss
        other.loss = lambda outputs, targets: -loss(outputs, targets)
        other.__dict__.pop("first_linear", None)
        return other

    def copy(self) -> FlatModel:
        """The same model with a module of its own."""
        other = copy.copy(self)
        other.module, other._dropouts, other._constants = copy.deepcopy((self.module, self._dropouts, self._constants))
        return other

    @functools.cached_property
    def first_linear(self) -> FirstLinear | str:
        """The dense layer that takes the inputs, apart from the rest; or why there is none. For sparse inputs."""
        return find_first_linear(self, self.example)

    def split(self, flat: Tensor) -> list[Tensor]:
        """Views of (..., n) as the parameters (..., *shape), in order."""
        lead = flat.shape[:-1]
        return [v.reshape(*lead, *s) for v, s in zip(torch.split(flat, self.lengths, -1), self.shapes, strict=True)]

    def join(self, params: Sequence[Tensor], lead: int = 0) -> Tensor:
        """The flat vector (..., n) of parameters with so many leading axes."""
        return torch.cat([p.reshape(*p.shape[:lead], -1) for p in params], -1)

    def runs_without(self, left_out: Collection[str]) -> list[slice]:
        """The flat vector without some parameters, as few slices as possible."""
        runs: list[slice] = []
        for name, place in self.places.items():
            if name in left_out:
                continue
            if runs and runs[-1].stop == place.start:
                runs[-1] = slice(runs[-1].start, place.stop)
            else:
                runs.append(place)
        return runs

    def mean_loss(
        self, params: Mapping[str, Tensor], inputs: Tensor, targets: Tensor, weight: Tensor, key: Tensor
    ) -> Tensor:
        """Σ weight·loss over the batch, as a pure function (for `torch.func`); dropout masks follow from the key."""
        values: dict[str, Any] = dict(params)
        for name, layer_key in zip(self._dropout_names, layer_keys(key, len(self._dropouts)), strict=True):
            values[f"{name}.key"] = layer_key
        outputs = functional_call(self.module, values, (inputs,))
        loss = cross_entropy_for_many if self.loss is cross_entropy else self.loss
        return (loss(outputs, targets) * weight).sum()

    def _remember_constants(self) -> None:
        keys = {f"{name}.key" for name in self._dropout_names}
        self._constants = {n: (b, b.clone()) for n, b in self._fixed().items() if n not in keys}

    def _fixed(self) -> dict[str, Tensor]:
        """Buffers, and the frozen parameters that layers of the user's own could change."""
        frozen = {n: p for n, p in self.module.named_parameters() if not p.requires_grad} if self._own_layers else {}
        return dict(self.module.named_buffers()) | frozen

    def check_constants(self) -> None:
        """Refuse a module that changed its buffers in training: they would carry one client's data to the next."""
        now = self._fixed()
        for name, (buffer, value) in self._constants.items():
            # Another tensor in its place is a change too; inside vmap it cannot even be compared.
            if now.get(name) is not buffer or not torch.equal(buffer, value):
                raise ConfigError(
                    f"the model changes its buffer '{name}' while it trains, which is neither clipped nor noised:"
                    " leave such layers out"
                )
        added = now.keys() - self._constants.keys() - {f"{name}.key" for name in self._dropout_names}
        if added:
            raise ConfigError(
                f"the model makes a buffer '{min(added)}' while it trains, which is neither clipped nor noised: leave"
                " such layers out"
            )

    def check_memory(self) -> None:
        """Refuse a module or loss of the user's own whose gradients depend on what it saw before: see `memory`."""
        if self._own_code:
            check_memory(self._one_gradient, *self.example)

    def _one_gradient(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """The gradient by all trained weights on some records, with the same random numbers every time."""
        named = dict(self.module.named_parameters())
        with torch.random.fork_rng(devices=[inputs.device] if inputs.is_cuda else []), torch.enable_grad():
            torch.manual_seed(0)
            losses = self.loss(self.module.train()(inputs), targets)
            params = [named[name] for name in self.names]
            found = torch.autograd.grad(losses.sum(), params, allow_unused=True)
        self.check_constants()
        return self.join([torch.zeros_like(p) if g is None else g for g, p in zip(found, params, strict=True)])

    def set_dropout_key(self, key: Tensor) -> None:
        """The same masks as `mean_loss` draws, for a direct call of the module."""
        for layer, layer_key in zip(self._dropouts, layer_keys(key, len(self._dropouts)), strict=True):
            layer.key = layer_key

    @torch.no_grad()
    def evaluate(
        self,
        flat: Tensor,
        inputs: Inputs,
        targets: Tensor,
        batch: int | None = None,
        *,
        clients: np.ndarray | None = None,
        watch: Callable[[Tensor, Tensor], None] | None = None,
    ) -> dict[str, Any]:
        """Mean loss, and accuracy where the targets are classes; balanced accuracy and AUROC where they are two. Of
        quantities RMSE, MAE and R², in the unit of the targets.

        Args:
            flat: the weights.
            inputs: of the records.
            targets: of the records.
            batch: records at once; None: as many as memory allows.
            clients: whose each record is; then the quantiles over clients of the latter two are there, too.
            watch: is called with the outputs and targets of every batch.
        """
        batch = batch or self._at_once(inputs)
        losses: list[Tensor] = []
        hits: list[Tensor] = []
        every: list[Tensor] = []
        for outputs, y in zip(self.outputs(flat, inputs, batch), torch.split(targets, batch), strict=True):
            losses.append(self.loss(outputs, y).double().sum())
            hit = correct(outputs, y)
            if hit is not None:
                hits.append(hit.sum())
            every.append(outputs)
            if watch is not None:
                watch(outputs, y)
        metrics: dict[str, Any] = {"loss": float(torch.stack(losses).sum()) / len(targets)}
        if hits:
            metrics["accuracy"] = float(torch.stack(hits).sum()) / len(targets)
        scores = two_class_scores(every, targets)
        if scores is not None:
            labels = targets.cpu().numpy()
            metrics |= two_class_metrics(scores, labels)
            if clients is not None:
                metrics |= by_client(scores, labels, clients)
        return metrics | value_metrics(every, targets)

    @torch.no_grad()
    def outputs(self, flat: Tensor, inputs: Inputs, batch: int | None = None) -> Iterator[Tensor]:
        """The outputs for so many records at a time, without dropout. Sparse inputs are never dense all at once."""
        params, batch = self.split(flat), batch or self._at_once(inputs)
        self.check_words(inputs)
        if not isinstance(inputs, SparseRows):
            images = inputs.ndim == 4 and any(isinstance(layer, nn.Conv2d) for layer in self.module.modules())
            # Channels last in memory: pooling is several times faster on a CPU.
            layout = torch.channels_last if images and inputs.device.type == "cpu" else torch.preserve_format
            batches = (x.to(memory_format=layout) for x in inputs.split(batch))
            yield from _outputs(self, params, batches)
        elif isinstance(self.first_linear, FirstLinear):
            weight, others = self.first_linear.apart(params)
            transposed = weight.t().contiguous()
            yield from _outputs(self.first_linear.rest, others, (x.times(transposed) for x in inputs.split(batch)))
        else:
            yield from _outputs(self, params, (x.dense() for x in inputs.split(batch)))

    def _at_once(self, inputs: Inputs) -> int:
        """Records to evaluate together. Words become vectors, for which a CPU's cache is small; a GPU wants many."""
        return 64 if self._vocabulary is not None and inputs.device.type == "cpu" else 2048

    def export(self, module: nn.Module, flat: Tensor) -> nn.Module:
        """A copy of the user's own module with the weights in place."""
        module = copy.deepcopy(module)
        params = dict(module.named_parameters())
        with torch.no_grad():
            for name, value in zip(self.names, self.split(flat.cpu()), strict=True):
                params[name].copy_(value)
        return module


def _outputs(model: FlatModel, params: list[Tensor], batches: Iterable[Tensor]) -> Iterator[Tensor]:
    model.module.eval()
    values = dict(zip(model.names, params, strict=True))
    for inputs in batches:
        yield functional_call(model.module, values, (inputs,))


def trainable_size(module: nn.Module) -> int:
    """n: how many weights are trained."""
    return sum(p.numel() for p in module.parameters() if p.requires_grad)


def check_supported(module: nn.Module) -> None:
    """Refuse what cannot be trained per client: statistics shared by a batch, or nothing to train."""
    for name, layer in module.named_modules():
        running = isinstance(layer, nn.modules.instancenorm._InstanceNorm) and layer.track_running_stats
        if isinstance(layer, nn.modules.batchnorm._BatchNorm) or running:
            raise ConfigError(
                f"the model has a {type(layer).__name__} ('{name}'), whose running statistics mix records and are"
                " neither clipped nor noised: use torch.nn.GroupNorm instead"
            )
    if not any(p.requires_grad for p in module.parameters()):
        raise ConfigError("the model has no trainable parameters")
    odd = next((n for n, p in module.named_parameters() if p.requires_grad and p.dtype != torch.float32), None)
    if odd is not None:
        raise ConfigError(f"parameter '{odd}' is not float32: call model.float() first")


@contextlib.contextmanager
def vocabularies(module: nn.Module, inputs: Tensor) -> Iterator[list[int]]:
    """While the module runs on these inputs: how many words each embedding knows that takes the inputs as they are."""
    found: list[int] = []

    def notice(layer: nn.Module, arguments: tuple[Any, ...]) -> None:
        assert isinstance(layer, nn.Embedding)
        given = arguments[0] if arguments else None
        if isinstance(given, Tensor) and given.shape == inputs.shape and given.data_ptr() == inputs.data_ptr():
            found.append(layer.num_embeddings)

    hooks = [m.register_forward_pre_hook(notice) for m in module.modules() if isinstance(m, nn.Embedding)]
    try:
        yield found
    finally:
        for hook in hooks:
            hook.remove()


def check_words(inputs: Tensor, vocabulary: int | None) -> None:
    """Refuse words that the model has no vector for; None: it looks none up."""
    if vocabulary is None or not inputs.numel():
        return
    low, high = (int(n) for n in inputs.aminmax())
    if low < 0 or high >= vocabulary:
        raise DataError(
            f"a record holds the word {low if low < 0 else high}, but the model knows 0 to {vocabulary - 1}: replace"
            " such words, or give the model more (⟨model-option⟩ vocabulary=…)"
        )


def keep_padding(module: nn.Module) -> None:
    """Let the vectors of `padding_idx` stay as they are inside `vmap` too, in place.

    There the vectors of all clients are one table, and torch would leave only the first client's as it is.
    """
    for layer in module.modules():
        if isinstance(layer, nn.Embedding) and layer.padding_idx is not None:
            number, layer.padding_idx = layer.padding_idx, None
            layer.register_forward_hook(functools.partial(_padded, number))


def _padded(number: int, layer: nn.Module, arguments: tuple[Any, ...], vectors: Tensor) -> Tensor:
    return torch.where((arguments[0] == number).unsqueeze(-1), vectors.detach(), vectors)
