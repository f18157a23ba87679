"""The model of a finished run as a module again, from what its folder says."""

from __future__ import annotations

import copy
import json
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from laconic.data.ehr.features import Preprocessing
from laconic.data.ehr.schema import Schema
from laconic.errors import ConfigError, RunFolderError
from laconic.experiment.identity import structure_of
from laconic.features.base import FrontEnd
from laconic.features.kinds import factory_of
from laconic.models.registry import build_model
from laconic.settings.config import RunConfig, read_toml
from laconic.settings.data.record_kind import FILE, RecordKind, schema_kind
from laconic.store.finished import MODEL, Finished
from laconic.store.folder import BEST, FRONT_END, IDENTITY
from laconic.streams import Streams


@dataclass(frozen=True)
class Trained:
    """A finished run, its trained head, the front end before it, and what a record looks like."""

    run: Finished
    head: nn.Module
    front_end: nn.Module | None
    record: RecordKind
    config: RunConfig | None
    """None for a run from Python."""

    @property
    def preprocessing(self) -> Preprocessing | None:
        """How health records were prepared; None for other data."""
        return _preprocessing(self.run)


def trained_model(
    run: Finished, *, model: nn.Module | None = None, front_end: nn.Module | None = None, best: bool = False
) -> Trained:
    """The trained module. What the folder cannot name must be given: a `model` or a `front_end` of the user's own."""
    record, config = _record(run), _config(run)
    if (run.path / FRONT_END).exists():
        factory = None if config is None else factory_of(config.front_end.name)
        front_end = FrontEnd.load(run.path / FRONT_END, factory=factory)
    known = json.loads(run.folder.read(IDENTITY) or b"{}")
    if front_end is None and known.get("front end", "none") != "none":
        raise ConfigError(f"{run.path} was trained behind a front end of your own: pass it as front_end")
    if model is None:
        model = _built(run, record, config, front_end)
    head = copy.deepcopy(model)
    if structure_of(head) != known.get("structure"):
        raise ConfigError(f"{type(head).__name__} is not the model of {run.path}: its layers are others")
    _fill(head, weights_of(run, best=best), run)
    return Trained(run, head.eval(), None if front_end is None else front_end.eval(), record, config)


def weights_of(run: Finished, *, best: bool = False) -> dict[str, Tensor]:
    """The trained parameters by name, of the last round or of the best one."""
    from safetensors.torch import load

    content = run.folder.read(BEST if best else MODEL)
    if content is None:
        raise RunFolderError(f"{run.path} has no best round, for want of test records: take the last one")
    found: dict[str, Tensor] = load(content)
    return found


def _record(run: Finished) -> RecordKind:
    preprocessing = _preprocessing(run)
    if preprocessing is not None:
        return schema_kind(preprocessing.schema, preprocessing.num_features)
    if not (run.path / FILE).exists():
        raise RunFolderError(f"{run.path / FILE} is missing: the run is of an earlier version of Laconic; repeat it")
    return RecordKind.read(run.path / FILE)


def _preprocessing(run: Finished) -> Preprocessing | None:
    file = run.path / "preprocessing.toml"
    return Preprocessing(Schema.from_toml(file)) if file.exists() else None


def _config(run: Finished) -> RunConfig | None:
    """The configuration; None for a run from Python, whose file only describes it."""
    sections = read_toml(run.path / "config.toml")
    return RunConfig.from_dict(sections) if "data" in sections else None


def _built(run: Finished, record: RecordKind, config: RunConfig | None, front_end: nn.Module | None) -> nn.Module:
    if config is None:
        raise ConfigError(
            f"{run.path} was made from Python, and its folder does not say how to build the model: pass the module as"
            " model (laconic.load(folder, model=…))"
        )
    shape = front_end.output_shape if isinstance(front_end, FrontEnd) else record.shape
    return build_model(
        config.model.name,
        input_shape=tuple(shape),
        num_classes=record.num_classes,
        seed=Streams(config.run.seed).public_seed("model"),
        options=config.model.options,
    )


def _fill(module: nn.Module, weights: dict[str, Tensor], run: Finished) -> None:
    trained = {name: p for name, p in module.named_parameters() if p.requires_grad}
    if {name: p.shape for name, p in trained.items()} != {name: value.shape for name, value in weights.items()}:
        raise ConfigError(f"{type(module).__name__} is not the model of {run.path}: its parameters are others")
    with torch.no_grad():
        for name, value in weights.items():
            trained[name].copy_(value)
