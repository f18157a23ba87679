"""`ScatteringFrontEnd`: the scattering transform in front of a head; and how a projection is found."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from laconic.errors import ConfigError
from laconic.features.base import FrontEnd, as_pixels, check_projection, num_values, size_text
from laconic.features.blocks import in_blocks
from laconic.features.projection import RIDGE, principal_components, random_selection
from laconic.features.scattering import ANGLES, CHANNELS, SCALES, SMALLEST, STRIDE, Scattering
from laconic.parts import non_negative

GROUPS = 27


class ScatteringFrontEnd(FrontEnd):
    """Scattering coefficients, normalised in 27 groups of channels (Tramèr and Boneh 2021), then perhaps projected.

    With `mirror` they are the mean over an image and its mirror image: for pictures of things, whose left and right do
    not matter, that is half of the variation gone. Without a projection the features keep the shape
    (81·channels, ⌊height/4⌋, ⌊width/4⌋); a projection makes them a vector. `about` says all this in plain values, and
    where the projection came from.

    Args:
        input_shape: (channels, height, width).
        projection: a module that makes a vector of the coefficients.
        about: where the projection came from, for the privacy statement.

    Examples:
        >>> front_end = laconic.ScatteringFrontEnd((1, 8, 8))
        >>> front_end.output_shape
        (81, 2, 2)

    References:
        Tramèr and Boneh (ICLR 2021); Oyallon and Mallat (CVPR 2015) for the transform.
    """

    def __init__(
        self, input_shape: Sequence[int], projection: nn.Module | None = None, about: dict[str, Any] | None = None
    ) -> None:
        full_shape(input_shape)
        super().__init__(input_shape, projection, about)
        self.transform = Scattering(*self.input_shape[1:])

    def raw(self, inputs: Tensor) -> Tensor:
        return functional.group_norm(self.transform(as_pixels(inputs)), GROUPS)

    @property
    def raw_shape(self) -> tuple[int, ...]:
        return full_shape(self.input_shape)

    @property
    def what(self) -> str:
        size = size_text(self.input_shape)
        return f"scattering transform (J = {SCALES}, L = {ANGLES}) of {size} images, normalised in {GROUPS} groups"


def scattering_front_end(
    input_shape: Sequence[int],
    *,
    features: int | None = None,
    projection: str = "none",
    images: Tensor | None = None,
    source: str = "public images",
    ridge: float = RIDGE,
    mirror: bool = False,
    rng: np.random.Generator | None = None,
    device: torch.device | str = "cpu",
) -> ScatteringFrontEnd:
    """The scattering front end for images of that shape, with all its features or `features` of them.

    projection="public" takes the leading principal components of public `images`, which `source` names in the privacy
    statement; "random" draws features with `rng` (seed 0 unless given). `mirror` averages over mirror images. The work
    is done on `device`.

    Args:
        input_shape: (channels, height, width).
        features: how many features the projection leaves; all of them if None.
        projection: 'none', 'public' or 'random'.
        images: public images, for 'public'.
        source: how the privacy statement names them.
        ridge: added to the eigenvalues of 'public', relative to the largest, before features are scaled by them.
        mirror: whether an image and its mirror image count as the same.
        rng: a numpy generator, for 'random'.
        device: where the projection is computed.

    Returns:
        A fixed module.

    Examples:
        >>> import numpy as np
        >>> leaves = laconic.dead_leaves(50, (1, 8, 8), np.random.default_rng(0))
        >>> front_end = laconic.scattering_front_end((1, 8, 8), features=20, projection="public", images=leaves)
        >>> front_end(leaves).shape
        torch.Size([50, 20])
    """
    check_projection(features, projection)
    whole = ScatteringFrontEnd(input_shape, about={"mirror": mirror})
    project(whole, features, projection, images=images, source=source, ridge=ridge, rng=rng, device=device)
    return whole


def project(
    front_end: FrontEnd,
    features: int | None,
    projection: str,
    *,
    images: Tensor | None = None,
    source: str = "",
    ridge: float = RIDGE,
    rng: np.random.Generator | None = None,
    device: torch.device | str = "cpu",
) -> None:
    """Give a front end that has no projection one: `features` of its features, found by public means only."""
    if projection == "none" or features is None:
        return
    available = num_values(front_end.raw_shape)
    if projection == "random":
        front_end.projection = random_selection(available, features, rng or np.random.default_rng(0))
        front_end.about |= {"projection": "random", "features": features}
        return
    non_negative(ridge=ridge)
    if images is None:
        raise ConfigError(
            "--front-end-projection public needs public images: give --public-dataset NAME, or --public-records N to"
            " set some training records aside; or use --front-end-projection random"
        )
    check_same_shape(images, front_end.input_shape)
    public = in_blocks(front_end, images, torch.device(device)).flatten(1)
    front_end.projection = principal_components(public, features, ridge=ridge)
    front_end.about |= {"projection": "public", "features": features, "ridge": ridge, "source": source}
    front_end.cpu()


def check_same_shape(images: Tensor, wanted: Sequence[int]) -> None:
    found = tuple(images.shape[1:])
    if found != tuple(wanted):
        raise ConfigError(f"the public images are of {found}, the clients' of {tuple(wanted)}")


def full_shape(input_shape: Sequence[int]) -> tuple[int, int, int]:
    """The shape of the features without a projection; an error for what is no image."""
    if len(input_shape) != 3 or min(input_shape[1:]) < SMALLEST:
        raise ConfigError(
            f"front end 'scattering' needs images (channels, height, width) of {SMALLEST} × {SMALLEST} or more, and the"
            f" records have shape {tuple(input_shape)}: leave out --front-end"
        )
    channels, height, width = input_shape
    return channels * CHANNELS, height // STRIDE, width // STRIDE
