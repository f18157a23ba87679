"""From the `[attack]` section to an attack: who attacks, classes by name, and the published defaults."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from laconic.adversary.attack import Attack
from laconic.adversary.registry import build_attack, find_attack, options_of
from laconic.errors import ConfigError, option_named, unknown
from laconic.options.sections import AttackSection
from laconic.scheme import Scheme
from laconic.settings.config import RunConfig
from laconic.settings.data.datasets import source_info

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
