"""From the `[front_end]` section to a front end; a run that goes on reads it from its folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import Tensor

from laconic.data.federated import FederatedData
from laconic.errors import ConfigError, unknown
from laconic.experiment.devices import choose_device
from laconic.features.front_end import ScatteringFrontEnd, check_projection, full_shape, scattering_front_end
from laconic.features.projection import RIDGE
from laconic.parts import positive_int
from laconic.settings.config import RunConfig
from laconic.settings.data.public_records import public_images
from laconic.store.front_end import FILE
from laconic.streams import Streams

FRONT_ENDS = ("scattering",)
_DEFAULTS: dict[str, Any] = {"mirror": False, "projection": "none"}
_PUBLIC_DEFAULTS: dict[str, Any] = {"images": 10_000, "ridge": RIDGE}


def with_front_end_defaults(config: RunConfig) -> RunConfig:
    """The configuration with every key of the section that counts; an error for those that would do nothing."""
    given = {k: v for k, v in vars(config.front_end).items() if v is not None}
    if config.front_end.name is None:
        for key in given:
            raise ConfigError(f"--front-end-{key} means nothing without --front-end {FRONT_ENDS[0]}")
        return config
    if config.front_end.name not in FRONT_ENDS:
        raise ConfigError(unknown("front end", config.front_end.name, FRONT_ENDS))
    values = _DEFAULTS | given
    check_projection(values.get("features"), values["projection"])
    if values["projection"] == "public":
        values = _PUBLIC_DEFAULTS | values
        positive_int(images=values["images"])
    for key in _PUBLIC_DEFAULTS:
        if key in given and values["projection"] != "public":
            raise ConfigError(f"--front-end-{key} means nothing without --front-end-projection public")
    return config.with_values({f"front_end.{key}": value for key, value in values.items()})


def settle_front_end(
    config: RunConfig, federation: FederatedData, streams: Streams, *, stored: Path | None = None, fit: bool = True
) -> ScatteringFrontEnd | None:
    """The front end that the (completed) section describes; None if it names none.

    `stored` is a run folder: a run that goes on uses what it was started with, to the bit. With `fit=False` a random
    projection stands in for one that would have to be computed, which is enough to know sizes.
    """
    section = config.front_end
    if section.name is None:
        return None
    full_shape(federation.input_shape)
    if stored is not None and (stored / FILE).exists():
        return ScatteringFrontEnd.load(stored / FILE)
    images: Tensor | None = None
    source = ""
    if section.projection == "public":
        images, source = public_images(config.data, federation, section.images or 0, streams)
    fit = fit or images is None
    return scattering_front_end(
        federation.input_shape,
        features=section.features,
        projection=section.projection or "none" if fit else "random",
        images=images,
        source=source,
        mirror=bool(section.mirror),
        ridge=RIDGE if section.ridge is None else section.ridge,
        rng=streams.numpy("front end"),
        device=choose_device(config.run.device),
    )
