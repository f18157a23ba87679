"""The private version of a scheme: the same scheme with a bound on codes, noise, and a secure sum.

`private` transforms a scheme. `PrivateScheme` does the same for a function that makes schemes, so that
`fl_top_dp = PrivateScheme(fl_top)` takes the options of both.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from laconic.aggregate.protocol import SecureSum
from laconic.codecs.base import Sign
from laconic.errors import ConfigError, UnknownArgument, option_named, several, unknown
from laconic.parts import one_of
from laconic.privacy.accounting.releases import CLIENT, UNITS
from laconic.privacy.mechanism.clip import L2Clip, UnitEntries
from laconic.privacy.mechanism.discrete_gaussian import DiscreteGaussian
from laconic.privacy.mechanism.gaussian import Gaussian, Noise
from laconic.privacy.mechanism.grid import MOST_BITS
from laconic.scheme import Scheme
from laconic.train.local import LocalSGD, UnitGradients, check_unit

NOISES = ("integer", "continuous")


def private(
    scheme: Scheme,
    *,
    clip_norm: float | None = None,
    noise_multiplier: float | None = None,
    noise: str = "integer",
    bits: int | None = None,
    ring_bits: int | None = None,
    units: UnitGradients | None = None,
) -> Scheme:
    """The private version of a scheme: codes are clipped to S, and every client adds a share of the noise.

    c/max(1, ‖c‖₂/S) + G(0, S·σ/√|K|·I) for a code c. The server sees the sum only; all clients count alike, and the
    denominator is public. Codes of signs have entries of ±1, so their norm is √n already and they take no `clip_norm`.

    Args:
        scheme: one that adds no noise.
        clip_norm: S: a longer code is shortened to this L2 norm.
        noise_multiplier: σ; open if None: `laconic.run` then calibrates it to its `epsilon`.
        noise: 'integer', which can be masked, or 'continuous', as in the papers, for studies.
        bits: bits of a value; as few as the sum allows, unless given.
        ring_bits: bits of the ring in which sums are taken, where it shall have room to spare.
        units: what clients send instead of trained updates, where records or patients inside them are protected; S then
            bounds what one of them adds.

    Returns:
        The scheme with '-dp' after its name.

    Examples:
        >>> from laconic import schemes
        >>> plain = schemes.fl_top(ratio=0.1, local_lr=0.1, local_steps=5)
        >>> scheme = schemes.private(plain, clip_norm=0.5, noise_multiplier=1.0)
        >>> scheme.name, scheme.private
        ('fl-top-dp', True)
        >>> scheme == schemes.fl_top_dp(clip_norm=0.5, noise_multiplier=1.0, ratio=0.1, local_lr=0.1, local_steps=5)
        True

    References:
        Thesis Alg. 9 to 14; EuroS&P'21 Alg. 4 and 5; McMahan et al. (ICLR 2018).
    """
    return replace(
        scheme,
        name=f"{scheme.name}-dp",
        train=units or scheme.train,
        clip=_clip(scheme, clip_norm),
        noise=_noise(noise, noise_multiplier, bits, ring_bits, signs=isinstance(scheme.codec, Sign)),
        secure_sum=SecureSum(),
        weighting="uniform",
    )


@dataclass(frozen=True)
class PrivateScheme:
    """A function that makes the private version of what another one makes: `fl_top_dp = PrivateScheme(fl_top)`.

    Called, it takes the options of the plain scheme, those of `private`, and those that say whom the noise protects.

    Args:
        plain: a function that returns a scheme without noise.

    Examples:
        >>> from laconic import schemes
        >>> make = schemes.PrivateScheme(schemes.fl_top)
        >>> make(clip_norm=0.5, noise_multiplier=1.0, ratio=0.1, local_lr=0.1, local_steps=5).name
        'fl-top-dp'
        >>> make(clip_norm=1.0, noise_multiplier=1.0, ratio=0.1, unit="patient").unit
        'patient'

    References:
        As `private`.
    """

    plain: Callable[..., Scheme]

    @property
    def __name__(self) -> str:
        return f"{self.plain.__name__}_dp"

    def __call__(
        self,
        *,
        clip_norm: float,
        noise_multiplier: float | None = None,
        noise: str = "integer",
        bits: int | None = None,
        ring_bits: int | None = None,
        unit: str = CLIENT,
        unit_rate: float = 1.0,
        max_owners_per_patient: int = 1,
        num_units: float | None = None,
        class_weights: Sequence[float] | str = (),
        prevalence: float | Sequence[float] | str = (),
        **options: Any,
    ) -> Scheme:
        """The private scheme.

        Args:
            clip_norm: S: a longer code is shortened to this L2 norm.
            noise_multiplier: σ; open if None: `laconic.run` then calibrates it to its `epsilon`.
            noise: 'integer', which can be masked, or 'continuous', as in the papers, for studies.
            bits: bits of a value; as few as the sum allows, unless given.
            ring_bits: bits of the ring in which sums are taken, where it shall have room to spare.
            unit: whom the noise protects: 'client', or 'record' or 'patient' inside clients.
            unit_rate: with which probability a client draws each record or patient in a round, by coins of its own.
            max_owners_per_patient: at how many clients a patient is at most; each of them clips to S over this.
            num_units: about how many records or patients all clients hold together: a public number.
            class_weights: public weights of the classes in the gradients of records or patients, as numbers or '1,5'.
            prevalence: with records or patients, the publicly known share of class 1, or of each class.
            **options: those of the plain scheme.
        """
        if self.plain.__module__.startswith("laconic."):  # what a user's own scheme takes, it knows itself
            check_names(options, self.plain, self)
        one_of(UNITS, unit=unit)
        inside = {
            "unit_rate": unit_rate,
            "max_owners_per_patient": max_owners_per_patient,
            "num_units": num_units,
            "class_weights": _numbers(class_weights, "class_weights", "1,5"),
            "prevalence": class_shares(prevalence),
        }
        units = None
        if unit == CLIENT:
            _refuse_idle(inside)
        else:
            units = _unit_gradients(unit, inside, options)
            options = {"local_lr": 1.0, "local_steps": 1, **options}
            # Every unit is put on the grid by itself, so it must be fine: as fine as the widest ring allows.
            bits = MOST_BITS if bits is None and noise == "integer" else bits
        return private(
            self.plain(**options),
            clip_norm=clip_norm,
            noise_multiplier=noise_multiplier,
            noise=noise,
            bits=bits,
            ring_bits=ring_bits,
            units=units,
        )


_INSIDE = {"unit_rate": 1.0, "max_owners_per_patient": 1, "num_units": None, "class_weights": (), "prevalence": ()}
"""The options of units inside clients, and the values that mean "not given"."""
_LOCAL_STEPS = ("local_lr", "local_steps", "epochs", "batch_size", "optimizer", "balance")


def _numbers(given: float | Sequence[float] | str, name: str, example: str) -> tuple[float, ...]:
    """Numbers, one for each class, from a text such as 1,5 or as they are."""
    parts: Sequence[Any] = given.replace(";", ",").split(",") if isinstance(given, str) else given  # type: ignore[assignment]
    try:
        return (float(given),) if isinstance(given, int | float) else tuple(float(part) for part in parts)
    except (TypeError, ValueError):
        raise ConfigError(f"{name} must be numbers, such as {example}, not {given!r}") from None


def class_shares(given: float | Sequence[float] | str) -> tuple[float, ...]:
    """The shares of all classes, from numbers or a text such as 0.5,0.3,0.2; one number is that of class 1 of two."""
    numbers = _numbers(given, "prevalence", "0.02, or 0.5,0.3,0.2")
    return (1 - numbers[0], numbers[0]) if len(numbers) == 1 else numbers


def _flags(names: Iterable[str]) -> str:
    return ", ".join(map(option_named, names))


def _refuse_idle(inside: dict[str, Any]) -> None:
    """Refuse options of units inside clients where clients are the unit."""
    idle = [name for name, value in inside.items() if value != _INSIDE[name]]
    if idle:
        raise ConfigError(
            f"{_flags(idle)} means nothing with ⟨unit⟩ client: add ⟨unit⟩ patient (or record), or leave it out"
        )


def _unit_gradients(unit: str, inside: dict[str, Any], options: dict[str, Any]) -> UnitGradients:
    """The `UnitGradients` of a scheme that protects records or patients; options of local training are refused."""
    given = [name for name in _LOCAL_STEPS if name in options]
    if given:
        raise ConfigError(
            f"{_flags(given)} means nothing with ⟨unit⟩ {unit}: every {unit} gives one clipped gradient a round (after"
            f" more local steps, no bound holds for what one {unit} changes); set the server's step with ⟨server-lr⟩,"
            f" how many {unit}s are drawn with ⟨unit-rate⟩, rare classes with ⟨class-weights⟩"
        )
    return UnitGradients(
        unit=unit,
        rate=inside["unit_rate"],
        max_owners=inside["max_owners_per_patient"],
        num_units=inside["num_units"],
        class_weights=inside["class_weights"],
        prevalence=inside["prevalence"],
    )


def _clip(scheme: Scheme, clip_norm: float | None) -> L2Clip | UnitEntries:
    if isinstance(scheme.codec, Sign):
        if clip_norm is not None:
            raise ConfigError("clip_norm means nothing for codes of signs, whose norm is known: leave it out")
        return UnitEntries()
    if clip_norm is None:
        raise ConfigError(f"the private version of {scheme.name} needs clip_norm, the bound S on a code")
    return L2Clip(clip_norm=clip_norm)


def _noise(kind: str, noise_multiplier: float | None, bits: int | None, ring_bits: int | None, *, signs: bool) -> Noise:
    one_of(NOISES, noise=kind)
    if kind == "integer":
        return DiscreteGaussian(noise_multiplier=noise_multiplier, bits=bits, signs=signs, ring_bits=ring_bits)
    if signs:
        raise ConfigError("noise on signs is drawn on integers: leave out noise='continuous'")
    for flag, value in (("⟨bits⟩", bits), ("⟨ring-bits⟩", ring_bits)):
        if value is not None:
            raise ConfigError(f"{flag} {value} means nothing with ⟨noise⟩ continuous: leave one of them out")
    return Gaussian(noise_multiplier=noise_multiplier)


def check_names(options: dict[str, Any], *declared: Callable[..., Scheme]) -> None:
    """Refuse options that neither these functions nor local training take, with the nearest name that they do."""
    known = {field.name for field in dataclasses.fields(LocalSGD)}
    for function in declared:
        known |= {p.name for p in inspect.signature(function).parameters.values() if p.kind is p.KEYWORD_ONLY}
    if "unit" in options and "unit" not in known:
        check_unit(declared[-1].__name__.replace("_", "-"), options["unit"])
        options = {name: value for name, value in options.items() if name != "unit"}
    strange = [unknown(f"option of {declared[-1].__name__}", name, known) for name in options if name not in known]
    if strange:
        raise UnknownArgument(several(strange))
