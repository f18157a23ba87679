"""A data set of the user's own: `--dataset package.module:function`."""

from __future__ import annotations

import inspect
from dataclasses import replace
from pathlib import Path
from typing import Any

from laconic.data.population import check_records
from laconic.data.registry import Source, SourceInfo
from laconic.errors import ConfigError, DataError, LaconicError, one_line
from laconic.own_code import imported


def own_source(name: str) -> SourceInfo:
    """What stands behind the name: a `SourceInfo`, or a function that returns one or a whole `Source`.

    The function is called without arguments when the name is first looked at.
    """
    file, _, column = name.rpartition(":")
    if Path(file).is_file():
        way = f"--dataset {file} --target {column}"
        raise ConfigError(f"⟨dataset⟩ {name}: {file} is a file; name its column with {way}")
    made = imported("dataset", name)
    if callable(made):
        made = _called(name, made)
    if isinstance(made, Source):
        return _info_of(name, _checked(name, made))
    if not isinstance(made, SourceInfo):
        raise ConfigError(
            f"⟨dataset⟩ {name} is a {type(made).__name__}: it must be, or return, a SourceInfo or a Source"
            " (laconic.data.sources)"
        )
    load = made.load
    if load is None:
        raise ConfigError(f"⟨dataset⟩ {name}: its SourceInfo has no load function")
    return replace(made, load=lambda info, data_dir: _checked(name, load(made, data_dir)))


def _called(name: str, function: Any) -> Any:
    needed = [p.name for p in inspect.signature(function).parameters.values() if p.default is p.empty]
    if needed:
        raise ConfigError(f"⟨dataset⟩ {name} must work without arguments, but needs {', '.join(needed)}")
    try:
        return function()
    except LaconicError:
        raise
    except Exception as error:  # whatever a user's function raises
        reason = one_line(error, 200) or type(error).__name__
        raise ConfigError(f"⟨dataset⟩ {name} cannot be loaded: {reason}") from None


def _checked(name: str, source: Source) -> Source:
    for what, records in (("training", source.train), ("test", source.test)):
        check_records(records, f"--dataset {name}, {what} records")
    for what, owners, records in (
        ("owners", source.owners, source.train),
        ("test_owners", source.test_owners, source.test),
    ):
        if owners is not None and owners.shape != records.targets.shape[:1]:
            raise DataError(f"⟨dataset⟩ {name}: {what} of shape {owners.shape} for {len(records.targets)} records")
    return source


def _info_of(name: str, source: Source) -> SourceInfo:
    natural = source.owners is not None
    return SourceInfo(
        name=name,
        description=source.description,
        licence="your own",
        origin="your own function",
        num_train=len(source.train.targets),
        num_test=len(source.test.targets),
        input_shape=source.input_shape,
        classes=tuple(str(label) for label in range(source.num_classes)),
        client="an owner of records" if natural else "a random shard of records",
        default_clients=len(set(source.owners.tolist())) if source.owners is not None else 100,
        natural=natural,
        load=lambda info, data_dir: source,
        how_to_get="made by the function",
    )
