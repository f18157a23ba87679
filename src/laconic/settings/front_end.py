"""From the `[front_end]` section to a front end; a run that goes on reads it from its folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import Tensor

from laconic.data.federated import FederatedData
from laconic.data.population import first_of
from laconic.errors import ConfigError, option_named, unknown
from laconic.experiment.identity import choose_device
from laconic.features.base import FrontEnd, check_projection
from laconic.features.kinds import (
    FOURIER_NEEDS,
    Wanted,
    check_names,
    factory_of,
    front_ends,
    kinds_from_file,
    names_in,
    read_from_files,
)
from laconic.features.patches import MOST_PATTERNS, PATTERNS
from laconic.features.projection import RIDGE
from laconic.features.tables import BANDWIDTH_NEEDS
from laconic.options.sections import FrontEndSection
from laconic.parts import positive_int
from laconic.settings.config import RunConfig
from laconic.settings.data.public_records import public_images
from laconic.store.folder import FRONT_END
from laconic.streams import Streams

_DEFAULTS: dict[str, Any] = {"mirror": False, "projection": "none"}
_PUBLIC_DEFAULTS: dict[str, Any] = {"images": 10_000, "ridge": RIDGE}


def with_front_end_defaults(config: RunConfig) -> RunConfig:
    """The configuration with every key of the section that counts; an error for those that would do nothing."""
    section = config.front_end
    given = {k: v for k, v in vars(section).items() if v is not None and k != "options"}
    if section.name is None:
        for key in given | section.options:
            raise ConfigError(f"{option_named(f'front_end_{key}')} means nothing without ⟨front-end⟩ {front_ends()[0]}")
        return config
    check_names(section.name)
    _check_idle(section)
    values = _DEFAULTS | given
    if section.name == "pca":
        values["projection"] = given.get("projection", "public")
    if section.name == "fourier":
        _check_fourier(config)
        if values["projection"] != "none":
            raise ConfigError("⟨front-end-projection⟩ means nothing with ⟨front-end⟩ fourier: its features are drawn")
        values |= {} if section.bandwidth is not None else {"images": values.get("images", _PUBLIC_DEFAULTS["images"])}
    else:
        check_projection(values.get("features"), values["projection"])
    if section.name == "pca" and values["projection"] != "public":
        raise ConfigError("⟨front-end⟩ pca is a projection on public components: leave out ⟨front-end-projection⟩")
    if values["projection"] == "public":
        values = _PUBLIC_DEFAULTS | values
        positive_int(images=values["images"])
    if "patches" in names_in(section.name):
        values = {"patterns": PATTERNS, "images": _PUBLIC_DEFAULTS["images"]} | values
    looks = looks_at_public(section.name, values["projection"], section.bandwidth)
    for key, needed in (("images", looks), ("ridge", values["projection"] == "public")):
        if key in given and not needed:
            raise ConfigError(f"{option_named(f'front_end_{key}')} means nothing without ⟨front-end-projection⟩ public")
    return config.with_values({f"front_end.{key}": value for key, value in values.items()})


def looks_at_public(name: str, projection: str | None, bandwidth: float | None) -> bool:
    """Whether public records decide something about the front end."""
    learns = "patches" in names_in(name) or (name == "fourier" and bandwidth is None)
    return learns or projection == "public"


def _check_idle(section: FrontEndSection) -> None:
    """Options that belong to another front end."""
    name = section.name or ""
    if section.bandwidth is not None and name != "fourier":
        raise ConfigError("⟨front-end-bandwidth⟩ means nothing without ⟨front-end⟩ fourier")
    kinds = kinds_from_file(name)
    if section.weights is not None and not kinds:
        files = " or ".join(read_from_files()) or "NAME: none that is read from a file is installed"
        raise ConfigError(f"⟨front-end-weights⟩ means nothing without ⟨front-end⟩ {files}")
    if section.weights is None and kinds:
        raise ConfigError(next(iter(kinds.values())).weights_needed)
    if section.patterns is not None and "patches" not in names_in(name):
        raise ConfigError("⟨front-end-patterns⟩ means nothing without ⟨front-end⟩ patches")
    if section.patterns is not None and section.patterns > MOST_PATTERNS:
        raise ConfigError(
            f"⟨front-end-patterns⟩ {section.patterns:,}: at most {MOST_PATTERNS:,} patterns can be learnt; lower it"
        )
    if section.mirror and name in ("fourier", "pca"):
        raise ConfigError(f"⟨front-end-mirror⟩ means nothing with ⟨front-end⟩ {name}")
    if section.options and factory_of(name) is None:
        known = [key for key in vars(section) if key != "options"]
        raise ConfigError(unknown("key in [front_end]", next(iter(section.options)), known))


def _check_fourier(config: RunConfig) -> None:
    section, data = config.front_end, config.data
    if section.features is None:
        raise ConfigError(FOURIER_NEEDS)
    if section.bandwidth is None and data.public_dataset is None and data.public_records is None:
        raise ConfigError(BANDWIDTH_NEEDS)


def resolve_front_end(
    config: RunConfig, federation: FederatedData, streams: Streams, *, stored: Path | None = None, fit: bool = True
) -> FrontEnd | None:
    """The front end that the (completed) section describes; None if it names none.

    `stored` is a run folder: a run that goes on uses what it was started with, to the bit. With `fit=False` a random
    projection stands in for one that would have to be computed, which is enough to know sizes.
    """
    section = config.front_end
    if section.name is None:
        return None
    if stored is not None and (stored / FRONT_END).exists():
        return FrontEnd.load(stored / FRONT_END, factory=factory_of(section.name))
    public: Tensor | None = None
    source = ""
    if looks_at_public(section.name, section.projection, section.bandwidth):
        public, source = public_images(config.data, federation, section.images or 0, streams)
    fit = fit or public is None
    wanted = Wanted(
        name=section.name,
        mirror=bool(section.mirror),
        features=section.features,
        projection=section.projection or "none" if fit else _unfitted(section),
        ridge=RIDGE if section.ridge is None else section.ridge,
        bandwidth=section.bandwidth,
        weights=section.weights,
        patterns=section.patterns or PATTERNS,
        fitted=fit,
        options=section.options,
        seed=streams.public_seed("front end module"),
        words=_words(federation),
    )
    rng, device = streams.numpy("front end"), choose_device(config.run.device)
    return wanted.made(federation.input_shape, public=public, source=source, rng=rng, device=device)


def _unfitted(section: FrontEndSection) -> str:
    return "random" if section.projection == "public" else section.projection or "none"


def _words(federation: FederatedData) -> bool:
    """Whether records are whole numbers that are no pixels."""
    inputs = first_of(federation.population).inputs
    return isinstance(inputs, Tensor) and not inputs.is_floating_point() and len(federation.input_shape) != 3
