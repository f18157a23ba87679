"""The state between two rounds, in one safetensors file: weights, rule state, participations, progress."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from laconic.errors import RunFolderError
from laconic.runtime.folder import RunFolder
from laconic.server.rules import State

_FILE = "checkpoint/state.safetensors"


@dataclass
class RunState:
    """Everything that crosses rounds. `rounds` is the last finished one."""

    weights: Tensor
    rule: State
    shared: dict[str, Tensor] = field(default_factory=dict)
    rounds: int = 0
    participations: dict[int, int] = field(default_factory=dict)
    best: dict[str, Any] | None = None
    stale: int = 0
    """Evaluations since the held-out metric last improved."""
    best_holdout: float | None = None

    @property
    def most_participations(self) -> int:
        return max(self.participations.values(), default=0)

    def take_part(self, clients: np.ndarray) -> None:
        for client in clients.tolist():
            self.participations[client] = self.participations.get(client, 0) + 1


def save_state(folder: RunFolder, state: RunState) -> None:
    """Replace the checkpoint atomically."""
    from safetensors.torch import save

    clients = sorted(state.participations)
    tensors = {
        "weights": state.weights,
        "participants": torch.tensor(clients, dtype=torch.int64),
        "participations": torch.tensor([state.participations[c] for c in clients], dtype=torch.int64),
        **{f"rule.{name}": value for name, value in state.rule.items()},
        **{f"shared.{name}": value for name, value in state.shared.items()},
    }
    progress = {
        "rounds": state.rounds,
        "best": state.best,
        "stale": state.stale,
        "best_holdout": state.best_holdout,
    }
    contiguous = {name: value.detach().cpu().contiguous() for name, value in tensors.items()}
    folder.write(_FILE, save(contiguous, metadata={"progress": json.dumps(progress)}))


def load_state(folder: RunFolder, size: int, device: torch.device) -> RunState | None:
    """The checkpointed state of a model of so many weights; None before the first checkpoint."""
    from safetensors import SafetensorError, safe_open

    path = folder.path / _FILE
    if not path.exists():
        return None
    try:
        with safe_open(path, framework="pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - it is not a dict
            progress = json.loads(file.metadata()["progress"])
    except (SafetensorError, OSError, KeyError, TypeError, json.JSONDecodeError) as error:
        raise RunFolderError(f"{path} is damaged ({error}): the run cannot be resumed; start a new one") from None
    if "weights" not in tensors or tensors["weights"].shape != (size,):
        raise RunFolderError(f"{path} is not a checkpoint of this model: start a new run")
    counts = zip(tensors["participants"].tolist(), tensors["participations"].tolist(), strict=True)
    rule = {name.removeprefix("rule."): t.to(device) for name, t in tensors.items() if name.startswith("rule.")}
    shared = {name.removeprefix("shared."): t for name, t in tensors.items() if name.startswith("shared.")}
    return RunState(
        weights=tensors["weights"].to(device),
        rule=rule,
        shared=shared,
        rounds=progress["rounds"],
        participations=dict(counts),
        best=progress["best"],
        stale=progress["stale"],
        best_holdout=progress["best_holdout"],
    )


def save_weights(folder: RunFolder, name: str, parameters: dict[str, Tensor], about: dict[str, str]) -> None:
    """The model's parameters by name, for any reader of safetensors."""
    from safetensors.torch import save

    folder.write(name, save({k: v.detach().cpu().contiguous() for k, v in parameters.items()}, metadata=about))
