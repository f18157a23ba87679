"""What every part of a scheme has in common: it is frozen, validated, and can be written down and read back."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, ClassVar, Self

from laconic.errors import ConfigError, unknown


@dataclasses.dataclass(frozen=True, kw_only=True)
class Part:
    """A frozen, keyword-only dataclass that knows its kind by name.

    `to_dict` and `from_dict` are inverse to each other; the kind is the class name. A subclass is known to
    `from_dict` as soon as it is defined, so a new codec or rule is a new class and nothing else.
    """

    _kinds: ClassVar[dict[str, type[Part]]] = {}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        other = Part._kinds.get(cls.__name__)
        if other is not None and other.__module__ != cls.__module__:
            raise TypeError(f"a part named {cls.__name__} exists already, in {other.__module__}: choose another name")
        Part._kinds[cls.__name__] = cls

    def to_dict(self) -> dict[str, Any]:
        fields = {f.name: _plain(getattr(self, f.name)) for f in dataclasses.fields(self)}
        return {"kind": type(self).__name__, **fields}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """The part that `to_dict` wrote; an unknown key or kind is an error that names the nearest known one."""
        if "kind" not in data:
            raise ConfigError(f"{cls.__name__}: the key 'kind' is missing; known kinds: {', '.join(cls.known_kinds())}")
        kind = data["kind"]
        known = cls.known_kinds()
        if kind not in known:
            raise ConfigError(unknown(f"{cls.__name__} kind", str(kind), known))
        part = Part._kinds[kind]
        names = {f.name for f in dataclasses.fields(part)}
        values = {key: value for key, value in data.items() if key != "kind"}
        for key in values:
            if key not in names:
                raise ConfigError(unknown(f"key of {kind}", key, names))
        nested = {key: _part(value) for key, value in values.items()}
        try:
            return part(**nested)  # type: ignore[return-value]
        except TypeError as error:
            raise ConfigError(f"{kind}: {error}") from None

    @classmethod
    def known_kinds(cls) -> list[str]:
        """The kinds that can be built: not the bases that others derive from directly under `Part`."""
        return sorted(
            name
            for name, part in Part._kinds.items()
            if issubclass(part, cls) and not (Part in part.__bases__ and part.__subclasses__())
        )


def _plain(value: Any) -> Any:
    if isinstance(value, tuple) and any(isinstance(one, Part) for one in value):
        return [_plain(one) for one in value]
    return value.to_dict() if isinstance(value, Part) else value


def _part(value: Any) -> Any:
    """The part, or the tuple of parts, that `_plain` wrote; any other value as it is."""
    if isinstance(value, list) and value and all(isinstance(one, dict) and "kind" in one for one in value):
        return tuple(Part.from_dict(one) for one in value)
    return Part.from_dict(value) if isinstance(value, dict) and "kind" in value else value


# Validators take the value as a keyword, so that the keyword is the error message.


def positive(**values: float) -> None:
    for name, value in values.items():
        if not (_is_number(value) and math.isfinite(value) and value > 0):
            raise ConfigError(f"{name} must be a positive number, not {value!r}")


def decided(noise_multiplier: float | None) -> float:
    """σ, refused if it was left open: nothing may be noised or accounted with one that was not chosen."""
    if noise_multiplier is None:
        raise ConfigError(
            "the noise multiplier σ is open: give noise_multiplier, or epsilon to laconic.run, which then calibrates it"
        )
    return noise_multiplier


def non_negative(**values: float) -> None:
    for name, value in values.items():
        if not (_is_number(value) and math.isfinite(value) and value >= 0):
            raise ConfigError(f"{name} must be a number that is zero or more, not {value!r}")


def positive_int(**values: int) -> None:
    for name, value in values.items():
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ConfigError(f"{name} must be a whole number that is 1 or more, not {value!r}")


def non_negative_int(**values: int) -> None:
    for name, value in values.items():
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise ConfigError(f"{name} must be a whole number that is 0 or more, not {value!r}")


def port(**values: int) -> None:
    for name, value in values.items():
        if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= 65535:
            raise ConfigError(f"{name} must be the number of a port, 1 to 65535, not {value}")


def rate(**values: float) -> None:
    for name, value in values.items():
        if not (_is_number(value) and 0 < value <= 1):
            raise ConfigError(f"{name} must be above 0 and at most 1, not {value!r}")


def any_coin(chance: float, coins: int) -> float:
    """1 − (1 − q)^h: the probability that one or more of so many independent coins say yes."""
    return chance if coins == 1 or chance >= 1 else -math.expm1(coins * math.log1p(-chance))


def below_one(**values: float) -> None:
    for name, value in values.items():
        if not (_is_number(value) and 0 <= value < 1):
            raise ConfigError(f"{name} must be at least 0 and below 1, not {value!r}")


def probability(**values: float) -> None:
    for name, value in values.items():
        if not (_is_number(value) and 0 < value < 1):
            raise ConfigError(f"{name} must be strictly between 0 and 1, not {value!r}")


def one_of(choices: tuple[str, ...], **values: str) -> None:
    for name, value in values.items():
        if value not in choices:
            raise ConfigError(unknown(name, str(value), choices))


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
