"""Networks for sequences: words (IMDB) and windows of sensors, initialised as Keras does.

ReLU stands behind the maximum it is said to come before: that is the same, and less work.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from laconic.errors import ConfigError
from laconic.models.lstm import LSTM
from laconic.models.networks import Squeeze, keras_initialised
from laconic.parts import below_one, positive_int


def cnn_lstm(
    *,
    input_shape: Sequence[int],
    num_classes: int,
    vocabulary: int = 5000,
    embedding: int = 50,
    filters: int = 250,
    units: int = 70,
    recurrent_activation: str = "hard-sigmoid",
) -> nn.Module:
    """The CNN-LSTM for IMDB: 402,701 weights at 400 words (thesis section 8.3.1). Inputs are numbers of words.

    Words as vectors of 50 numbers, a convolution over 5 words (250 filters, 'valid', ReLU), the maximum of each 3
    positions, an LSTM of 70 units, and one output for two classes.

    Args:
        input_shape: (words of a text,).
        num_classes: how many classes there are.
        vocabulary: how many words there are, 0 to vocabulary − 1.
        embedding: numbers of a word's vector.
        filters: of the convolution.
        units: of the LSTM.
        recurrent_activation: 'hard-sigmoid', Keras' default at the time (2.2), or 'sigmoid'.
    """
    positive_int(vocabulary=vocabulary, embedding=embedding, filters=filters, units=units)
    _check_words("cnn-lstm", input_shape, least=_KERNEL + _POOL - 1)
    model = nn.Sequential(
        Words(vocabulary, embedding),
        AsImages(),
        nn.Conv2d(embedding, filters, (1, _KERNEL)),
        nn.MaxPool2d((1, _POOL)),
        nn.ReLU(),
        AsSequences(),
        LSTM(filters, units, recurrent_activation=recurrent_activation),
    )
    return _with_outputs(model, units, num_classes)


def text_cnn(
    *,
    input_shape: Sequence[int],
    num_classes: int,
    vocabulary: int = 5000,
    embedding: int = 50,
    filters: int = 250,
    dropout: float = 0.0,
) -> nn.Module:
    """A small network for text: words as vectors, a convolution over 5 words, each filter's maximum, one dense layer.

    313,001 weights for two classes at the defaults, for texts of any length. Far cheaper than `cnn-lstm`: no step waits
    for another. `dropout` follows the maximum.
    """
    positive_int(vocabulary=vocabulary, embedding=embedding, filters=filters)
    below_one(dropout=dropout)
    _check_words("text-cnn", input_shape, least=_KERNEL)
    model = nn.Sequential(
        Words(vocabulary, embedding),
        AsImages(),
        nn.Conv2d(embedding, filters, (1, _KERNEL)),
        MaximumOverTime(),
        nn.ReLU(),
        nn.Dropout(dropout),
    )
    return _with_outputs(model, filters, num_classes)


def sensor_cnn(
    *, input_shape: Sequence[int], num_classes: int, filters: int = 64, hidden: int = 100, dropout: float = 0.0
) -> nn.Module:
    """A small network for windows of sensors (time, channels): 228,640 weights at 128 × 6 and 12 classes.

    Two convolutions over 5 moments (64 filters, 'same', ReLU, each followed by the maximum of each 2 moments), 100 ReLU
    units, logits; one output for two classes. `dropout` follows the dense layer.
    """
    positive_int(filters=filters, hidden=hidden)
    below_one(dropout=dropout)
    if len(input_shape) != 2 or input_shape[0] < 4:
        raise ConfigError(
            f"model 'sensor-cnn' needs windows (time, channels) of 4 moments or more, not {tuple(input_shape)}:"
            " choose another ⟨model⟩"
        )
    moments, channels = input_shape
    model = nn.Sequential(
        AsImages(),
        nn.Conv2d(channels, filters, (1, _KERNEL), padding=(0, _KERNEL // 2)),
        nn.MaxPool2d((1, 2)),
        nn.ReLU(),
        nn.Conv2d(filters, filters, (1, _KERNEL), padding=(0, _KERNEL // 2)),
        nn.MaxPool2d((1, 2)),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(filters * (moments // 4), hidden),
        nn.ReLU(),
        nn.Dropout(dropout),
    )
    return _with_outputs(model, hidden, num_classes)


_KERNEL, _POOL = 5, 3


class Words(nn.Embedding):
    """Numbers of words (batch, length) → their vectors (batch, length, size). Keras' initial values: ±0.05, uniform."""

    def reset_parameters(self) -> None:
        nn.init.uniform_(self.weight, -0.05, 0.05)

    def forward(self, words: Tensor) -> Tensor:
        if words.is_floating_point():
            raise TypeError("a model that looks words up needs whole numbers (of texts: give ⟨max-length⟩)")
        return super().forward(words)


class AsImages(nn.Module):
    """(batch, time, channels) → (batch, channels, 1, time), as a view: torch is faster at images than at sequences."""

    def forward(self, values: Tensor) -> Tensor:
        return values.transpose(1, 2).unsqueeze(2)


class AsSequences(nn.Module):
    """(batch, channels, 1, time) → (batch, time, channels)."""

    def forward(self, values: Tensor) -> Tensor:
        return values.squeeze(2).transpose(1, 2)


class MaximumOverTime(nn.Module):
    """(batch, channels, 1, time) → (batch, channels)."""

    def forward(self, values: Tensor) -> Tensor:
        return torch.amax(values, (2, 3))


def _with_outputs(model: nn.Sequential, inputs: int, num_classes: int) -> nn.Module:
    """The dense layer behind it, with one output for two classes."""
    model.append(nn.Linear(inputs, 1 if num_classes == 2 else num_classes))
    if num_classes == 2:
        model.append(Squeeze())
    return keras_initialised(model)


def _check_words(name: str, input_shape: Sequence[int], *, least: int) -> None:
    if len(input_shape) != 1 or input_shape[0] < least:
        raise ConfigError(
            f"model '{name}' needs sequences of {least} words or more, as whole numbers of shape (length,), not"
            f" {tuple(input_shape)}: choose another ⟨model⟩"
        )
