"""A front end as an offer describes it, enough to build it again; and how a node does that.

Nothing of it is loaded from a server. A node makes it from formulas and the public seed, or reads a file that its owner
names, and compares digests. A module is code: it comes from a factory that the owner names and has, or not at all.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from laconic.errors import ConfigError, WireError, unknown
from laconic.parts import non_negative, positive_int

if TYPE_CHECKING:
    from laconic.features.base import FrontEnd
    from laconic.federation.offer import Offer

_MOST_PIXELS, _MOST_FEATURES = 1 << 18, 1 << 24
_MOST_COMPONENTS, _MOST_LEAVES, _MOST_VALUES, _MOST_PATTERNS = 1 << 13, 100_000, 1 << 28, 1 << 11
_MOST_TOGETHER, _MOST_IN_PATCH, _MOST_SEEN = 20_000, 1 << 10, 1 << 24
"""Bounds on memory: of a picture, of its features, of the features that principal components are taken of (of one front
end, or of several), of the values in a patch, and of the map of all patterns in a picture."""


@dataclass(frozen=True, kw_only=True)
class OfferedFrontEnd:
    """`leaves` are the images of dead leaves by which a public projection was found; 0, if by other public images.

    `shape` is that of a record's features, where it does not follow from the scattering transform. `options` are for a
    factory of the owners' own, and `words` tells it that records are whole numbers. `bandwidth` is that of Fourier
    features, and `patterns` how many patches learns.
    """

    name: str = "scattering"
    projection: str = "none"
    mirror: bool = False
    features: int | None = None
    ridge: float = 0.0
    leaves: int = 0
    source: str = ""
    shape: tuple[int, ...] = ()
    bandwidth: float = 0.0
    patterns: int = 0
    words: bool = False
    options: dict[str, Any] = field(default_factory=dict, hash=False)
    digest: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", tuple(self.shape))

    def check(self, input_shape: Sequence[int]) -> None:
        """Refuse what is no front end for records of this shape, or takes more memory than any has to."""
        from laconic.features.base import check_projection
        from laconic.features.scattering import full_shape

        names = self._names()
        if names != ["fourier"]:
            check_projection(self.features, self.projection)
        non_negative(ridge=self.ridge, bandwidth=self.bandwidth)
        switches = isinstance(self.mirror, bool) and isinstance(self.words, bool)
        if not switches or not isinstance(self.source, str) or len(self.source) > 200:
            raise ConfigError("an offer's front end has options of a wrong kind")
        self._check_patterns(input_shape)
        if names != ["scattering"]:
            self._check_shape(input_shape)
            return
        if self.shape:
            raise ConfigError("the features of scattering have a shape that follows from the records'")
        available = math.prod(full_shape(input_shape))
        if math.prod(input_shape[1:]) > _MOST_PIXELS or available > _MOST_FEATURES:
            raise ConfigError(f"pictures of {tuple(input_shape)} are too large for a front end of an offer")
        if self.features is not None and self.features > available:
            raise ConfigError(f"a front end of {self.features} features, but there are {available}")
        if self.leaves:
            positive_int(leaves=self.leaves)
            values = self.leaves * available
            if available > _MOST_COMPONENTS or self.leaves > _MOST_LEAVES or values > _MOST_VALUES:
                raise ConfigError(
                    f"the components of {self.leaves} images of {available} features take too much memory"
                )

    def _names(self) -> list[str]:
        """The names in its name. One with a colon is looked at as a text, and never imported here."""
        from laconic.features.kinds import front_ends, is_known, names_in

        names = names_in(self.name) if isinstance(self.name, str) and len(self.name) <= 200 else [""]
        if not all(is_known(one) for one in names):
            raise ConfigError(unknown("front end", str(self.name)[:200], front_ends()))
        return names

    def _check_shape(self, input_shape: Sequence[int]) -> None:
        from laconic.features.patches import PLACES
        from laconic.features.scattering import full_shape

        shape = self.shape
        whole = all(isinstance(length, int) and length > 0 for length in shape)
        if not whole or not 1 <= len(shape) <= 4 or math.prod(shape) > _MOST_FEATURES:
            raise ConfigError(f"a front end of an offer cannot have features of the shape {shape}")
        if self.name == "fourier" and math.prod(input_shape) * math.prod(shape) > _MOST_VALUES:
            raise ConfigError(f"{math.prod(shape)} Fourier features of {tuple(input_shape)} take too much memory")
        if self.features is not None and shape != (self.features,):
            raise ConfigError(f"a front end of {self.features} features cannot have features of the shape {shape}")
        seen = math.prod(full_shape(input_shape)) if "scattering" in self._names() else math.prod(input_shape)
        seen += 2 * PLACES * PLACES * self.patterns
        known = not any(":" in one for one in self._names())  # else what is seen is up to the owner's own module
        if self.leaves and known and (math.prod(input_shape[1:]) > _MOST_PIXELS or self._too_many(seen)):
            raise ConfigError(f"{seen} features of pictures of {tuple(input_shape)} take too much memory")
        if self.leaves and not 0 < self.leaves <= min(_MOST_LEAVES, _MOST_VALUES // seen):
            raise ConfigError(f"the components of {self.leaves} images of {seen} features take too much memory")

    def _too_many(self, seen: int) -> bool:
        return self.projection == "public" and seen > _MOST_TOGETHER

    def _check_patterns(self, input_shape: Sequence[int]) -> None:
        """What is learnt of patches takes the square of their size, and what is seen of patterns all places."""
        from laconic.features.kinds import learns_patches
        from laconic.features.patches import SIDE, check_pictures

        self._names()  # which checks them
        learns = learns_patches(self.name)
        whole = isinstance(self.patterns, int) and not isinstance(self.patterns, bool)
        if not whole or not learns <= self.patterns <= learns * _MOST_PATTERNS:
            raise ConfigError(f"a front end of an offer cannot have {self.patterns} patterns")
        if not learns:
            return
        check_pictures(input_shape)
        pixels = math.prod(input_shape[1:])
        if pixels > _MOST_PIXELS or SIDE**2 * input_shape[0] > _MOST_IN_PATCH or self.patterns * pixels > _MOST_SEEN:
            raise ConfigError(f"{self.patterns} patterns in pictures of {tuple(input_shape)} take too much memory")

    def output_shape(self, input_shape: Sequence[int]) -> tuple[int, ...]:
        """What the model sees of a record of this shape."""
        from laconic.features.scattering import full_shape

        if self.shape:
            return self.shape
        return full_shape(input_shape) if self.features is None else (self.features,)


def own_front_end(offer: Offer, file: Path | None = None, module: str | None = None) -> FrontEnd | None:
    """The offer's front end; None if it has none.

    `file` is the owner's copy, where it cannot be made from a seed. `module` is the factory that the owner allows, as
    package.module:factory.
    """
    if offer.front_end is None:
        return None
    _check_module(offer.front_end, module)
    return _agreed(offer, _made(offer) if file is None else read_front_end(file, module))


def kept_front_end(offer: Offer, file: Path, module: str | None = None) -> FrontEnd:
    """What this node wrote down when it joined the run."""
    assert offer.front_end is not None
    _check_module(offer.front_end, module)
    return _agreed(offer, read_front_end(file, module))


def _check_module(offered: OfferedFrontEnd, module: str | None) -> None:
    from laconic.features.kinds import factory_of

    wanted = factory_of(offered.name)
    if wanted is not None and wanted != module:
        raise WireError(
            f"the run's front end is made by {wanted}, which is code: no node takes that from a server. An owner who"
            " has it, and trusts it, names it with ⟨front-end-module⟩ where the node is started"
        )


def _agreed(offer: Offer, found: FrontEnd) -> FrontEnd:
    assert offer.front_end is not None
    if found.digest != offer.front_end.digest or found.input_shape != offer.input_shape:
        raise WireError(
            f"this node's front end ({found.digest[:8]}…) is not the server's ({offer.front_end.digest[:8]}…): use the"
            " same version of torch on all machines, or give every node the server's front_end.safetensors"
            " (⟨front-end⟩)"
        )
    if found.output_shape != offer.head_shape:
        raise WireError(f"the front end has features of {found.output_shape}, the offer says {offer.head_shape}")
    return found


def read_front_end(file: Path, module: str | None = None) -> FrontEnd:
    """The owner's copy."""
    from laconic.errors import RunFolderError
    from laconic.features.base import FrontEnd

    try:
        return FrontEnd.load(file, factory=module)
    except RunFolderError:
        raise ConfigError(f"{file} is no front_end.safetensors, as a run folder has it") from None


def _made(offer: Offer) -> FrontEnd:
    """The front end, made from formulas and the public seed, by the same streams as the server's."""
    from laconic.data.synthetic import dead_leaves
    from laconic.features.kinds import Wanted, kinds_from_file, learns_patches
    from laconic.features.patches import PATTERNS
    from laconic.streams import Streams

    wanted, streams = offer.front_end, Streams(offer.public_seed)
    assert wanted is not None
    images, files = None, list(kinds_from_file(wanted.name).values())
    looks = wanted.projection == "public" or learns_patches(wanted.name)
    if files or (looks and not wanted.leaves):
        found = wanted.source or (files[0].found_on if files else "public images")
        raise WireError(
            f"the front end was found on {found}, and no node can make it again: give every node the server's"
            " front_end.safetensors (⟨front-end⟩)"
        )
    if looks:
        images = dead_leaves(wanted.leaves, offer.input_shape, streams.numpy("front end images"))
    return Wanted(
        name=wanted.name,
        mirror=wanted.mirror,
        features=wanted.features,
        projection=wanted.projection,
        ridge=wanted.ridge,
        bandwidth=wanted.bandwidth or None,
        patterns=wanted.patterns or PATTERNS,
        options=wanted.options,
        words=wanted.words,
        seed=streams.public_seed("front end module"),
    ).made(offer.input_shape, public=images, source=wanted.source, rng=streams.numpy("front end"))
