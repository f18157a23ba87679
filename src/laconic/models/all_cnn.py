"""All-CNN-C: a network of convolutions alone, in which strides take the place of pooling (Springenberg et al. 2015)."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from laconic.errors import ConfigError
from laconic.models.networks import keras_initialised
from laconic.parts import below_one


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
            " choose another --model"
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
