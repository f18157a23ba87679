"""A front end as an offer describes it, enough to build it again; and how a node does that.

Nothing of it is loaded from a server. A node makes it from formulas and the public seed, or reads a file that its owner
names, and compares digests.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from laconic.errors import ConfigError, LaconicError, WireError
from laconic.parts import non_negative, one_of, positive_int

if TYPE_CHECKING:
    from laconic.features.front_end import ScatteringFrontEnd
    from laconic.federation.offer import Offer

_MOST_PIXELS, _MOST_FEATURES = 1 << 18, 1 << 24
_MOST_COMPONENTS, _MOST_LEAVES, _MOST_VALUES = 1 << 13, 100_000, 1 << 28
"""Bounds on memory: of a picture, of its features, of the features that principal components are taken of."""


@dataclass(frozen=True, kw_only=True)
class OfferedFrontEnd:
    """`leaves` are the images of dead leaves by which a public projection was found; 0, if by other public images."""

    name: str = "scattering"
    projection: str = "none"
    mirror: bool = False
    features: int | None = None
    ridge: float = 0.0
    leaves: int = 0
    source: str = ""
    digest: str

    def check(self, input_shape: Sequence[int]) -> None:
        """Refuse what is no front end for records of this shape, or takes more memory than any has to."""
        from laconic.features.front_end import check_projection, full_shape

        one_of(("scattering",), front_end=self.name)
        check_projection(self.features, self.projection)
        non_negative(ridge=self.ridge)
        if not isinstance(self.mirror, bool) or not isinstance(self.source, str) or len(self.source) > 200:
            raise ConfigError("an offer's front end has options of a wrong kind")
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

    def output_shape(self, input_shape: Sequence[int]) -> tuple[int, ...]:
        """What the model sees of a record of this shape."""
        from laconic.features.front_end import full_shape

        return full_shape(input_shape) if self.features is None else (self.features,)


def own_front_end(offer: Offer, file: Path | None = None) -> ScatteringFrontEnd | None:
    """The offer's front end; None if it has none. `file` is the owner's copy, where it cannot be made from a seed."""
    if offer.front_end is None:
        return None
    return _agreed(offer, _made(offer) if file is None else read_front_end(file))


def kept_front_end(offer: Offer, file: Path) -> ScatteringFrontEnd:
    """What this node wrote down when it joined the run."""
    return _agreed(offer, read_front_end(file))


def _agreed(offer: Offer, found: ScatteringFrontEnd) -> ScatteringFrontEnd:
    assert offer.front_end is not None
    if found.digest != offer.front_end.digest or found.input_shape != offer.input_shape:
        raise WireError(
            f"this node's front end ({found.digest[:8]}…) is not the server's ({offer.front_end.digest[:8]}…): use the"
            " same version of torch on all machines, or give every node the server's front_end.safetensors"
            " (--front-end)"
        )
    return found


def read_front_end(file: Path) -> ScatteringFrontEnd:
    """The owner's copy."""
    from laconic.features.front_end import ScatteringFrontEnd

    try:
        return ScatteringFrontEnd.load(file)
    except LaconicError:
        raise ConfigError(f"{file} is no front_end.safetensors, as a run folder has it") from None


def _made(offer: Offer) -> ScatteringFrontEnd:
    """From formulas and the public seed, by the same streams as the server's."""
    from laconic.data.dead_leaves import dead_leaves
    from laconic.features.front_end import scattering_front_end
    from laconic.streams import Streams

    wanted, streams = offer.front_end, Streams(offer.public_seed)
    assert wanted is not None
    images = None
    if wanted.projection == "public":
        if not wanted.leaves:
            raise WireError(
                f"the front end was found on {wanted.source or 'public images'}, and no node can make it again: give"
                " every node the server's front_end.safetensors (--front-end)"
            )
        images = dead_leaves(wanted.leaves, offer.input_shape, streams.numpy("front end images"))
    return scattering_front_end(
        offer.input_shape,
        features=wanted.features,
        projection=wanted.projection,
        images=images,
        source=wanted.source,
        ridge=wanted.ridge,
        mirror=wanted.mirror,
        rng=streams.numpy("front end"),
    )
