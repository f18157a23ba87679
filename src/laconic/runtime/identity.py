"""What makes two runs the same run: a folder is resumed only by the experiment that started it.

Noise is replayed on resume, so the same noise must never meet other data or weights: their difference would be bare.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

from torch import Tensor, nn

from laconic.data.population import Population, Records
from laconic.data.sparse import tensors_of
from laconic.errors import RunFolderError
from laconic.features.front_end import describe
from laconic.runtime.experiment import Experiment
from laconic.runtime.folder import RunFolder
from laconic.train.flat import FlatModel

_FILE = "identity.json"


def identity_of(experiment: Experiment, model: FlatModel) -> dict[str, Any]:
    """Scheme, initial weights and constants, loss, seed, sampler, and digests of public and some clients' records."""
    loss = experiment.loss if isinstance(experiment.loss, str) else getattr(experiment.loss, "__qualname__", "own")
    return {
        "scheme": experiment.scheme.fingerprint,
        "model": f"{model.size} weights, {_digest(*experiment.model.state_dict().values())}",
        "front end": _front_end(experiment.front_end),
        "loss": loss,
        "seed": experiment.seed,
        "sampler": str(experiment.sampler.to_dict()),
        "population": f"{experiment.population.num_clients} clients, {_population_digest(experiment.population)}",
        "public data": _digest(*_tensors(experiment.public)) if experiment.public else "none",
        "slack": f"{experiment.max_dropouts} dropouts, {experiment.max_colluders} colluders",
        "limits": _limits(experiment),
        **(_secure_sum(experiment) if experiment.scheme.private else {}),
    }


def _secure_sum(experiment: Experiment) -> dict[str, str]:
    return {
        "secure sum": f"{experiment.secagg}, {experiment.consistency}",
        "dropouts": f"{experiment.dropout_rate:g} {experiment.dropout_stage}",
    }


def _front_end(front_end: nn.Module | None) -> str:
    """Other features under the same noise would be other data."""
    return "none" if front_end is None else f"{describe(front_end)}, {_digest(*front_end.state_dict().values())}"


def _limits(experiment: Experiment) -> str:
    """What decides who takes part and when the run ends: with other limits it is another mechanism."""
    budget = experiment.budget
    if budget is None:
        return "none"
    return f"{budget.max_participations} participations, server's ε {budget.participant_epsilon}, δ {budget.delta}"


def check_identity(folder: RunFolder, identity: dict[str, Any]) -> None:
    """Write it down at the start, or refuse a folder that another experiment started."""
    path = folder.path / _FILE
    if not path.exists():
        folder.write(_FILE, json.dumps(identity, indent=2) + "\n")
        return
    try:
        known = json.loads(path.read_text())
    except (OSError, ValueError):
        raise RunFolderError(f"{path} is damaged: the run cannot be resumed; start a new one") from None
    for key, value in identity.items():
        if known.get(key) != value:
            raise RunFolderError(
                f"{folder.path} was started with another {key} ({known.get(key)}, now {value}):"
                " resume with the same options, data and initial weights, or choose another --out"
            )


def _population_digest(population: Population) -> str:
    """Of the first, the middle and the last client: enough to notice other data, cheap for a million clients."""
    last = population.num_clients - 1
    records = [population.records(client) for client in sorted({0, last // 2, last})]
    return _digest(*(tensor for record in records for tensor in _tensors(record)))


def _tensors(records: Records) -> list[Tensor]:
    return [*tensors_of(records.inputs), records.targets]


def _digest(*tensors: Tensor) -> str:
    digest = hashlib.blake2b(digest_size=8)
    for tensor in tensors:
        digest.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()
