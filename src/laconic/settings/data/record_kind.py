"""What a record of a run is: enough to read others like it. A run folder has it as `records.toml`."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from laconic.data.ehr.outcome import Quantity
from laconic.data.ehr.schema import Schema
from laconic.data.ehr.toml_values import toml, typed
from laconic.data.federated import FederatedData
from laconic.data.inputs import Pictures
from laconic.data.population import PooledPopulation, Population, first_of
from laconic.data.sources import SOURCES
from laconic.errors import ConfigError, RunFolderError
from laconic.options.sections import DataSection
from laconic.settings.config import read_toml

FILE = "records.toml"


@dataclass(frozen=True, kw_only=True)
class RecordKind:
    """Shape and classes of a run's records, and where a table has them.

    With one class the target is a quantity. `features` are the columns of a table; `text_column` holds texts.
    """

    shape: tuple[int, ...]
    num_classes: int = 0
    """0 for a run from Python, where it is not said."""
    classes: tuple[str, ...] = ()
    features: tuple[str, ...] = ()
    text_column: str = ""
    whole: bool = False
    """Whether the inputs are whole numbers, such as those of words."""
    pixels: bool = False
    """Whether they are bytes from 0 to 255, of pictures."""

    quantity: Quantity | None = None
    """The bounds by which a schema scales what is predicted."""

    @property
    def pictures(self) -> bool:
        return len(self.shape) == 3 and self.shape[0] in (1, 3)

    @property
    def outcome(self) -> str:
        """What class 1 of two is called; empty where it has no name."""
        return self.classes[1] if len(self.classes) == 2 else ""

    def class_name(self, number: int) -> str:
        return self.classes[number] if number < len(self.classes) else str(number)

    def to_toml(self) -> str:
        values = {
            field.name: getattr(self, field.name) for field in dataclasses.fields(self) if field.name != "quantity"
        }
        lines = [f"{name} = {toml(value)}" for name, value in values.items() if value not in ((), "")]
        return "# What a record of this run is, for laconic predict and laconic export.\n" + "\n".join(lines) + "\n"

    @classmethod
    def read(cls, file: Path) -> RecordKind:
        try:
            data: dict[str, Any] = read_toml(file)
            shape = data.pop("shape")
            if not isinstance(shape, list) or not all(type(size) is int and size > 0 for size in shape):
                raise ConfigError("shape must be a list of whole numbers")
            kinds = {"num_classes": int, "text_column": str, "whole": bool, "pixels": bool}
            values = {key: typed(key, value, kinds.get(key, tuple[str, ...])) for key, value in data.items()}
            return cls(shape=tuple(shape), **values)
        except (ConfigError, TypeError, KeyError) as error:
            raise RunFolderError(f"{file} is damaged ({error}): restore it") from None


def record_kind(data: DataSection, federation: FederatedData) -> RecordKind:
    """What the loaded records are."""
    info = SOURCES.get(data.dataset)
    names = federation.classes or (info.classes if info is not None else ())
    return RecordKind(
        shape=federation.input_shape,
        num_classes=federation.num_classes,
        classes=tuple(map(str, names)) if len(names) == federation.num_classes else (),
        features=federation.features,
        text_column=(data.text_column or "text") if federation.wording is not None else "",
        **_type_of(federation.population),
    )


def kind_of_population(population: Population) -> RecordKind:
    """What can be seen in the records alone."""
    return RecordKind(shape=tuple(first_of(population).inputs.shape[1:]), **_type_of(population))


def _type_of(population: Population) -> dict[str, Any]:
    """Of the records as they are stored: pictures that are picked are numbers."""
    inputs = population.pool.inputs if isinstance(population, PooledPopulation) else population.records(0).inputs
    whole = isinstance(inputs, Tensor) and not inputs.is_floating_point()
    return {"whole": whole, "pixels": isinstance(inputs, Pictures) and inputs.pixels.dtype == torch.uint8}


def schema_kind(schema: Schema, num_features: int) -> RecordKind:
    """The records that a schema makes."""
    outcome = schema.outcome
    return RecordKind(
        shape=(num_features,), num_classes=outcome.num_classes, classes=outcome.names, quantity=outcome.quantity
    )
