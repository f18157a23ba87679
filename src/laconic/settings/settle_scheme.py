"""What a configuration leaves open of its scheme: how clients train, and what stands in for numbers not yet known."""

from __future__ import annotations

from typing import Any

from laconic.catalogue import SchemeEntry

WHOLE = "all"
"""The batch size that is a client's whole data set."""
_TRAIN_DEFAULTS = {"local_steps": 5, "batch_size": 10, "local_lr": 0.1}


def with_train_defaults(options: dict[str, Any], entry: SchemeEntry) -> dict[str, Any]:
    known = entry.options
    # Where a scheme has a default of its own, or wants the number from the user, it is not given one here.
    open_ = [name for name in _TRAIN_DEFAULTS if name in known and (known[name] is None or name == "local_lr")]
    defaults = {name: _TRAIN_DEFAULTS[name] for name in open_}
    if options.get("batch_size") == WHOLE and known.get("batch_size", WHOLE) is None:
        options = options | {"batch_size": None}
    if "epochs" in options:
        defaults.pop("local_steps", None)
    return defaults | options


def draft_options(options: dict[str, Any], entry: SchemeEntry) -> dict[str, Any]:
    """The scheme's options with 1 for what has to be calibrated or measured."""
    open_ = [name for name in ("noise_multiplier", "clip_norm") if name in entry.options]
    draft = {name: options[name] if isinstance(options.get(name), int | float) else 1.0 for name in open_}
    return options | draft if entry.private else options
