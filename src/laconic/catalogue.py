"""The schemes by name: where they come from, what travels, which options they take."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from laconic import schemes as s
from laconic.errors import ConfigError, unknown
from laconic.own_code import imported
from laconic.parts import one_of
from laconic.privacy.accounting.releases import CLIENT
from laconic.scheme import Scheme
from laconic.train.local import LocalDPSGD, LocalSGD, check_unit


@dataclass(frozen=True)
class SchemeEntry:
    """One row of `laconic schemes`. A scheme takes the options of its `base` too, and none of those in `without`.

    The training of a record-level one is another (`LocalDPSGD`).
    """

    build: Callable[..., Scheme]
    origin: str
    up: str
    down: str
    linear: bool = True
    base: SchemeEntry | None = None
    record_level: bool = False
    without: tuple[str, ...] = ()
    """Options that the scheme settles itself."""

    @property
    def private(self) -> bool:
        return self.base is not None or self.record_level or "noise_multiplier" in self.options

    @property
    def summary(self) -> str:
        return (inspect.getdoc(self.build) or "").splitlines()[0]

    @property
    def options(self) -> dict[str, Any]:
        """Option name → default (`inspect.Parameter.empty` if it has none)."""
        own = {
            p.name: p.default
            for p in inspect.signature(self.build).parameters.values()
            if p.kind is inspect.Parameter.KEYWORD_ONLY
        }
        rest = [p for p in inspect.signature(self.build).parameters.values() if p.kind is inspect.Parameter.VAR_KEYWORD]
        training = {
            f.name: inspect.Parameter.empty if f.default is dataclasses.MISSING else f.default
            for f in dataclasses.fields(LocalDPSGD if self.record_level else LocalSGD)
            if f.name != "records" and rest
        }
        every = training | (self.base.options if self.base else {}) | own | {"downlink": "weights"}
        if "noise_multiplier" in every:  # only Python leaves it open; a configuration settles it first
            every["noise_multiplier"] = inspect.Parameter.empty
        return {name: default for name, default in every.items() if name not in self.without}

    @property
    def required(self) -> list[str]:
        return [name for name, default in self.options.items() if default is inspect.Parameter.empty]

    def required_with(self, options: dict[str, Any]) -> list[str]:
        """What must be given besides these: units inside clients have no local step whose size would be needed."""
        idle = ("local_lr",) if options.get("unit", CLIENT) != CLIENT else ()
        return [name for name in self.required if name not in idle]


_FULL, _KEPT = "4·n bytes", "4·K bytes"
_STD = SchemeEntry(s.fl_std, "thesis Alg. 1", _FULL, _FULL)
_SIGN = SchemeEntry(s.fl_sign, "thesis Alg. 3", "n bits", _FULL, linear=False)
_SGD = SchemeEntry(
    s.sign_sgd,
    "thesis section 4.1.1",
    "n bits",
    "n bits",
    linear=False,
    without=("local_steps", "epochs", "downlink"),
)
_RND = SchemeEntry(s.fl_rnd, "thesis Alg. 5", "4·m bytes", _FULL)
_FREQ = SchemeEntry(s.fl_freq, "thesis Alg. 6", "4·m bytes", _FULL)
_CS = SchemeEntry(s.fl_cs, "EuroS&P Alg. 3, thesis Alg. 4", "4·m bytes", _FULL)
_BASIC = SchemeEntry(s.fl_basic, "thesis section 4.2.2", _KEPT, _FULL)
_BAS_2 = SchemeEntry(s.fl_bas_2, "UAI Table 8", _KEPT, _FULL)
_BAS_3 = SchemeEntry(s.fl_bas_3, "UAI Table 8", _KEPT, _KEPT)
_BAS_4 = SchemeEntry(s.fl_bas_4, "UAI Table 8", _KEPT, _KEPT)
_TOP = SchemeEntry(s.fl_top, "thesis Alg. 7", _KEPT, f"{_KEPT}, the set once")
_STD_RECORD = SchemeEntry(s.fl_std_record_dp, "CHIL Alg. 5 and 6", _FULL, _FULL, record_level=True)
_TOP_BIS = SchemeEntry(s.fl_top_bis, "UAI Table 8", _KEPT, f"{_KEPT}, the set once")


_ON_INTEGERS = {_FULL: "b·n bits", "n bits": "b·n bits", "4·m bytes": "b·m bits", _KEPT: "b·K bits"}


def _dp(base: SchemeEntry, build: Callable[..., Scheme], origin: str) -> SchemeEntry:
    return SchemeEntry(build, origin, _ON_INTEGERS[base.up], base.down, base.linear, base, without=base.without)


SCHEMES: dict[str, SchemeEntry] = {
    "fl-std": _STD,
    "fl-std-dp": _dp(_STD, s.fl_std_dp, "thesis Alg. 10"),
    "fl-sign": _SIGN,
    "fl-sign-dp": _dp(_SIGN, s.fl_sign_dp, "thesis Alg. 9"),
    "fl-std-record-dp": _STD_RECORD,
    "fl-sign-record-dp": SchemeEntry(
        s.fl_sign_record_dp,
        "CHIL Alg. 4 and 6",
        "n bits",
        _FULL,
        linear=False,
        base=_STD_RECORD,
        record_level=True,
        without=("server_lr",),
    ),
    "sign-sgd": _SGD,
    "sign-sgd-dp": _dp(_SGD, s.sign_sgd_dp, "as thesis Alg. 9"),
    "fl-rnd": _RND,
    "fl-rnd-dp": _dp(_RND, s.fl_rnd_dp, "thesis Alg. 12"),
    "fl-freq": _FREQ,
    "fl-freq-dp": _dp(_FREQ, s.fl_freq_dp, "thesis Alg. 13"),
    "fl-cs": _CS,
    "fl-cs-dp": _dp(_CS, s.fl_cs_dp, "EuroS&P Alg. 4, thesis Alg. 11"),
    "fl-basic": _BASIC,
    "fl-basic-dp": _dp(_BASIC, s.fl_basic_dp, "thesis section 5.4.5"),
    "fl-bas-2": _BAS_2,
    "fl-bas-2-dp": _dp(_BAS_2, s.fl_bas_2_dp, "UAI Table 8"),
    "fl-bas-3": _BAS_3,
    "fl-bas-3-dp": _dp(_BAS_3, s.fl_bas_3_dp, "UAI Table 8"),
    "fl-bas-4": _BAS_4,
    "fl-bas-4-dp": _dp(_BAS_4, s.fl_bas_4_dp, "UAI Table 8"),
    "fl-top": _TOP,
    "fl-top-dp": _dp(_TOP, s.fl_top_dp, "thesis Alg. 14"),
    "fl-top-bis": _TOP_BIS,
    "fl-top-bis-dp": _dp(_TOP_BIS, s.fl_top_bis_dp, "UAI Table 8"),
    "centralized": SchemeEntry(s.centralized, "reference", "nothing", "nothing", without=("downlink",)),
}


_DOWNLINKS = ("weights", "half")


def scheme_entry(name: str) -> SchemeEntry:
    """The scheme of that name; one of the user's own is named as package.module:function."""
    if ":" in name:
        return _own_entry(imported("scheme", name), name)
    if name.lower() not in SCHEMES:
        raise ConfigError(unknown("scheme", name, SCHEMES) + ", or your own as package.module:function")
    return SCHEMES[name.lower()]


def _own_entry(found: Any, name: str) -> SchemeEntry:
    """An entry as it is, or one for a function that returns a scheme; `private(function)` takes that one's options."""
    if isinstance(found, SchemeEntry):
        return found
    if not callable(found):
        raise ConfigError(f"{name} is a {type(found).__name__}, not a function that makes a scheme")
    plain = getattr(found, "plain", None)
    base = None if plain is None else _own_entry(plain, name)
    return SchemeEntry(found, name, "by its codec", "by its codec", base=base)


def strange_option(name: str, key: str, options: dict[str, Any], entry: SchemeEntry) -> str:
    """What is wrong with an option that the scheme does not take."""
    if key == "unit":
        try:
            check_unit(name, options[key])
        except ConfigError as error:
            return str(error)
    return unknown(f"option of {name}", key, entry.options)


def build_scheme(name: str, **options: Any) -> Scheme:
    """The named scheme with its options; an unknown or missing one is an error that names it."""
    entry = scheme_entry(name)
    for key in options:
        if key not in entry.options:
            raise ConfigError(strange_option(name, key, options, entry))
    missing = [key for key in entry.required_with(options) if key not in options]
    if missing:
        flags = ", ".join("--" + key.replace("_", "-") for key in missing)
        raise ConfigError(f"{name} needs {flags}")
    downlink = options.pop("downlink", None)
    scheme = entry.build(**options)
    if not isinstance(scheme, Scheme):
        raise ConfigError(f"{name} gave a {type(scheme).__name__}, not a laconic.Scheme")
    if downlink is None:
        return scheme
    one_of(_DOWNLINKS, downlink=downlink)
    return dataclasses.replace(scheme, downlink=downlink)
