"""The schema of a table of admissions: which column is what. A small TOML file, and nothing else is read.

What a schema leaves open (bounds, levels, vocabulary) is fitted to the training records; what it fixes is public. A
fitted schema is a schema too, with everything fixed: it is saved with a run and prepares new patients alike.
"""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self, get_type_hints

from laconic.data.ehr.outcome import Outcome, Quantity
from laconic.data.ehr.toml_values import short, toml, typed
from laconic.data.files.user_file import open_file
from laconic.errors import ConfigError, one_line, unknown
from laconic.parts import below_one, positive_int, probability

UNKNOWN = "Unknown"
SCALES = ("min-max", "clipped", "standard")
FILLS = ("median", "mean")


class Entry:
    """What the tables of a schema have in common: they are read from TOML, and written back."""

    kind: ClassVar[str]

    @classmethod
    def from_dict(cls, data: dict[str, Any], where: str) -> Self:
        fields = {f.name: f for f in dataclasses.fields(cls)}  # type: ignore[arg-type]
        hints = get_type_hints(cls)
        for key in data:
            if key not in fields:
                raise ConfigError(f"{where}: " + unknown("key", one_line(key, 60), fields))
        for name, field in fields.items():
            if name not in data and field.default is dataclasses.MISSING:
                raise ConfigError(f"{where}: the key '{name}' is missing")
        try:
            return cls(**{key: typed(key, value, hints[key]) for key, value in data.items()})
        except ConfigError as error:
            raise ConfigError(f"{where}: {error}") from None

    def to_dict(self) -> dict[str, Any]:
        """Only what differs from the defaults."""
        pairs = [(f, getattr(self, f.name)) for f in dataclasses.fields(self)]  # type: ignore[arg-type]
        return {f.name: value for f, value in pairs if value != f.default}


@dataclass(frozen=True, kw_only=True)
class Numeric(Entry):
    """A number, scaled to [0, 1] by its smallest and largest value; what lies outside is cut off there.

    `scale` names another way (see `scaling`). `replace` maps texts to numbers ("> 89" to 90), `fill` stands for a
    missing value: a number, or the median or mean of the training records. With `gaps` one more feature is 1 where the
    value is missing, and without a `fill` such a value is then in the middle of the scale.
    """

    kind: ClassVar[str] = "numeric"
    column: str
    scale: str = "min-max"
    min: float | None = None
    max: float | None = None
    mean: float | None = None
    std: float | None = None
    fill: float | str | None = None
    gaps: bool = False
    replace: dict[str, float] | None = None

    def __post_init__(self) -> None:
        if self.scale not in SCALES:
            raise ConfigError(unknown("scale", one_line(self.scale, 60), SCALES))
        if isinstance(self.fill, str) and self.fill not in FILLS:
            raise ConfigError(f"fill must be a number, or one of {', '.join(FILLS)}, not {short(self.fill)}")
        standard = self.scale == "standard"
        for name in ("min", "max") if standard else ("mean", "std"):
            if getattr(self, name) is not None:
                raise ConfigError(f'{name} means nothing with scale = "{self.scale}": leave out one of them')
        if self.min is not None and self.max is not None and not self.min < self.max:
            raise ConfigError(f"min {self.min:g} must be below max {self.max:g}")
        if self.std is not None and not self.std > 0:
            raise ConfigError(f"std {self.std:g} must be above 0")

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.column,)

    @property
    def scaling_fixed(self) -> bool:
        ends = (self.mean, self.std) if self.scale == "standard" else (self.min, self.max)
        return None not in ends

    @property
    def fixed(self) -> bool:
        return self.scaling_fixed and not isinstance(self.fill, str)


@dataclass(frozen=True, kw_only=True)
class Categorical(Entry):
    """One of a few levels, one-hot. A missing or new one counts as Unknown, which is always there."""

    kind: ClassVar[str] = "categorical"
    column: str
    levels: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        _no_repeats("levels", self.levels or ())

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.column,)

    @property
    def fixed(self) -> bool:
        return self.levels is not None


@dataclass(frozen=True, kw_only=True)
class Codes(Entry):
    """Drugs, diagnoses, procedures: any number of codes, multi-hot over one vocabulary.

    A cell holds one code or, with a `delimiter`, several. `cut_at_dot` keeps what is before the dot (250.83 is 250).
    `with_column` makes "column=cell" the code, for tables with one column per drug. Cells in `drop` are no codes. Codes
    in fewer than `min_count` training records are left out; 100 in the papers.
    """

    kind: ClassVar[str] = "codes"
    name: str
    columns: tuple[str, ...]
    delimiter: str | None = None
    cut_at_dot: bool = False
    with_column: bool = False
    drop: tuple[str, ...] = ()
    min_count: int = 100
    vocabulary: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        positive_int(min_count=self.min_count)
        if not self.columns:
            raise ConfigError("columns must name at least one column")
        _no_repeats("columns", self.columns)
        _no_repeats("vocabulary", self.vocabulary or ())
        if self.delimiter == "":
            raise ConfigError("delimiter must not be empty; leave it out if a cell holds one code")

    @property
    def fixed(self) -> bool:
        return self.vocabulary is not None


@dataclass(frozen=True, kw_only=True)
class Filter(Entry):
    """Which rows are read: those whose cell is in `keep`, not in `drop`, and from `min` to `max`."""

    kind: ClassVar[str] = "filter"
    column: str
    keep: tuple[str, ...] | None = None
    drop: tuple[str, ...] = ()
    min: float | None = None
    max: float | None = None

    def __post_init__(self) -> None:
        if self.keep is None and not self.drop and self.min is None and self.max is None:
            raise ConfigError("a filter needs keep, drop, min or max")


@dataclass(frozen=True, kw_only=True)
class Schema:
    """Which column is what. Columns that are not named are never looked at.

    Of the label is predicted whether it has one of the `positive` values, which of the `classes` it has, or what number
    it is, between the public bounds `low` and `high`. `prevalence` is the publicly known share of positive records, and
    `laconic predict` moves probabilities from it to another one. How good the model is, is also said for each of the
    `subgroups`: columns that need not be features.

    Without a `patient` every row is somebody's of their own. `drafted` names what was read from the clients' own table
    when the schema was drafted: it is not public, so the privacy statement lists it.
    """

    label: str
    positive: tuple[str, ...] = ()
    classes: tuple[str, ...] = ()
    low: float | None = None
    high: float | None = None
    prevalence: float | None = None
    patient: str | None = None
    client: str | None = None
    virtual_hospitals: int | None = None
    min_client_records: int = 1
    test_fraction: float = 0.2
    missing: tuple[str, ...] = ("",)
    separator: str = ","
    subgroups: tuple[str, ...] = ()
    drafted: tuple[str, ...] = ()
    numeric: tuple[Numeric, ...] = ()
    categorical: tuple[Categorical, ...] = ()
    codes: tuple[Codes, ...] = ()
    filters: tuple[Filter, ...] = ()

    def __post_init__(self) -> None:
        positive_int(min_client_records=self.min_client_records)
        below_one(test_fraction=self.test_fraction)
        if self.virtual_hospitals is not None:
            positive_int(virtual_hospitals=self.virtual_hospitals)
        if self.client is not None and self.virtual_hospitals is not None:
            raise ConfigError("give either client (a column) or virtual_hospitals (their number), not both")
        if (self.low is None) != (self.high is None):
            raise ConfigError("a quantity has both bounds: give low and high")
        _no_repeats("classes", self.classes)
        _no_repeats("subgroups", self.subgroups)
        if self.label in self.subgroups or self.patient in self.subgroups:
            raise ConfigError("subgroups are columns other than the label and the patient")
        _ = self.outcome
        if self.prevalence is not None:
            probability(prevalence=self.prevalence)
            if not self.positive:
                raise ConfigError("prevalence is the share of positive records: it goes with positive = VALUE")
        if len(self.separator) != 1 or not self.separator.isascii() or self.separator in '"\r\n\0':
            raise ConfigError(f"separator must be one character such as , ; | or a tab, not {short(self.separator)}")
        if not self.features:
            raise ConfigError(
                "there is nothing to predict from: name columns in [[numeric]], [[categorical]], [[codes]]"
            )
        roles = {"the label": self.label, "the patient": self.patient, "the client": self.client}
        used = [column for entry in self.features for column in entry.columns]
        for role, column in roles.items():
            if column is not None and column in used:
                raise ConfigError(f"column '{column}' is {role}, so it must not be a feature: leave it out there")
        _no_repeats("feature columns", tuple(used))
        _no_repeats("names in [[codes]]", tuple(entry.name for entry in self.codes))

    @property
    def outcome(self) -> Outcome:
        """What of the label is predicted."""
        quantity = None if self.low is None or self.high is None else Quantity(self.low, self.high)
        return Outcome(self.label, self.positive, self.classes, quantity)

    @property
    def features(self) -> tuple[Numeric | Categorical | Codes, ...]:
        return (*self.numeric, *self.categorical, *self.codes)

    @property
    def columns(self) -> list[str]:
        """All columns that are read, each once."""
        named = [self.label, *(name for name in (self.patient, self.client) if name), *self.feature_columns]
        return list(dict.fromkeys([*named, *(f.column for f in self.filters), *self.subgroups]))

    @property
    def feature_columns(self) -> list[str]:
        return [column for entry in self.features for column in entry.columns]

    @property
    def fixed(self) -> bool:
        """Whether nothing is left to be fitted."""
        return all(entry.fixed for entry in self.features)

    def with_min_count(self, min_count: int) -> Schema:
        return dataclasses.replace(
            self, codes=tuple(dataclasses.replace(entry, min_count=min_count) for entry in self.codes)
        )

    @classmethod
    def from_toml(cls, path: str | Path) -> Schema:
        """The schema in a file; every mistake is named with the key it is in."""
        try:
            with open_file(Path(path)) as stream:
                data = tomllib.load(stream)
        except OSError as error:
            raise ConfigError(f"cannot read the schema {path}: {error.strerror}") from None
        except (ValueError, RecursionError) as error:  # besides its own, numbers too long and tables too deep
            raise ConfigError(f"the schema {one_line(path)} is not valid TOML: {one_line(error, 200)}") from None
        return cls.from_dict(data, one_line(path))

    @classmethod
    def from_dict(cls, data: dict[str, Any], where: str = "schema") -> Schema:
        values: dict[str, Any] = {}
        hints = get_type_hints(cls)
        sections = {kind.kind: (field, kind) for field, kind in _SECTIONS.items()}
        plain = [f.name for f in dataclasses.fields(cls) if f.name not in _SECTIONS]
        for key, value in data.items():
            if key in sections:
                field, kind = sections[key]
                if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
                    raise ConfigError(f"{where}: write [[{key}]] once for every entry, not {key} = …")
                values[field] = tuple(
                    kind.from_dict(item, f"{where}: [[{key}]] number {number}") for number, item in enumerate(value, 1)
                )
            elif key in plain:
                values[key] = typed(f"{where}: {key}", value, hints[key])
            else:
                raise ConfigError(f"{where}: " + unknown("key", one_line(key, 60), [*plain, *sections]))
        if "label" not in values:
            raise ConfigError(f"{where}: the key 'label' is missing")
        try:
            return cls(**values)
        except ConfigError as error:
            raise ConfigError(f"{where}: {error}") from None

    def to_toml(self) -> str:
        """The file that `from_toml` reads."""
        lines = [f"{f.name} = {toml(v)}" for f, v in self._plain_values()]
        for field, kind in _SECTIONS.items():
            for entry in getattr(self, field):
                lines += ["", f"[[{kind.kind}]]", *(f"{k} = {toml(v)}" for k, v in entry.to_dict().items())]
        return "\n".join(lines) + "\n"

    def _plain_values(self) -> Iterator[tuple[Any, Any]]:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.name not in _SECTIONS and value != field.default:
                yield field, value


_SECTIONS: dict[str, Any] = {"numeric": Numeric, "categorical": Categorical, "codes": Codes, "filters": Filter}


def _no_repeats(what: str, names: tuple[str, ...]) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise ConfigError(f"{what}: '{one_line(name, 60)}' is there twice")
        seen.add(name)
