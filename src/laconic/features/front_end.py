"""A front end: a fixed public map from records to features, in front of a head that is trained.

It is computed once per record, nothing of it is trained or sent, and it knows nothing about the clients' data. Any
module can be one; `ScatteringFrontEnd` is the one that has a name.
"""

from __future__ import annotations

import copy
import hashlib
import json
import math
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from laconic.errors import ConfigError, RunFolderError, unknown
from laconic.features.blocks import in_blocks
from laconic.features.projection import RIDGE, Selection, Whitening, principal_components, random_selection
from laconic.features.scattering import ANGLES, CHANNELS, SCALES, SMALLEST, STRIDE, Scattering
from laconic.parts import non_negative, positive_int

PROJECTIONS = ("none", "public", "random")
GROUPS = 27


class ScatteringFrontEnd(nn.Module):
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
        super().__init__()
        full_shape(input_shape)
        self.input_shape = tuple(input_shape)
        self.about = {"input_shape": list(input_shape), "projection": "none", "mirror": False, **(about or {})}
        self.transform = Scattering(*self.input_shape[1:])
        self.projection = projection or nn.Identity()

    def forward(self, images: Tensor) -> Tensor:
        images = images if images.is_floating_point() else images / 255  # whole numbers are pixels from 0 to 255
        features = functional.group_norm(self.transform(images), GROUPS)
        if self.about["mirror"]:
            features = (features + functional.group_norm(self.transform(images.flip(-1)), GROUPS)) / 2
        projected: Tensor = self.projection(features)
        return projected

    @property
    def output_shape(self) -> tuple[int, ...]:
        """The shape of a record's features."""
        kept = self.about.get("features")
        return full_shape(self.input_shape) if kept is None else (int(kept),)

    @property
    def sentence(self) -> str:
        """What it is and what it was made from, for people."""
        size, about = "×".join(map(str, self.input_shape)), self.about
        text = f"scattering transform (J = {SCALES}, L = {ANGLES}) of {size} images, normalised in {GROUPS} groups"
        if about["mirror"]:
            text += ", averaged over each image and its mirror image"
        if about["projection"] == "public":
            text += f", projected on the {about['features']} leading principal components of {about['source']}"
        if about["projection"] == "random":
            text += f", {about['features']} of its features drawn from a public seed"
        return text

    @property
    def digest(self) -> str:
        """64 hex digits of all that is not a formula: the description, and the numbers of the projection."""
        found = hashlib.sha256(json.dumps(self.about, sort_keys=True).encode())
        for name, value in sorted(self.state_dict().items()):
            found.update(f"\n{name} {value.dtype} {tuple(value.shape)}\n".encode())
            found.update(value.cpu().contiguous().numpy().tobytes())
        return found.hexdigest()

    def to_bytes(self) -> bytes:
        """As a safetensors file; the filters follow from their formulas and are not in it."""
        from safetensors.torch import save

        tensors = {name: value.cpu().contiguous() for name, value in self.state_dict().items()}
        return save(tensors, metadata={"front_end": json.dumps(self.about)})

    @classmethod
    def load(cls, path: str | Path) -> ScatteringFrontEnd:
        """The front end that `to_bytes` wrote down."""
        from safetensors import SafetensorError, safe_open

        try:
            with safe_open(path, framework="pt") as file:
                about = json.loads(file.metadata()["front_end"])
                tensors = {name.removeprefix("projection."): file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            kinds: dict[str, Any] = {"none": lambda: None, "public": Whitening, "random": Selection}
            return cls(about["input_shape"], kinds[about["projection"]](**tensors), about)
        except (OSError, SafetensorError, ValueError, KeyError, TypeError) as error:
            raise RunFolderError(f"{path} is damaged ({error}): restore it or start a new run") from None


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
    about: dict[str, Any] = {"mirror": mirror}
    whole = ScatteringFrontEnd(input_shape, about=about)
    if projection == "none" or features is None:
        return whole
    available = math.prod(full_shape(input_shape))
    if projection == "random":
        chosen = random_selection(available, features, rng or np.random.default_rng(0))
        return ScatteringFrontEnd(input_shape, chosen, about | {"projection": "random", "features": features})
    non_negative(ridge=ridge)
    if images is None:
        raise ConfigError(
            "--front-end-projection public needs public images: give --public-dataset NAME, or --public-records N to"
            " set some training records aside; or use --front-end-projection random"
        )
    if tuple(images.shape[1:]) != tuple(input_shape):
        raise ConfigError(f"the public images are of {tuple(images.shape[1:])}, the clients' of {tuple(input_shape)}")
    public = in_blocks(whole, images, torch.device(device)).flatten(1)
    components = principal_components(public, features, ridge=ridge).cpu()
    about |= {"projection": "public", "features": features, "ridge": ridge, "source": source}
    return ScatteringFrontEnd(input_shape, components, about)


def full_shape(input_shape: Sequence[int]) -> tuple[int, int, int]:
    """The shape of the features without a projection; an error for what is no image."""
    if len(input_shape) != 3 or min(input_shape[1:]) < SMALLEST:
        raise ConfigError(
            f"front end 'scattering' needs images (channels, height, width) of {SMALLEST} × {SMALLEST} or more, and the"
            f" records have shape {tuple(input_shape)}: leave out --front-end"
        )
    channels, height, width = input_shape
    return channels * CHANNELS, height // STRIDE, width // STRIDE


def check_projection(features: int | None, projection: str) -> None:
    """A number of features and a way to get them belong together."""
    if projection not in PROJECTIONS:
        raise ConfigError(unknown("front-end projection", projection, PROJECTIONS))
    if features is not None:
        positive_int(features=features)
    if features is None and projection != "none":
        raise ConfigError(f"--front-end-projection {projection} needs --front-end-features K: how many are kept")
    if features is not None and projection == "none":
        raise ConfigError("--front-end-features needs --front-end-projection public or random: how they are chosen")


def with_head(front_end: nn.Module, head: nn.Module) -> nn.Module:
    """Both together: from raw records to the head's outputs."""
    return nn.Sequential(OrderedDict(front_end=copy.deepcopy(front_end), head=head))


def describe(front_end: nn.Module) -> str:
    """One line about any front end."""
    return front_end.sentence if isinstance(front_end, ScatteringFrontEnd) else type(front_end).__name__
