"""The front ends by name: made from what a user asks for, or built again from what a file says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from laconic.errors import ConfigError, unknown
from laconic.features.base import FileFrontEnd, FrontEnd
from laconic.features.front_end import ScatteringFrontEnd, check_same_shape, project
from laconic.features.joined import JoinedFrontEnd
from laconic.features.module import find_factory, made_again, module_front_end
from laconic.features.patches import PATTERNS, PatchesFrontEnd, check_pictures, learnt
from laconic.features.projection import RIDGE
from laconic.features.tables import ComponentsFrontEnd, FourierFrontEnd, fourier_front_end
from laconic.plugins import FRONT_ENDS, added

_OURS = ("scattering", "patches", "fourier", "pca")
_ALONE = ("fourier", "pca")


def front_ends() -> list[str]:
    """The front ends that are known by name: Laconic's own, and those of other installed packages."""
    return [*_OURS, *read_from_files()]


def read_from_files() -> list[str]:
    """Those of other packages. Their numbers are in a file."""
    return [name for name in added(FRONT_ENDS) if name not in _OURS]


def is_known(one: str) -> bool:
    """Whether this is the name of a front end, or of a factory, which is not looked for here."""
    return ":" in one or one in _OURS or one in added(FRONT_ENDS)


def names_in(name: str | None) -> list[str]:
    """The names of the front ends that stand side by side in a front end's name: those between its +."""
    return [] if name is None else name.split("+")


def kinds_from_file(name: str | None) -> dict[str, type[FileFrontEnd]]:
    """Those front ends in a name whose numbers are read from a file, with their classes."""
    others = [one for one in names_in(name) if one not in _OURS and ":" not in one]
    known = added(FRONT_ENDS) if others else {}
    return {one: known[one].load() for one in others if one in known}


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What is asked for. `name` may be several names with + between them; one of them may be package.module:factory.

    `options` are for that factory, and `seed` is what it draws with. `words` says that records are whole numbers, such
    as words. `weights` is the file of a front end that is read from one, and `patterns` is how many patches learns.
    Those that are not `fitted` have blanks for all that public records would say, which is enough to know sizes.
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
        names = names_in(self.name)
        mirror = self.mirror and len(names) == 1
        parts = [self._one(name, input_shape, mirror, public, source) for name in names]
        return parts[0] if len(parts) == 1 else JoinedFrontEnd(parts, {"mirror": self.mirror})

    def _one(self, name: str, input_shape: Sequence[int], mirror: bool, public: Tensor | None, source: str) -> FrontEnd:
        if name == "scattering":
            return ScatteringFrontEnd(input_shape, about={"mirror": mirror})
        if name == "patches":
            return self._patches(input_shape, mirror, public, source)
        if name == "pca":
            return ComponentsFrontEnd(input_shape, about={"kind": "pca"})
        if kind := kinds_from_file(name).get(name):
            if self.weights is None:
                raise ConfigError(kind.weights_needed)
            found = kind.read(self.weights, input_shape)
            found.about["mirror"] = mirror
            return found
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


def check_names(name: str) -> None:
    """Refuse what is no front end, and several that cannot stand side by side."""
    names = names_in(name)
    for one in names:
        if ":" in one:
            find_factory(one)
        elif not is_known(one):
            raise ConfigError(unknown("front end", one, front_ends()) + ", or your own as package.module:factory")
        elif one in _ALONE and len(names) > 1:
            raise ConfigError(f"--front-end {name}: {one} stands alone, and is joined with no other")
    if len(set(names)) < len(names) or len([one for one in names if ":" in one]) > 1:
        raise ConfigError(f"--front-end {name}: each may be named once, and one of them may be your own")


def factory_of(name: str | None) -> str | None:
    """The package.module:factory in a front end's name; None without one."""
    return next((one for one in names_in(name) if ":" in one), None)


def built_from(about: dict[str, Any], factory: str | None = None) -> FrontEnd:
    """The front end that a file describes, before the file's numbers are filled in.

    A factory is called only if it is the one that the caller named.
    """
    kind, shape = about.get("kind", "scattering"), about["input_shape"]
    if kind == "scattering":
        return ScatteringFrontEnd(shape, about=about)
    if kind == "patches":
        return PatchesFrontEnd.described(about)
    if kind == "pca":
        return ComponentsFrontEnd(shape, about=about)
    if kind == "fourier":
        width, features = int(np.prod(shape)), int(about["features"])
        return FourierFrontEnd(shape, torch.zeros(width, features), torch.zeros(features), about)
    if kind == "joined":
        return JoinedFrontEnd([built_from(part, factory) for part in about["parts"]], about)
    if isinstance(kind, str) and kind in kinds_from_file(kind):
        return kinds_from_file(kind)[kind].described(about)
    if kind != "module":
        raise ValueError(f"a front end of the kind {kind!r} is not known")
    if about["factory"] != factory:
        raise ConfigError(
            f"the front end is made by {about['factory']}, which is code: whoever uses it names it where it is used"
            " (laconic node serve --front-end-module)"
        )
    return made_again(about)
