"""An experiment for each scheme that is asked about, with what was left open settled."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from laconic.catalogue import SchemeEntry, scheme_entry
from laconic.errors import ConfigError
from laconic.settings.build import Settled, settle
from laconic.settings.config import RunConfig

SCHEMES = ("fl-std", "fl-sign", "fl-cs", "fl-top", "fl-std-dp", "fl-sign-dp", "fl-cs-dp", "fl-top-dp")
"""What is looked at if nothing is named: every kind of code, without and with noise."""
_LEFT_OPEN = {"ratio": 0.1, "max_iterations": 48}
"""48 iterations of the solver: of thousands of rounds nobody uses the model further."""
_PUBLIC_RECORDS = 20


def asked_schemes(names: tuple[str, ...], values: Mapping[str, Any], **defaults: Any) -> Iterator[Settled]:
    """Settle one scheme after another. `values` are those of the configuration that the user gave, by their place.

    An option that not all schemes take goes to those that take it. `defaults` are for what
    was not given, as section__key. All schemes are checked before the first is settled.
    """
    entries = {name: scheme_entry(name) for name in dict.fromkeys(names or SCHEMES)}
    for key in values:
        section, _, option = key.partition(".")
        if section == "scheme" and not any(option in entry.options for entry in entries.values()):
            flag = f"--{option.replace('_', '-')}"
            raise ConfigError(f"{flag} means nothing to {', '.join(entries)}: leave it out")
    given = {key.replace("__", "."): value for key, value in defaults.items()} | dict(values)
    if given.get("scheme.top_selection") == "votes":
        raise ConfigError(
            "with --top-selection votes the first rounds are votes, and these attacks take rounds of training: leave it"
            " out, and choose with public records"
        )
    if given.get("privacy.noise_bands", 1) != 1 or given.get("sampler.kind") == "cyclic":
        raise ConfigError(
            "these attacks take rounds that are drawn by chance, with noise of their own: leave out --noise-bands and"
            " --sampler cyclic"
        )
    if given.get("evaluation.every"):
        raise ConfigError("these attacks take rounds of training, and evaluations are none: leave out --evaluate-every")
    if any("init_steps" in entry.options for entry in entries.values()) and "data.public_dataset" not in given:
        given.setdefault("data.public_records", _PUBLIC_RECORDS)  # for all, so that all have the same clients
    configs = [RunConfig().with_values(_completed(name, entry, given)) for name, entry in entries.items()]
    for config in configs:
        yield settle(config)


def _completed(name: str, entry: SchemeEntry, given: Mapping[str, Any]) -> dict[str, Any]:
    """What was given and the scheme takes, and defaults for what it needs besides."""
    asked = {
        key: value
        for key, value in given.items()
        if not key.startswith("scheme.") or key.partition(".")[2] in entry.options
    }
    for option, value in _LEFT_OPEN.items():
        if option in entry.options:
            asked.setdefault(f"scheme.{option}", value)
    if entry.private and "privacy.epsilon" not in asked:
        asked.setdefault("scheme.noise_multiplier", 1.0)
    if "clip_norm" in entry.options and not entry.record_level:
        asked.setdefault("scheme.clip_norm", "median")
    return {"scheme.name": name if ":" in name else name.lower(), **asked}
