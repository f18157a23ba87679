"""What is known of a scheme besides its function: where it comes from, what travels, which options it takes."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from laconic.privacy.accounting.releases import CLIENT
from laconic.private import PrivateScheme
from laconic.scheme import Scheme
from laconic.train.local import LocalDPSGD, LocalSGD


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
        if isinstance(self.build, PrivateScheme):
            name = self.build.plain.__name__.upper().replace("_", "-")
            return f"{name}-DP: {name} with clipped and noised codes."
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
