"""What a trained model says about new records, prepared as those it was trained on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from laconic.catalogue import build_scheme
from laconic.data.ehr.features import Preprocessing
from laconic.data.ehr.schema import Schema
from laconic.data.inputs import Inputs, dense
from laconic.errors import ConfigError, RunFolderError
from laconic.experiment.prior import Prior
from laconic.features.base import FrontEnd
from laconic.features.kinds import factory_of
from laconic.features.population import in_blocks
from laconic.models.registry import build_model
from laconic.private import class_shares
from laconic.settings.config import RunConfig, read_toml
from laconic.settings.data.datasets import load_federation
from laconic.settings.data.new_records import NewRecords, read_new_records, read_patients
from laconic.settings.data.record_kind import FILE, RecordKind, record_kind, schema_kind
from laconic.store.folder import FRONT_END
from laconic.streams import Streams
from laconic.train.flat import FlatModel

_PYTHON = "# Made by the Python API"


@dataclass(frozen=True)
class Predictions:
    """What is predicted for every record, by column, beside what the record is called.

    For two classes: the probability of the second one, and its logarithm of the odds, which ranks records even where
    probabilities are 0 or 1 to the last digit. For more: the likeliest class, its probability, and those of all. For a
    quantity: its value.
    """

    heading: str
    names: list[str]
    columns: dict[str, list[str] | np.ndarray]
    meaning: str = ""
    """What the numbers refer to, in a sentence."""

    @property
    def probabilities(self) -> np.ndarray:
        return np.asarray(self.columns["probability"])


def predict(
    folder: str | Path, data: str | Path, *, weights: str = "model", prevalence: str | float | Sequence[float] = ()
) -> Predictions:
    """`weights` is 'model' (the last round's) or 'best' (those of the best round).

    Probabilities are for the shares of the classes among the training records, or for the `prevalence` (see `Prior`).
    """
    run, path = Path(folder), Path(data).expanduser()
    config = _config(run)
    preprocessing = _preprocessing(run)
    if preprocessing is not None:
        kind, new = schema_kind(preprocessing.schema, preprocessing.num_features), read_patients(preprocessing, path)
    else:
        kind = _kind(run, config)
        new = read_new_records(kind, config.data, run, path)
    inputs = _features(run, config, new)
    model, flat = _trained_model(run, weights, config, kind, inputs)
    outputs = torch.cat(list(model.outputs(flat, inputs)))
    prior = prior_of(config).declared(None if preprocessing is None else preprocessing.schema.prevalence)
    return said_of(new, kind, outputs, prior, class_shares(prevalence))


def said_of(
    new: NewRecords, kind: RecordKind, outputs: Tensor, prior: Prior, prevalence: Sequence[float] = ()
) -> Predictions:
    """Outputs as predictions, in double precision: a float32 rounds small probabilities of unlike records to one."""
    outputs = outputs.double()
    if kind.num_classes == 1:
        if prevalence:
            raise ConfigError("⟨prevalence⟩ is for classes, but the model predicts a quantity: leave it out")
        values = outputs.reshape(len(outputs)).numpy()
        if kind.quantity is None:
            return Predictions(new.heading, new.names, {"value": values})
        bounds = f"between the bounds {kind.quantity.low:g} and {kind.quantity.high:g} of the schema"
        meaning = f"value: in the unit of the table, learnt {bounds}"
        return Predictions(new.heading, new.names, {"value": kind.quantity.restored(values)}, meaning)
    if outputs.ndim == 1 or outputs.shape[1] == 1:
        outputs = torch.stack([torch.zeros(len(outputs), dtype=outputs.dtype), outputs.reshape(-1)], 1)
    outputs = outputs + torch.tensor(prior.shifts(outputs.shape[1], prevalence), dtype=outputs.dtype)
    meaning = "probability: " + prior.meaning(kind.outcome or ("class 1" if outputs.shape[1] == 2 else ""), prevalence)
    return Predictions(new.heading, new.names, _columns(kind, outputs), meaning)


def _columns(kind: RecordKind, logits: Tensor) -> dict[str, list[str] | np.ndarray]:
    """By column (see `Predictions`)."""
    if logits.shape[1] == 2:
        odds = logits[:, 1] - logits[:, 0]
        return {"probability": torch.sigmoid(odds).numpy(), "log_odds": odds.numpy()}
    shares = torch.softmax(logits, 1).numpy()
    likeliest = shares.argmax(1)
    every: dict[str, list[str] | np.ndarray] = {
        "class": [kind.class_name(int(number)) for number in likeliest],
        "probability": shares.max(1),
    }
    return every | {f"p({kind.class_name(number)})": shares[:, number] for number in range(shares.shape[1])}


def prior_of(config: RunConfig) -> Prior:
    """Of a scheme of the user's own only if its options weigh classes: its code need not be there otherwise."""
    options = config.scheme.options
    if not {"class_weights", "prevalence", "balance"} & set(options):
        return Prior()
    return Prior.of(build_scheme(config.scheme.name, **options))


def _config(run: Path) -> RunConfig:
    file = run / "config.toml"
    if not file.exists():
        raise RunFolderError(f"{run} holds no run (there is no {file.name}): give the folder of a run")
    if file.read_text(encoding="utf-8", errors="replace").startswith(_PYTHON):
        raise RunFolderError(
            f"{run} was made in Python, with a model that has no name: load {run}/model.safetensors into that model"
        )
    try:
        return RunConfig.from_dict(read_toml(file))
    except ConfigError as error:
        raise RunFolderError(f"{file} is damaged ({error}): restore it") from None


def _preprocessing(run: Path) -> Preprocessing | None:
    file = run / "preprocessing.toml"
    if not file.exists():
        return None
    try:
        return Preprocessing(Schema.from_toml(file))
    except ConfigError as error:
        raise RunFolderError(f"{file} is damaged ({error}): restore it") from None


def _kind(run: Path, config: RunConfig) -> RecordKind:
    """From the folder; a run of an earlier version did not write it down, so its data are looked at again."""
    if (run / FILE).exists():
        return RecordKind.read(run / FILE)
    streams = Streams(config.run.seed)
    return record_kind(config.data, load_federation(config.data, holdout=config.run.holdout, streams=streams))


def _features(run: Path, config: RunConfig, new: NewRecords) -> Inputs:
    """What the model sees: the records, or what the run's front end makes of them."""
    if config.front_end.name is None:
        return new.inputs
    file = run / FRONT_END
    if not file.exists():
        raise RunFolderError(f"{file} is not there: restore it")
    return in_blocks(FrontEnd.load(file, factory=factory_of(config.front_end.name)), new.inputs, torch.device("cpu"))


def _trained_model(
    run: Path, weights: str, config: RunConfig, kind: RecordKind, inputs: Inputs
) -> tuple[FlatModel, torch.Tensor]:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    file = run / f"{weights}.safetensors"
    if not file.exists():
        if weights == "best" and (run / "model.safetensors").exists():
            raise RunFolderError(f"{file} is not there: the run had no test records to choose by; leave out ⟨best⟩")
        raise RunFolderError(
            f"{file} is not there: the run is not finished; go on with laconic run --out {run} --resume"
        )
    shape = tuple(inputs.shape[1:])
    module = build_model(
        config.model.name, input_shape=shape, num_classes=kind.num_classes, seed=0, options=config.model.options
    )
    target = torch.zeros(1) if kind.num_classes == 1 else torch.zeros(1, dtype=torch.int64)
    model = FlatModel(module, example=(dense(inputs[:1]), target), loss=config.model.loss)
    try:
        stored = load_file(file)
        found = [stored[name] for name in model.names]
    except (SafetensorError, OSError, KeyError, RuntimeError) as error:
        raise RunFolderError(f"{file} is not the weights of this run's model ({type(error).__name__})") from None
    for name, tensor, expected in zip(model.names, found, model.shapes, strict=True):
        if tensor.shape != expected or not tensor.is_floating_point():
            raise RunFolderError(
                f"{file} is not the weights of this run's model ('{name}' is not of shape {tuple(expected)})"
            )
        if not bool(torch.isfinite(tensor).all()):
            raise RunFolderError(f"{file}: NaN or infinity in '{name}', so nothing can be predicted: restore it")
    return model, model.join([tensor.to(torch.float32) for tensor in found])
