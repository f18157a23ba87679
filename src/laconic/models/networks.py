"""The papers' networks for images, health records, words and windows of sensors, initialised as Keras does.

Weights are Glorot uniform, biases 0. In the networks for sequences ReLU stands behind the maximum that it is said to
come before: that is the same, and less work.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from laconic.errors import ConfigError
from laconic.models.lstm import LSTM
from laconic.parts import below_one, positive_int


def cnn(*, input_shape: Sequence[int], num_classes: int) -> nn.Module:
    """The CNN for MNIST and Fashion-MNIST: 1,663,370 weights at 28 × 28 × 1 (thesis section 8.3.1).

    Two 5×5 convolutions (32 and 64 filters, ReLU, each followed by 2×2 max pooling), 512 ReLU units, logits.
    """
    if len(input_shape) != 3 or min(input_shape[1:]) < 4:
        raise ConfigError(f"model 'cnn' needs images (channels, height, width) of 4 × 4 or more, not {input_shape}")
    channels, height, width = input_shape
    model = nn.Sequential(
        nn.Conv2d(channels, 32, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(64 * (height // 4) * (width // 4), 512),
        nn.ReLU(),
        nn.Linear(512, num_classes),
    )
    return keras_initialised(model)


def lfw_cnn(*, input_shape: Sequence[int], num_classes: int) -> nn.Module:
    """The CNN for faces (LFW): 880,450 weights at 62 × 47 × 3 and 2 classes (thesis section 8.3.1).

    Three 3×3 convolutions (32, 64 and 128 filters, 'valid', ReLU, each followed by 2×2 max pooling), 256 ReLU units,
    logits, one for each class.
    """
    if len(input_shape) != 3 or min(input_shape[1:]) < 22:
        raise ConfigError(
            f"model 'lfw-cnn' needs images (channels, height, width) of 22 × 22 or more, not {tuple(input_shape)}:"
            " choose another ⟨model⟩"
        )
    channels, height, width = input_shape
    layers: list[nn.Module] = []
    for filters in (32, 64, 128):
        layers += [nn.Conv2d(channels, filters, 3), nn.ReLU(), nn.MaxPool2d(2)]
        channels, height, width = filters, (height - 2) // 2, (width - 2) // 2
    layers += [nn.Flatten(), nn.Linear(channels * height * width, 256), nn.ReLU(), nn.Linear(256, num_classes)]
    return keras_initialised(nn.Sequential(*layers))


def mlp(*, input_shape: Sequence[int], num_classes: int, dropout: float = 0.0, hidden: int = 200) -> nn.Module:
    """The MLP for in-hospital mortality: two hidden layers of 200 ReLU units, one output for two classes.

    1,496,601 weights at 7,280 inputs, 4,926,201 at 24,428. `dropout` follows each hidden layer (0.5 in the papers).
    """
    below_one(dropout=dropout)
    positive_int(hidden=hidden)
    outputs = 1 if num_classes == 2 else num_classes
    model = nn.Sequential(
        nn.Flatten(),
        nn.Linear(math.prod(input_shape), hidden),
        nn.ReLU(),
        nn.Dropout(dropout),
        nn.Linear(hidden, hidden),
        nn.ReLU(),
        nn.Dropout(dropout),
        nn.Linear(hidden, outputs),
    )
    if outputs == 1:
        model.append(Squeeze())
    return keras_initialised(model)


def logistic(*, input_shape: Sequence[int], num_classes: int, zero: bool = False) -> nn.Module:
    """Logistic regression: one linear layer, a single output for two classes.

    With `zero` all weights start at 0. Training has one optimum from anywhere, and random weights are noise to unlearn.
    """
    outputs = 1 if num_classes == 2 else num_classes
    layer = nn.Linear(math.prod(input_shape), outputs)
    model = nn.Sequential(nn.Flatten(), layer)
    if outputs == 1:
        model.append(Squeeze())
    keras_initialised(model)
    if zero:
        nn.init.zeros_(layer.weight)
    return model


class Squeeze(nn.Module):
    """(batch, 1) → (batch,): the logit of a two-class model."""

    def forward(self, outputs: Tensor) -> Tensor:
        return outputs.squeeze(-1)


def keras_initialised(model: nn.Module) -> nn.Module:
    """Glorot uniform for the weights of dense and convolutional layers, zero for their biases (Keras' defaults)."""
    for layer in model.modules():
        if isinstance(layer, nn.Linear | nn.Conv1d | nn.Conv2d | nn.Conv3d):
            nn.init.xavier_uniform_(layer.weight)
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)
    return model


def all_cnn_c(
    *, input_shape: Sequence[int], num_classes: int, dropout: float = 0.5, strided_relu: bool = False
) -> nn.Module:
    """All-CNN-C for CIFAR-10: 1,369,738 weights at 32 × 32 × 3 (thesis section 8.3.1).

    Three 3×3 convolutions of 96 filters and three of 192, the last of each with stride 2 and followed by `dropout`;
    3×3 and 1×1 with 192; 1×1 to the classes; their mean over the image. ReLU after all but the last and those with a
    stride, as in the public Keras code that the thesis cites; the paper has one there too (`strided_relu`). Padding is
    'same' as Keras means it: ⌈size / stride⌉ outputs, and where the padding is odd, more of it below and to the right.
    So stride 2 on an even size pads there alone; `padding=1` of torch would pad above and to the left as well.
    """
    below_one(dropout=dropout)
    if len(input_shape) != 3 or min(input_shape[1:]) < 4:
        raise ConfigError(
            f"model 'all-cnn-c' needs images (channels, height, width) of 4 × 4 or more, not {tuple(input_shape)}:"
            " choose another ⟨model⟩"
        )
    channels, size = input_shape[0], (input_shape[1], input_shape[2])
    layers: list[nn.Module] = []
    for filters in (96, 192):
        for stride in (1, 1, 2):
            layers += same_convolution(channels, filters, size, stride)
            if stride == 1 or strided_relu:
                layers.append(nn.ReLU())
            channels, size = filters, (-(-size[0] // stride), -(-size[1] // stride))
        layers.append(nn.Dropout(dropout))
    layers += [nn.Conv2d(192, 192, 3, padding=1), nn.ReLU(), nn.Conv2d(192, 192, 1), nn.ReLU()]
    return keras_initialised(nn.Sequential(*layers, nn.Conv2d(192, num_classes, 1), MeanOverImage()))


def same_convolution(channels: int, filters: int, size: tuple[int, int], stride: int) -> list[nn.Module]:
    """A 3×3 convolution with Keras' padding 'same', and the padding if it is not alike on both sides."""
    (top, bottom), (left, right) = (same_padding(length, 3, stride) for length in size)
    if top == bottom and left == right:
        return [nn.Conv2d(channels, filters, 3, stride=stride, padding=(top, left))]
    return [nn.ZeroPad2d((left, right, top, bottom)), nn.Conv2d(channels, filters, 3, stride=stride)]


def same_padding(length: int, kernel: int, stride: int) -> tuple[int, int]:
    """How many zeros go before and behind: max(0, (⌈length/stride⌉ − 1)·stride + kernel − length), halved."""
    total = max(0, (-(-length // stride) - 1) * stride + kernel - length)
    return total // 2, total - total // 2


class MeanOverImage(nn.Module):
    """(batch, channels, height, width) → (batch, channels): global average pooling."""

    def forward(self, images: Tensor) -> Tensor:
        return images.mean((2, 3))


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
