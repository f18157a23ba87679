"""The attacks by name, and the user's own as `package.module:name`."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from typing import Any

from laconic.adversary.attack import Attack
from laconic.adversary.attacks.gradient_ascent import FabricatedSizes, GradientAscent, RandomUpdate, SignInversion
from laconic.adversary.attacks.labels import InBackdoor, LabelFlipping, OutBackdoor
from laconic.adversary.attacks.little_is_enough import InnerProduct, LittleIsEnough
from laconic.errors import ConfigError, option_named
from laconic.own_code import imported
from laconic.registry import Registry

ATTACKS: Registry[type[Attack]] = Registry(
    "attack",
    {
        "random-update": RandomUpdate,
        "gradient-ascent": GradientAscent,
        "sign-inversion": SignInversion,
        "in-backdoor": InBackdoor,
        "out-backdoor": OutBackdoor,
        "label-flipping": LabelFlipping,
        "fabricated-sizes": FabricatedSizes,
        "little-is-enough": LittleIsEnough,
        "inner-product": InnerProduct,
    },
    own="package.module:name",
)


def find_attack(kind: str) -> Callable[..., Attack]:
    """The attack of that name: a class, or the user's own function that makes one."""
    if ":" in kind:
        found = imported("attack", kind)
        if not callable(found):
            raise ConfigError(f"⟨attack⟩ {kind} is a {type(found).__name__}, not an attack")
        return found  # type: ignore[no-any-return]
    return ATTACKS.find(kind.lower())


def options_of(make: Callable[..., Attack]) -> set[str] | None:
    """The names of its options; None if it takes any."""
    if isinstance(make, type) and dataclasses.is_dataclass(make):
        return {field.name for field in dataclasses.fields(make)}
    parameters = inspect.signature(make).parameters.values()
    if any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters):
        return None
    return {p.name for p in parameters}


def build_attack(kind: str, **options: Any) -> Attack:
    """The named attack with its options; one that it does not take, or that is missing, is an error that says so."""
    make = find_attack(kind)
    known = options_of(make)
    for key in options:
        if known is not None and key not in known:
            raise ConfigError(f"⟨attack⟩ {kind} takes no {key}: leave out {option_named(f'attack_{key}')}")
    try:
        attack = make(**options)
    except TypeError:
        needed = ", ".join(option_named(f"attack_{name}") for name in required(make) if name not in options)
        raise ConfigError(f"⟨attack⟩ {kind} needs {needed}" if needed else f"⟨attack⟩ {kind} cannot be made") from None
    if not isinstance(attack, Attack):
        raise ConfigError(f"⟨attack⟩ {kind} gave a {type(attack).__name__}, not a laconic.adversary Attack")
    return attack


def required(make: Callable[..., Attack]) -> list[str]:
    """The options without a default."""
    parameters = inspect.signature(make).parameters.values()
    return [p.name for p in parameters if p.default is p.empty and p.kind is not p.VAR_KEYWORD]
