"""From the sections `[sampler]`, `[attack]` and `[front_end]` to what they describe.

An attack has classes by name, and the published defaults. A run that goes on reads its front end from its folder.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from laconic.adversary.attack import Attack
from laconic.adversary.registry import build_attack, find_attack, options_of
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
    learns_patches,
    read_from_files,
)
from laconic.features.patches import MOST_PATTERNS, PATTERNS
from laconic.features.projection import RIDGE
from laconic.features.tables import BANDWIDTH_NEEDS
from laconic.options.sections import AttackSection, FrontEndSection, SamplerSection
from laconic.parts import positive_int
from laconic.privacy.accounting.sampling import AsPublished, Cyclic, FixedSize, Poisson, Sampler
from laconic.scheme import Scheme
from laconic.settings.config import RunConfig
from laconic.settings.data.datasets import source_info
from laconic.settings.data.divide import public_images
from laconic.store.folder import FRONT_END
from laconic.streams import Streams


def make_sampler(section: SamplerSection, num_clients: int | None, *, usual_rate: float = 0.1) -> Sampler:
    """The sampler that the section describes, checked against the population, if that is known.

    `usual_rate` is Poisson's unless one is given.
    """
    if section.kind == "cyclic":
        given = {"⟨sampling-rate⟩": section.sampling_rate, "⟨cohort-size⟩": section.cohort_size}
        for flag in (flag for flag, value in given.items() if value is not None):
            raise ConfigError(f"⟨sampler⟩ cyclic takes ⟨separation⟩, not {flag}: each round has 1/separation of all")
        turns = Cyclic(separation=10 if section.separation is None else section.separation)
        if num_clients is not None:
            turns.check(num_clients)
        return turns
    if section.separation is not None:
        raise ConfigError(f"⟨separation⟩ {section.separation} is for clients that take turns: add ⟨sampler⟩ cyclic")
    if section.kind == "poisson":
        if section.cohort_size is not None:
            raise ConfigError("Poisson sampling takes ⟨sampling-rate⟩; for ⟨cohort-size⟩ choose ⟨sampler⟩ fixed-size")
        sampler: Sampler = Poisson(sampling_rate=usual_rate if section.sampling_rate is None else section.sampling_rate)
    else:
        if section.sampling_rate is not None:
            raise ConfigError(f"⟨sampler⟩ {section.kind} takes ⟨cohort-size⟩, not ⟨sampling-rate⟩")
        size = section.cohort_size if section.cohort_size is not None else max(1, (num_clients or 1) // 10)
        sampler = (FixedSize if section.kind == "fixed-size" else AsPublished)(cohort_size=size)
    if num_clients is not None:
        sampler.check(num_clients)
    return sampler


FRACTION = 0.1
BOOST_UNSEEN = 5000.0
"""The boost of signs under a secure sum, where no one sees it (thesis section 6.3)."""
_CLASSES = ("source", "target")


def make_attack(config: RunConfig, scheme: Scheme, num_classes: int) -> Attack | None:
    """The attack that the section describes, on data of so many classes; None if it describes none."""
    attack = _attack(config, scheme, class_names(config), num_classes)
    if attack is not None and attack.backdoor is not None and num_classes == 2:
        raise ConfigError(
            f"⟨attack⟩ {config.attack.kind} needs three classes or more: of two, taking one for the other is what every"
            " error does; use gradient-ascent or label-flipping"
        )
    return attack


def check_attack(config: RunConfig, scheme: Scheme | None) -> None:
    """Refuse what cannot work, as far as that is known before any data are loaded."""
    names = class_names(config)
    attack = _attack(config, scheme, names, len(names) or None)
    problems = [] if attack is None or scheme is None else list(attack.problems(scheme))
    if problems:
        raise ConfigError(problems[0])


def class_names(config: RunConfig) -> Sequence[str]:
    """The names of the classes, where the data set is one that says them; else none."""
    try:
        info = source_info(config.data.dataset)
    except ConfigError:
        return ()
    return () if info is None else info.classes


def _attack(config: RunConfig, scheme: Scheme | None, names: Sequence[str], num_classes: int | None) -> Attack | None:
    section = config.attack
    given = {f.name: getattr(section, f.name) for f in dataclasses.fields(AttackSection) if f.name != "options"}
    given = {name: value for name, value in given.items() if value is not None} | section.options
    kind = given.pop("kind", None)
    if kind is None:
        if given:
            name = next(iter(given))
            raise ConfigError(f"attack.{name} is set, but no attack: say which with ⟨attack⟩ KIND")
        return None
    for name in _CLASSES:
        if name in given:
            given[name] = class_number(str(given[name]), names, num_classes, option_named(f"attack_{name}"))
    if "removed" in given:
        words = [word.strip() for word in str(given["removed"]).split(",") if word.strip()]
        given["removed"] = tuple(class_number(word, names, num_classes, "⟨attack-removed⟩") for word in words)
    if "malicious" in given:
        given["malicious"] = _clients(str(given["malicious"]))
    elif "fraction" not in given:
        given["fraction"] = FRACTION
    return build_attack(kind, **(_unseen(kind, scheme) | given))


def _unseen(kind: str, scheme: Scheme | None) -> dict[str, Any]:
    """What attackers do where a secure sum hides them: they boost their signs, and all send the same."""
    if scheme is None or not scheme.noise.for_signs:
        return {}
    known = options_of(find_attack(kind))
    unseen = {"boost": BOOST_UNSEEN, "collude": True}
    return {name: value for name, value in unseen.items() if known is None or name in known}


def _clients(text: str) -> tuple[int, ...]:
    """'3,7' → (3, 7)."""
    try:
        return tuple(int(word) for word in text.split(","))
    except ValueError:
        raise ConfigError(f"⟨attack-malicious⟩ {text}: write the numbers of clients, such as 3,7") from None


def class_number(word: str, names: Sequence[str], num_classes: int | None, flag: str) -> int:
    """The number of a class, by its number or its name, of which the part before a slash will do ('T-shirt/top')."""
    folded = {name.lower(): number for number, name in enumerate(names)}
    for name in (word.lower(), word.lower().partition("/")[0]):
        if name in folded:
            return folded[name]
    if word.isdigit():
        number = int(word)
        if num_classes is not None and number >= num_classes:
            raise ConfigError(f"{flag} {word}: there are {num_classes} classes, numbered from 0")
        return number
    if names:
        raise ConfigError(f"{flag}: " + unknown("class", word, names) + ", or its number")
    raise ConfigError(f"{flag} {word}: the classes of these data have no names; give the number of one, from 0")


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
    if learns_patches(section.name):
        values = {"patterns": PATTERNS, "images": _PUBLIC_DEFAULTS["images"]} | values
    looks = looks_at_public(section.name, values["projection"], section.bandwidth)
    for key, needed in (("images", looks), ("ridge", values["projection"] == "public")):
        if key in given and not needed:
            raise ConfigError(f"{option_named(f'front_end_{key}')} means nothing without ⟨front-end-projection⟩ public")
    return config.with_values({f"front_end.{key}": value for key, value in values.items()})


def looks_at_public(name: str, projection: str | None, bandwidth: float | None) -> bool:
    """Whether public records decide something about the front end."""
    learns = learns_patches(name) or (name == "fourier" and bandwidth is None)
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
    if section.patterns is not None and not learns_patches(name):
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
