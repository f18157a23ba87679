"""The values of the weights that FL-TOP keeps, after FL-TOP and when all weights are trained (thesis Fig. 5.1)."""

from __future__ import annotations

import torch

from laconic.errors import RunFolderError
from laconic.settings.build import settle
from laconic.store.checkpoint import load_state
from laconic.store.folder import RunFolder
from laconic.train.flat import trainable_size
from laconic_studies.reproduce.kept_weights import BEFORE, KeptByLayer, Layer
from laconic_studies.reproduce.reproduction import Reproduction


def kept_weights(reproduction: Reproduction, seed: int) -> KeptByLayer | None:
    """From the runs of one seed; None before all of them are finished."""
    rows = reproduction.table.rows
    if not all(reproduction.finished(row, seed) for row in rows):
        return None
    chooser = next(row for row in rows if row.scheme.startswith("fl-top"))
    config = reproduction.config(chooser, seed).with_values({"run.device": "cpu"})  # nothing is computed here
    experiment = settle(config).experiment
    state = load_state(
        RunFolder(reproduction.run_folder(chooser, seed)), trainable_size(experiment.model), torch.device("cpu")
    )
    if state is None:
        raise RunFolderError(f"{reproduction.run_folder(chooser, seed)} has no checkpoint any more: delete the folder")
    kept = state.shared["kept"]
    layers, start = [], 0
    parameters = [(name, p) for name, p in experiment.model.named_parameters() if p.requires_grad]
    final = {row.label: _weights(RunFolder(reproduction.run_folder(row, seed))) for row in rows}
    for name, parameter in parameters:
        inside = kept[(kept >= start) & (kept < start + parameter.numel())] - start
        values = {label: weights[name].reshape(-1)[inside].numpy() for label, weights in final.items()}
        values[BEFORE] = parameter.detach().reshape(-1)[inside].numpy()
        layers.append(Layer(name=name, shape=tuple(parameter.shape), values=values))
        start += parameter.numel()
    return KeptByLayer(layers)


def _weights(folder: RunFolder) -> dict[str, torch.Tensor]:
    from safetensors.torch import load_file

    path = folder.path / "best.safetensors"
    try:
        weights: dict[str, torch.Tensor] = load_file(path)
    except OSError as error:
        raise RunFolderError(
            f"cannot read {path}: {error.strerror}; delete the folder, and the row is run again"
        ) from None
    return weights
