"""The configuration of a run: what a TOML file, the command line and `--set` can say, and nothing else."""

from __future__ import annotations

import dataclasses
import tomllib
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any, cast, get_args, get_type_hints

from laconic.errors import ConfigError, unknown


@dataclass(frozen=True, kw_only=True)
class RunSection:
    rounds: int = 50
    seed: int = 0
    device: str = "auto"
    engine: str = "auto"
    chunk: int | None = None
    workers: int | None = None
    precision: str = "auto"
    threads: int | None = None
    profile: bool = False
    eval_every: int = 1
    holdout: float = 0.0
    patience: int | None = None
    best_by: str = "auto"
    checkpoint_seconds: float = 10.0


@dataclass(frozen=True, kw_only=True)
class DataSection:
    dataset: str = "digits"
    data_dir: str | None = None
    partition: str = "iid"
    num_clients: int | None = None
    alpha: float = 0.5
    labels_per_client: int = 2
    augment: int | None = None
    client_column: str | None = None
    target: str = "target"
    schema: str | None = None
    num_records: int | None = None
    min_count: int | None = None
    min_client_records: int | None = None
    public_dataset: str | None = None
    public_records: int | None = None


@dataclass(frozen=True, kw_only=True)
class FrontEndSection:
    name: str | None = None
    mirror: bool | None = None
    features: int | None = None
    projection: str | None = None
    images: int | None = None
    ridge: float | None = None


@dataclass(frozen=True, kw_only=True)
class ModelSection:
    name: str = "auto"
    loss: str = "auto"
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class SchemeSection:
    name: str = "fl-std"
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class SamplerSection:
    kind: str = "poisson"
    sampling_rate: float | None = None
    cohort_size: int | None = None
    max_participations: int | None = None
    max_dropouts: int = 0
    max_colluders: int = 0


@dataclass(frozen=True, kw_only=True)
class PrivacySection:
    delta: float | None = None
    epsilon: float | None = None
    participant_epsilon: float | None = None
    accountant: str | None = None
    clip_norm_from: str | None = None
    allow_large_delta: bool | None = None


@dataclass(frozen=True, kw_only=True)
class SecAggSection:
    mode: str = "simulated"
    consistency: str = "plain"
    dropout_rate: float = 0.0
    dropout_stage: str = "before-upload"


@dataclass(frozen=True, kw_only=True)
class FederationSection:
    """Only for federations of separate machines; what is not set has the values in `federation/server/settings.py`."""

    nodes: int | None = None
    min_nodes: int | None = None
    join_timeout: float | None = None
    round_timeout: float | None = None


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """All the sections. The `options` of a scheme or model are written straight into its section."""

    run: RunSection = RunSection()
    data: DataSection = DataSection()
    front_end: FrontEndSection = FrontEndSection()
    model: ModelSection = ModelSection()
    scheme: SchemeSection = SchemeSection()
    sampler: SamplerSection = SamplerSection()
    privacy: PrivacySection = PrivacySection()
    secagg: SecAggSection = SecAggSection()
    federation: FederationSection = FederationSection()

    def to_dict(self) -> dict[str, dict[str, Any]]:
        """Sections of plain values; unset ones are left out."""
        sections = {}
        for section in dataclasses.fields(self):
            values = dataclasses.asdict(getattr(self, section.name))
            values |= values.pop("options", {})
            sections[section.name] = {k: v for k, v in values.items() if v is not None}
        return {name: values for name, values in sections.items() if values or name != "federation"}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> RunConfig:
        """The configuration; an unknown section or key is an error that names the nearest known one."""
        sections: dict[str, Any] = {}
        kinds = {f.name: type(f.default) for f in dataclasses.fields(cls)}
        for name, values in data.items():
            if name not in kinds:
                raise ConfigError(unknown("section", name, kinds))
            if not isinstance(values, dict):
                raise ConfigError(f"[{name}] must be a table of keys, not {values!r}")
            sections[name] = _section(name, kinds[name], values)
        return cls(**sections)

    def with_values(self, changes: dict[str, Any]) -> RunConfig:
        """A copy with `section.key` entries replaced."""
        data = self.to_dict()
        for path, value in changes.items():
            section, _, key = path.partition(".")
            data.setdefault(section, {})[key] = value
        return RunConfig.from_dict(data)


def read_toml(path: str | Path) -> dict[str, Any]:
    try:
        with open(path, "rb") as stream:
            return tomllib.load(stream)
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not valid TOML: {error}") from None


def write_toml(data: dict[str, dict[str, Any]]) -> str:
    """Sections of scalars and lists as TOML."""
    lines: list[str] = []
    for section, values in data.items():
        if values:
            lines += [f"[{section}]", *(f"{key} = {toml_value(value)}" for key, value in values.items()), ""]
    return "\n".join(lines)


def full_path(key: str) -> str:
    """'rounds' → 'run.rounds'; scheme options may be named without their section too."""
    if "." in key:
        return key
    owners = [s for s, keys in _known_keys().items() if key in keys and key not in ("name", "kind")]
    if len(owners) == 1:
        return f"{owners[0]}.{key}"
    if owners:
        raise ConfigError(
            f"--set {key}: it is in several sections; write one of {', '.join(f'{o}.{key}' for o in owners)}"
        )
    if key in ("name", "kind"):
        raise ConfigError(f"--set {key}: say whose, for example scheme.name, model.name or sampler.kind")
    raise ConfigError(unknown("key", key, {k for keys in _known_keys().values() for k in keys}))


def parse_set(text: str) -> tuple[str, Any]:
    """'scheme.clip_norm=0.5' → ('scheme.clip_norm', 0.5)."""
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise ConfigError(f"--set {text}: write it as key=value")
    return full_path(key.strip()), parse_value(value.strip())


def parse_value(text: str) -> Any:
    """A number, a fraction such as 1/60, a boolean, or the text itself."""
    try:
        return tomllib.loads(f"v = {text}")["v"]
    except tomllib.TOMLDecodeError:
        pass
    try:
        return float(Fraction(text))
    except (ValueError, ZeroDivisionError):
        return text


def _known_keys() -> dict[str, list[str]]:
    from laconic.catalogue import SCHEMES

    keys = {
        f.name: [k.name for k in dataclasses.fields(cast(Any, type(f.default))) if k.name != "options"]
        for f in dataclasses.fields(RunConfig)
    }
    keys["scheme"] += sorted({o for entry in SCHEMES.values() for o in entry.options})
    return keys


def _section(name: str, kind: type, values: dict[str, Any]) -> Any:
    hints = get_type_hints(kind)
    own = {k: _typed(f"{name}.{k}", v, hints[k]) for k, v in values.items() if k in hints and k != "options"}
    rest = {k: v for k, v in values.items() if k not in own}
    if "options" in hints:
        return kind(**own, options=rest)
    if rest:
        raise ConfigError(unknown(f"key in [{name}]", next(iter(rest)), [k for k in hints if k != "options"]))
    return kind(**own)


def _typed(path: str, value: Any, hint: Any) -> Any:
    """The value as the declared type; a fraction in quotes counts as a number."""
    allowed = tuple(t for t in (get_args(hint) or (hint,)) if t is not type(None))
    if isinstance(value, str) and float in allowed:
        value = parse_value(value)
    if float in allowed and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if isinstance(value, allowed) and not (isinstance(value, bool) and bool not in allowed):
        return value
    wanted = " or ".join(
        {"int": "a whole number", "float": "a number", "str": "text"}.get(t.__name__, t.__name__) for t in allowed
    )
    raise ConfigError(f"{path} must be {wanted}, not {value!r}")


def toml_value(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        return f'"{escaped}"'
    if isinstance(value, list | tuple):
        return "[" + ", ".join(toml_value(v) for v in value) + "]"
    return repr(value)
