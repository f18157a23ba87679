"""The front end of an offered run, on the node: made here, or read from the owner's file, and compared by digest."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from laconic.errors import ConfigError, LaconicError, WireError

if TYPE_CHECKING:
    from laconic.features.front_end import ScatteringFrontEnd
    from laconic.federation.offer import Offer


def own_front_end(offer: Offer, file: Path | None = None) -> ScatteringFrontEnd | None:
    """The offer's front end; None if it has none. `file` is the owner's copy, where it cannot be made from a seed."""
    if offer.front_end is None:
        return None
    return _agreed(offer, _made(offer) if file is None else _read(file))


def kept_front_end(offer: Offer, file: Path) -> ScatteringFrontEnd:
    """What this node wrote down when it joined the run."""
    return _agreed(offer, _read(file))


def _agreed(offer: Offer, found: ScatteringFrontEnd) -> ScatteringFrontEnd:
    assert offer.front_end is not None
    if found.digest != offer.front_end.digest or found.input_shape != offer.input_shape:
        raise WireError(
            f"this node's front end ({found.digest[:8]}…) is not the server's ({offer.front_end.digest[:8]}…): use the"
            " same version of torch on all machines, or give every node the server's front_end.safetensors"
            " (--front-end)"
        )
    return found


def _read(file: Path) -> ScatteringFrontEnd:
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
