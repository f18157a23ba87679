"""The networks of the papers, initialised as Keras does: Glorot uniform weights, zero biases."""

from __future__ import annotations

import math
from collections.abc import Sequence

from torch import Tensor, nn

from laconic.errors import ConfigError
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
            " choose another --model"
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
