"""The rules by name: `laconic run … --aggregator NAME`, or one of the user's own as `package.module:Class`."""

from __future__ import annotations

import dataclasses
from typing import Any

from laconic.aggregate.base import Aggregator, WeightedMean
from laconic.aggregate.clipping import CentredClipping, NormBound
from laconic.aggregate.krum import Bulyan, Krum, MultiKrum
from laconic.aggregate.medians import GeometricMedian, Median, TrimmedMean
from laconic.aggregate.mixing import NearestNeighbourMixing
from laconic.errors import ConfigError, option_named, unknown
from laconic.own_code import imported
from laconic.registry import Registry

MEAN = "mean"
AGGREGATORS: Registry[type[Aggregator]] = Registry(
    "aggregator",
    {
        MEAN: WeightedMean,
        "median": Median,
        "trimmed-mean": TrimmedMean,
        "krum": Krum,
        "multi-krum": MultiKrum,
        "bulyan": Bulyan,
        "geometric-median": GeometricMedian,
        "centred-clipping": CentredClipping,
        "norm-bound": NormBound,
    },
    own="package.module:Class",
)


def find_aggregator(name: str) -> type[Aggregator]:
    """The class of that name."""
    if ":" in name:
        found = imported("aggregator", name)
        if not (isinstance(found, type) and issubclass(found, Aggregator)):
            raise ConfigError(f"⟨aggregator⟩ {name} is no laconic.aggregate.base.Aggregator: name a class that is one")
        return found
    return AGGREGATORS.find(name)


def build_aggregator(name: str, *, byzantine: int | None = None, mixing: bool = False, **options: Any) -> Aggregator:
    """The named rule with its options, behind nearest-neighbour mixing if that is asked for."""
    rule = find_aggregator(name)
    fields = {field.name: field for field in dataclasses.fields(rule)}
    for key in options:
        if key not in fields:
            raise ConfigError(unknown(f"option of aggregator '{name}'", key, fields))
    if byzantine is not None and "byzantine" in fields:
        options["byzantine"] = byzantine
    elif byzantine is not None and not mixing:
        raise ConfigError(f"⟨byzantine⟩ means nothing for ⟨aggregator⟩ {name}: leave it out, or add ⟨mixing⟩")
    needed = [key for key, field in fields.items() if field.default is dataclasses.MISSING and key not in options]
    if mixing and byzantine is None:
        needed = sorted({*needed, "byzantine"})
    if needed:
        flags = ", ".join(map(option_named, needed))
        raise ConfigError(f"⟨aggregator⟩ {name}{' with ⟨mixing⟩' * mixing} needs {flags}")
    try:
        built = rule(**options)
    except TypeError as error:
        raise ConfigError(f"⟨aggregator⟩ {name}: {error}") from None
    if not mixing:
        return built
    if rule.sums:
        raise ConfigError(f"⟨mixing⟩ goes in front of a rule that looks at single codes, not of the {name}")
    assert byzantine is not None
    return NearestNeighbourMixing(rule=built, byzantine=byzantine)
