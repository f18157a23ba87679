"""The front ends by name: made from what a user asks for, or built again from what a file says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from laconic.errors import ConfigError, unknown
from laconic.features.base import FileFrontEnd, FrontEnd, check_projection, num_values
from laconic.features.module import find_factory, made_again, module_front_end
from laconic.features.patches import PATTERNS, PatchesFrontEnd, check_pictures, learnt
from laconic.features.population import in_blocks
from laconic.features.projection import RIDGE, principal_components, random_selection
from laconic.features.scattering import ScatteringFrontEnd
from laconic.features.tables import ComponentsFrontEnd, FourierFrontEnd, fourier_front_end
from laconic.own_code import FRONT_ENDS, added
from laconic.parts import non_negative


class JoinedFrontEnd(FrontEnd):
    """(s₁·f₁(x), s₂·f₂(x), …) as one vector, for front ends f without projections of their own.

    `balance` chooses s so that on public records every part has the same variance in all. Otherwise the principal
    components would be those of the part with the most features.
    """

    scales: Tensor

    def __init__(
        self, parts: Sequence[FrontEnd], about: dict[str, Any] | None = None, projection: nn.Module | None = None
    ) -> None:
        described = {"kind": "joined", "parts": [part.about for part in parts]}
        super().__init__(parts[0].input_shape, projection, described | (about or {}))
        self.parts = nn.ModuleList(parts)
        self.register_buffer("scales", torch.ones(len(parts)))

    def raw(self, inputs: Tensor) -> Tensor:
        found = [part.raw(inputs).flatten(1) for part in self._parts]
        return torch.cat([scale * features for scale, features in zip(self.scales, found, strict=True)], dim=1)

    def balance(self, public: Tensor, device: torch.device | str) -> None:
        """Scale every part so that its features have variance 1 in all on these public records."""
        values = in_blocks(self, public, torch.device(device))
        widths = [num_values(part.raw_shape) for part in self._parts]
        totals = [float(block.var(0, correction=0).sum()) for block in torch.split(values, widths, dim=1)]
        self.scales = torch.tensor([max(total, 1e-12) ** -0.5 for total in totals])
        self.cpu()

    @property
    def _parts(self) -> list[FrontEnd]:
        return list(self.parts)  # type: ignore[arg-type]

    @property
    def for_threads(self) -> bool:
        return all(part.for_threads for part in self._parts)

    @property
    def raw_shape(self) -> tuple[int, ...]:
        return (sum(num_values(part.raw_shape) for part in self._parts),)

    @property
    def what(self) -> str:
        return "side by side: " + "; ".join(part.what for part in self._parts)

    @property
    def tensors(self) -> dict[str, Tensor]:
        own = {name: value for name, value in self.state_dict().items() if not name.startswith("parts.")}
        for number, part in enumerate(self._parts):
            own |= {f"parts.{number}.{name}": value for name, value in part.tensors.items()}
        return own


_OURS = ("scattering", "patches", "fourier", "pca")
_ALONE = ("fourier", "pca")


def front_ends() -> list[str]:
    """The front ends that are known by name: Laconic's own, and those of other installed packages."""
    return [*_OURS, *read_from_files()]


def read_from_files() -> list[str]:
    """The front ends of other packages. Their numbers are in a file."""
    return [name for name in added(FRONT_ENDS) if name not in _OURS]


def is_known(one: str) -> bool:
    """Whether this is the name of a front end, or of a factory, which is not looked for here."""
    return ":" in one or one in _OURS or one in added(FRONT_ENDS)


def names_in(name: str | None) -> list[str]:
    """The names of the front ends that stand side by side in a front end's name: those between its +."""
    return [] if name is None else name.split("+")


def learns_patches(name: str | None) -> bool:
    """Whether one of the front ends in a name learns its patterns from public images."""
    return "patches" in names_in(name)


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
            return ComponentsFrontEnd(input_shape, about={"kind": "pca", "lengths": "kept"})
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
            raise ConfigError(f"⟨front-end⟩ {self.name} takes numbers, and the records are words: leave it out")
        if self.mirror and len(input_shape) != 3:
            raise ConfigError(f"⟨front-end-mirror⟩ is for images, and the records have shape {tuple(input_shape)}")


def public_front_end(
    name: str,
    input_shape: Sequence[int],
    *,
    features: int | None = None,
    projection: str = "public",
    images: Tensor | None = None,
    source: str = "public images",
    mirror: bool = False,
    ridge: float = RIDGE,
    patterns: int = PATTERNS,
    rng: np.random.Generator | None = None,
    device: torch.device | str = "cpu",
) -> FrontEnd:
    """A front end for images by its name, by default projected on the leading principal components of public images.

    `public_front_end("scattering", shape, projection="none")` has all features, and needs no images.

    Args:
        name: 'scattering', 'patches', or both with + between them.
        input_shape: (channels, height, width).
        features: how many features the projection leaves.
        projection: 'public' for principal components, 'random' for features drawn with `rng`, 'none' for all features.
        images: public images, from which patterns and components are learnt.
        source: how the privacy statement names the images.
        mirror: whether an image and its mirror image count as the same.
        ridge: added to the eigenvalues of 'public', relative to the largest, before features are scaled by them.
        patterns: how many patterns 'patches' learns.
        rng: a numpy generator, for 'random'; seed 0 unless given.
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
    check_projection(features, projection)
    wanted = Wanted(name=name, mirror=mirror, features=features, projection=projection, ridge=ridge, patterns=patterns)
    return wanted.made(input_shape, public=images, source=source, rng=rng, device=device)


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
    """Give a front end that has no projection one: `features` of its features, found by public means only.

    Args:
        front_end: is changed.
        features: how many are kept; None for all.
        projection: 'none', 'random' (a random choice) or 'public' (principal components of public images).
        images: the public images.
        source: what they are, in words.
        ridge: added to the eigenvalues of 'public', relative to the largest, before features are scaled by them.
        rng: draws the random choice.
        device: where the components are computed.
    """
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
            "⟨front-end-projection⟩ public needs public images: give ⟨public-dataset⟩ NAME, or ⟨public-records⟩ N to"
            " set some training records aside; or use ⟨front-end-projection⟩ random"
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


PATCHES_NEED = (
    "⟨front-end⟩ patches learns its patterns from public images: give ⟨public-dataset⟩ NAME (dead-leaves need no file),"
    " or ⟨public-records⟩ N to set some training records aside"
)
FOURIER_NEEDS = "⟨front-end⟩ fourier needs ⟨front-end-features⟩ K: how many features are drawn"


def check_names(name: str) -> None:
    """Refuse what is no front end, and several that cannot stand side by side."""
    names = names_in(name)
    for one in names:
        if ":" in one:
            find_factory(one)
        elif not is_known(one):
            raise ConfigError(unknown("front end", one, front_ends()) + ", or your own as package.module:factory")
        elif one in _ALONE and len(names) > 1:
            raise ConfigError(f"⟨front-end⟩ {name}: {one} stands alone, and is joined with no other")
    if len(set(names)) < len(names) or len([one for one in names if ":" in one]) > 1:
        raise ConfigError(f"⟨front-end⟩ {name}: each may be named once, and one of them may be your own")


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
            f"the front end is made by {about['factory']}, which is code: name it where it is used"
            " (laconic node serve --front-end-module)"
        )
    return made_again(about)
