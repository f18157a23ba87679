"""What a trained model says about new patients, prepared as those it was trained on."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from laconic.data.ehr.features import Preprocessing
from laconic.data.ehr.schema import Schema
from laconic.data.ehr.sources import load_new_patients
from laconic.data.sparse import SparseRows
from laconic.errors import ConfigError, RunFolderError
from laconic.models.registry import build_model
from laconic.settings.config import RunConfig, read_toml
from laconic.train.flat import FlatModel


@dataclass(frozen=True)
class Predictions:
    """The probability of the outcome for every row of the table, beside whose row it is."""

    patients: list[str]
    probabilities: np.ndarray


def predict(folder: str | Path, table: str | Path, *, weights: str = "model") -> Predictions:
    """`weights` is 'model' (the last round's) or 'best' (those of the best round)."""
    run = Path(folder)
    preprocessing = _preprocessing(run)
    rows = load_new_patients(preprocessing.schema, table)
    inputs = preprocessing.transform(rows)
    model, flat = _trained_model(run, weights, inputs)
    logits = torch.cat(list(model.outputs(flat, inputs)))
    probabilities = torch.sigmoid(logits) if logits.ndim == 1 else torch.softmax(logits, 1)[:, 1]
    names = rows.patients.texts
    return Predictions([names[number] for number in rows.patients.numbers], probabilities.numpy())


def _preprocessing(run: Path) -> Preprocessing:
    file = run / "preprocessing.toml"
    if not file.exists():
        why = "holds no run" if not (run / "config.toml").exists() else "is no run on health records"
        raise RunFolderError(f"{run} {why} (there is no {file.name}): give the folder of a run with a schema")
    try:
        return Preprocessing(Schema.from_toml(file))
    except ConfigError as error:
        raise RunFolderError(f"{file} is damaged ({error}): restore it") from None


def _trained_model(run: Path, weights: str, inputs: SparseRows) -> tuple[FlatModel, torch.Tensor]:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    config = RunConfig.from_dict(read_toml(run / "config.toml"))
    file = run / f"{weights}.safetensors"
    if not file.exists():
        raise RunFolderError(
            f"{file} is not there: the run is not finished; go on with laconic run --out {run} --resume"
        )
    module = build_model(
        config.model.name, input_shape=(inputs.num_columns,), num_classes=2, seed=0, options=config.model.options
    )
    example = (inputs[:1].dense(), torch.zeros(1, dtype=torch.int64))
    model = FlatModel(module, example=example, loss=config.model.loss)
    try:
        stored = load_file(file)
        found = [stored[name] for name in model.names]
    except (SafetensorError, OSError, KeyError, RuntimeError) as error:
        raise RunFolderError(f"{file} is not the weights of this run's model ({type(error).__name__})") from None
    for name, tensor, shape in zip(model.names, found, model.shapes, strict=True):
        if tensor.shape != shape or not tensor.is_floating_point():
            raise RunFolderError(
                f"{file} is not the weights of this run's model ('{name}' is not of shape {tuple(shape)})"
            )
        if not bool(torch.isfinite(tensor).all()):
            raise RunFolderError(f"{file}: NaN or infinity in '{name}', so nothing can be predicted: restore it")
    return model, model.join([tensor.to(torch.float32) for tensor in found])
