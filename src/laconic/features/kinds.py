"""The front ends by name: made from what a user asks for, or built again from what a file says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from laconic.errors import ConfigError, unknown
from laconic.features.base import FrontEnd
from laconic.features.contrast.front_end import ContrastFrontEnd, read_contrast
from laconic.features.front_end import ScatteringFrontEnd, check_same_shape, project
from laconic.features.joined import JoinedFrontEnd
from laconic.features.module import find_factory, made_again, module_front_end
from laconic.features.patches import PATTERNS, PatchesFrontEnd, check_pictures, learnt
from laconic.features.projection import RIDGE
from laconic.features.tables import ComponentsFrontEnd, FourierFrontEnd, fourier_front_end

FRONT_ENDS = ("scattering", "patches", "contrast", "fourier", "pca")
_ALONE = ("fourier", "pca")


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What is asked for. `name` may be several names with + between them; one of them may be package.module:factory.

    `options` are for that factory, and `seed` is what it draws with. `words` says that records are whole numbers, such
    as words. `weights` is the file of a contrast network, and `patterns` is how many patches learns. Those that are not
    `fitted` have blanks for all that public records would say, which is enough to know sizes.
    """

    name: str
    mirror: bool = False
    features: int | None = None
    projection: str = "none"
    ridge: float = RIDGE
    bandwidth: float | None = None
    weights: str | None = None
    patterns: int = PATTERNS
    fitted: bool = True
    options: dict[str, Any] = field(default_factory=dict)
    seed: int = 0
    words: bool = False

    def made(
        self,
        input_shape: Sequence[int],
        *,
        public: Tensor | None = None,
        source: str = "",
        rng: np.random.Generator | None = None,
        device: torch.device | str = "cpu",
    ) -> FrontEnd:
        """The front end for records of that shape; `public` are public records, which `source` names."""
        check_names(self.name)
        self._check_records(input_shape)
        if self.name == "fourier":
            if self.features is None:
                raise ConfigError(FOURIER_NEEDS)
            return fourier_front_end(
                input_shape,
                features=self.features,
                bandwidth=self.bandwidth,
                public=public,
                source=source,
                rng=rng,
            )
        found = self._whole(input_shape, public, source)
        if isinstance(found, JoinedFrontEnd) and self.projection == "public" and public is not None:
            found.balance(public, device)
        given: dict[str, Any] = {"images": public, "source": source, "ridge": self.ridge, "rng": rng, "device": device}
        project(found, self.features, self.projection, **given)
        return found

    def _whole(self, input_shape: Sequence[int], public: Tensor | None, source: str) -> FrontEnd:
        names = self.name.split("+")
        mirror = self.mirror and len(names) == 1
        parts = [self._one(name, input_shape, mirror, public, source) for name in names]
        return parts[0] if len(parts) == 1 else JoinedFrontEnd(parts, {"mirror": self.mirror})

    def _one(self, name: str, input_shape: Sequence[int], mirror: bool, public: Tensor | None, source: str) -> FrontEnd:
        if name == "scattering":
            return ScatteringFrontEnd(input_shape, about={"mirror": mirror})
        if name == "patches":
            return self._patches(input_shape, mirror, public, source)
        if name == "contrast":
            if self.weights is None:
                raise ConfigError(WEIGHTS_NEEDED)
            found = read_contrast(self.weights, input_shape)
            found.about["mirror"] = mirror
            return found
        if name == "pca":
            return ComponentsFrontEnd(input_shape, about={"kind": "pca"})
        return module_front_end(
            name, input_shape, options=self.options, seed=self.seed, words=self.words, mirror=mirror
        )

    def _patches(self, input_shape: Sequence[int], mirror: bool, public: Tensor | None, source: str) -> FrontEnd:
        about = {"input_shape": list(input_shape), "patterns": self.patterns, "mirror": mirror, "learnt_from": source}
        if not self.fitted:
            return PatchesFrontEnd.described(about)
        check_pictures(input_shape)
        if public is None:
            raise ConfigError(PATCHES_NEED)
        check_same_shape(public, input_shape)
        return PatchesFrontEnd(input_shape, *learnt(public, self.patterns), about)

    def _check_records(self, input_shape: Sequence[int]) -> None:
        if self.words and ":" not in self.name:
            raise ConfigError(f"--front-end {self.name} takes numbers, and the records are words: leave it out")
        if self.mirror and len(input_shape) != 3:
            raise ConfigError(f"--front-end-mirror is for images, and the records have shape {tuple(input_shape)}")


def public_front_end(
    name: str,
    input_shape: Sequence[int],
    *,
    images: Tensor,
    features: int,
    source: str = "public images",
    mirror: bool = False,
    ridge: float = RIDGE,
    patterns: int = PATTERNS,
    device: torch.device | str = "cpu",
) -> FrontEnd:
    """A front end for images by its name, projected on the leading principal components of public images.

    Args:
        name: 'scattering', 'patches', or both with + between them.
        input_shape: (channels, height, width).
        images: public images, from which patterns and components are learnt.
        features: how many components are kept.
        source: how the privacy statement names the images.
        mirror: whether an image and its mirror image count as the same.
        ridge: added to the eigenvalues, relative to the largest, before features are scaled by them.
        patterns: how many patterns 'patches' learns.
        device: where it is computed.

    Returns:
        A fixed module.

    Examples:
        >>> import numpy as np
        >>> leaves = laconic.dead_leaves(200, (1, 12, 12), np.random.default_rng(0))
        >>> front_end = laconic.public_front_end("patches", (1, 12, 12), images=leaves, features=20, patterns=16)
        >>> front_end(leaves).shape
        torch.Size([200, 20])

    References:
        Coates, Ng and Lee (AISTATS 2011) for patches; Tramèr and Boneh (ICLR 2021) for scattering.
    """
    wanted = Wanted(name=name, mirror=mirror, features=features, projection="public", ridge=ridge, patterns=patterns)
    return wanted.made(input_shape, public=images, source=source, device=device)


PATCHES_NEED = (
    "--front-end patches learns its patterns from public images: give --public-dataset NAME (dead-leaves need no file),"
    " or --public-records N to set some training records aside"
)
FOURIER_NEEDS = "--front-end fourier needs --front-end-features K: how many features are drawn"
WEIGHTS_NEEDED = (
    "--front-end contrast needs --front-end-weights FILE: the network, made with laconic features train FILE"
)


def check_names(name: str) -> None:
    """Refuse what is no front end, and several that cannot stand side by side."""
    names = name.split("+")
    for one in names:
        if ":" in one:
            find_factory(one)
        elif one not in FRONT_ENDS:
            raise ConfigError(unknown("front end", one, FRONT_ENDS) + ", or your own as package.module:factory")
        elif one in _ALONE and len(names) > 1:
            raise ConfigError(f"--front-end {name}: {one} stands alone, and is joined with no other")
    if len(set(names)) < len(names) or len([one for one in names if ":" in one]) > 1:
        raise ConfigError(f"--front-end {name}: each may be named once, and one of them may be your own")


def factory_of(name: str | None) -> str | None:
    """The package.module:factory in a front end's name; None without one."""
    return next((one for one in (name or "").split("+") if ":" in one), None)


def built_from(about: dict[str, Any], factory: str | None = None) -> FrontEnd:
    """The front end that a file describes, before the file's numbers are filled in.

    A factory is called only if it is the one that the caller named.
    """
    kind, shape = about.get("kind", "scattering"), about["input_shape"]
    if kind == "scattering":
        return ScatteringFrontEnd(shape, about=about)
    if kind == "contrast":
        return ContrastFrontEnd.described(about)
    if kind == "patches":
        return PatchesFrontEnd.described(about)
    if kind == "pca":
        return ComponentsFrontEnd(shape, about=about)
    if kind == "fourier":
        width, features = int(np.prod(shape)), int(about["features"])
        return FourierFrontEnd(shape, torch.zeros(width, features), torch.zeros(features), about)
    if kind == "joined":
        return JoinedFrontEnd([built_from(part, factory) for part in about["parts"]], about)
    if kind != "module":
        raise ValueError(f"a front end of the kind {kind!r} is not known")
    if about["factory"] != factory:
        raise ConfigError(
            f"the front end is made by {about['factory']}, which is code: whoever uses it names it where it is used"
            " (laconic node serve --front-end-module)"
        )
    return made_again(about)
