"""Networks as users write them, of torch's own layers: a residual network, a vision transformer, and a CNN-LSTM."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

WORDS, LENGTH, CLASSES = 2000, 100, 10


class Residual(nn.Module):
    """Two 3×3 convolutions and what goes around them (He et al. 2016), with GroupNorm (Wu and He 2018)."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.second = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.norms = nn.ModuleList(nn.GroupNorm(8, outputs) for _ in range(2))
        around = [nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.GroupNorm(8, outputs)]
        self.around = nn.Sequential(*around if inputs != outputs else [])

    def forward(self, x: Tensor) -> Tensor:
        y = functional.relu(self.norms[0](self.first(x)))
        return functional.relu(self.norms[1](self.second(y)) + self.around(x))


def resnet() -> nn.Module:
    """ResNet-14 for pictures of 32 × 32."""
    layers: list[nn.Module] = [nn.Conv2d(3, 16, 3, padding=1, bias=False), nn.GroupNorm(8, 16), nn.ReLU()]
    channels = 16
    for wider, stride in ((16, 1), (32, 2), (64, 2)):
        layers += [Residual(channels, wider, stride), Residual(wider, wider, 1)]
        channels = wider
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, CLASSES))


class VisionTransformer(nn.Module):
    """Patches of 4 × 4 and a class token, four encoder layers of width 64 (Dosovitskiy et al. 2021)."""

    def __init__(self, width: int = 64, layers: int = 4, heads: int = 4) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, 4, stride=4)
        self.token = nn.Parameter(torch.zeros(1, 1, width))
        self.places = nn.Parameter(0.02 * torch.randn(1, 65, width))
        layer = nn.TransformerEncoderLayer(
            width, heads, 2 * width, dropout=0.1, activation="gelu", batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.norm, self.output = nn.LayerNorm(width), nn.Linear(width, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        patches = self.patches(x).flatten(2).transpose(1, 2)
        seen = torch.cat([self.token.expand(len(x), -1, -1), patches], 1) + self.places
        return self.output(self.norm(self.encoder(seen)[:, 0]))


class TextNetwork(nn.Module):
    """Words as vectors, a convolution over 5 words, the maximum of each 3, torch's LSTM."""

    def __init__(self, embedding: int = 32, filters: int = 64, units: int = 64) -> None:
        super().__init__()
        self.words, self.convolution = nn.Embedding(WORDS, embedding), nn.Conv1d(embedding, filters, 5)
        self.lstm, self.output = nn.LSTM(filters, units, batch_first=True), nn.Linear(units, CLASSES)

    def forward(self, words: Tensor) -> Tensor:
        seen = functional.relu(self.convolution(self.words(words).transpose(1, 2)))
        return self.output(self.lstm(functional.max_pool1d(seen, 3).transpose(1, 2))[0][:, -1])


NETWORKS = {"resnet": resnet, "vision transformer": VisionTransformer, "cnn-lstm of torch": TextNetwork}


def records(network: str, count: int) -> tuple[Tensor, Tensor]:
    """Made up: what they hold does not matter for the time."""
    generator = torch.Generator().manual_seed(0)
    targets = torch.randint(0, CLASSES, (count,), generator=generator)
    if network == "cnn-lstm of torch":
        return torch.randint(0, WORDS, (count, LENGTH), generator=generator), targets
    return torch.rand(count, 3, 32, 32, generator=generator), targets
