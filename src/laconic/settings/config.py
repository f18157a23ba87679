"""The configuration of a run: what a TOML file, the command line and `--set` can say, and nothing else."""

from __future__ import annotations

import dataclasses
import json
import tomllib
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from laconic.errors import ConfigError, in_python, several, unknown
from laconic.options.declare import Declared, declared_in
from laconic.options.scheme_options import SCHEME_OPTIONS
from laconic.options.sections import (
    AggregatorSection,
    AttackSection,
    AutoSection,
    DataSection,
    EvaluationSection,
    FederationSection,
    FrontEndSection,
    ModelSection,
    PrivacySection,
    RunSection,
    SamplerSection,
    ScalingSection,
    SchemeSection,
    SecAggSection,
    ServerSection,
)

AUTO = "auto"
"""In the place of a scheme's name: `laconic.settings.auto` chooses it, and all that is left open."""


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """All the sections. The `options` of a scheme, model or aggregator are written straight into its section."""

    run: RunSection = RunSection()
    data: DataSection = DataSection()
    front_end: FrontEndSection = FrontEndSection()
    model: ModelSection = ModelSection()
    scheme: SchemeSection = SchemeSection()
    aggregator: AggregatorSection = AggregatorSection()
    server: ServerSection = ServerSection()
    sampler: SamplerSection = SamplerSection()
    privacy: PrivacySection = PrivacySection()
    evaluation: EvaluationSection = EvaluationSection()
    scaling: ScalingSection = ScalingSection()
    auto: AutoSection = AutoSection()
    secagg: SecAggSection = SecAggSection()
    attack: AttackSection = AttackSection()
    federation: FederationSection = FederationSection()

    def to_dict(self) -> dict[str, dict[str, Any]]:
        """Sections of plain values; unset ones are left out."""
        sections = {}
        for name, kind in _kinds().items():
            section = getattr(self, name)
            values = {one.key: getattr(section, one.name) for one in declared_in(kind, name)}
            values |= getattr(section, "options", {})
            sections[name] = {k: v for k, v in values.items() if v is not None}
        whole = {name: values for name, values in sections.items() if values or name not in ("federation", "auto")}
        if self.scaling == ScalingSection():
            del whole["scaling"]  # files of configurations are read by people
        return whole

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> RunConfig:
        """The configuration. Unknown sections and keys, and values of a wrong type, are refused: all at once."""
        sections: dict[str, Any] = {}
        problems: list[str] = []
        kinds = _kinds()
        for name, values in data.items():
            if name not in kinds:
                problems.append(unknown("section", name, kinds))
            elif not isinstance(values, dict):
                problems.append(f"[{name}] must be a table of keys, not {values!r}")
            else:
                sections[name] = _section(name, kinds[name], values, problems)
        if problems:
            raise ConfigError(several(problems))
        return cls(**sections)

    @property
    def problems(self) -> list[str]:
        """What is wrong with each option by itself."""
        every = (one for name, kind in _kinds().items() for one in declared_in(kind, name))
        found = (one.problem(getattr(getattr(self, one.section), one.name)) for one in every)
        return [problem for problem in found if problem]

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
    for later in ("attack", "evaluation", "scaling"):  # data.target and scheme.noise_multiplier were there first
        if len(owners) > 1 and later in owners:
            owners.remove(later)
    if len(owners) == 1:
        return f"{owners[0]}.{key}"
    if owners:
        raise ConfigError(
            f"⟨set⟩ {key}: it is in several sections; write one of {', '.join(f'{o}.{key}' for o in owners)}"
        )
    if key in ("name", "kind"):
        raise ConfigError(f"⟨set⟩ {key}: say whose, for example scheme.name, model.name or sampler.kind")
    raise ConfigError(unknown("key", key, {k for keys in _known_keys().values() for k in keys}))


def parse_set(text: str) -> tuple[str, Any]:
    """'scheme.clip_norm=0.5' → ('scheme.clip_norm', 0.5)."""
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise ConfigError(f"⟨set⟩ {text}: write it as key=value")
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


def every_option() -> list[Declared]:
    """All options with a name of their own, in the order of the sections."""
    found: list[Declared] = []
    for name, kind in _kinds().items():
        found += declared_in(kind, name)
        if name == "scheme":
            found += SCHEME_OPTIONS.values()
    return found


def in_file(name: str) -> str:
    """What a file of settings calls the option that the command line calls --name: 'evaluation.every'."""
    return next((one.path for one in every_option() if one.flag == f"--{name}"), in_python(name))


def _kinds() -> dict[str, type]:
    """The sections by name."""
    return {f.name: type(f.default) for f in dataclasses.fields(RunConfig)}


def _known_keys() -> dict[str, list[str]]:
    from laconic.catalogue import SCHEMES

    keys = {name: [one.key for one in declared_in(kind, name)] for name, kind in _kinds().items()}
    keys["scheme"] += sorted({o for entry in SCHEMES.values() for o in entry.options})
    return keys


def _section(name: str, kind: type, values: dict[str, Any], problems: list[str]) -> Any:
    """The section, as far as it can be read; what is wrong with it is added to the problems."""
    known = {one.key: one for one in declared_in(kind, name)}
    own: dict[str, Any] = {}
    rest = {key: value for key, value in values.items() if key not in known}
    for key in (key for key in values if key in known):
        try:
            own[known[key].name] = _typed(known[key], values[key])
        except ConfigError as error:
            problems.append(str(error))
    if hasattr(kind(), "options"):
        return kind(**own, options=rest)
    problems += [unknown(f"key in [{name}]", key, known) for key in rest]
    return kind(**own)


def _typed(option: Declared, value: Any) -> Any:
    """The value as the declared type; a fraction in quotes counts as a number."""
    allowed = option.types
    if isinstance(value, str) and float in allowed:
        value = parse_value(value)
    if float in allowed and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if isinstance(value, allowed) and not (isinstance(value, bool) and bool not in allowed):
        return value
    wanted = " or ".join(
        {"int": "a whole number", "float": "a number", "str": "text"}.get(t.__name__, t.__name__) for t in allowed
    )
    raise ConfigError(f"{option.path} must be {wanted}, not {value!r}")


def toml_value(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")  # TOML escapes texts as JSON does
    if isinstance(value, list | tuple):
        return "[" + ", ".join(toml_value(v) for v in value) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {toml_value(v)}" for key, v in value.items() if v is not None) + "}"
    return repr(value)
