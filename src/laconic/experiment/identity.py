"""What an experiment is: its parts, data and limits, in a form that can be compared and kept; and where it is computed.

A folder is resumed only by the experiment that started it, and the noise of a private simulation is named after it.
Noise that meets other data or weights would reveal their difference.

Two runs of one seed have the same bits on the same device, software and way of computing (`environment_of`).
"""

from __future__ import annotations

import dataclasses
import hashlib
import inspect
import json
import platform
import re
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from laconic import __version__
from laconic.data.inputs import tensors_of
from laconic.data.population import PooledPopulation, Population, Records
from laconic.errors import ConfigError
from laconic.experiment.experiment import Experiment
from laconic.features.base import FrontEnd, describe
from laconic.features.scattering import ScatteringFrontEnd
from laconic.options.declare import declared_in
from laconic.parts import Part
from laconic.train.flat import trainable_size


def choose_device(name: str) -> torch.device:
    """'cpu', 'cuda', 'cuda:1' or 'auto'."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise ConfigError(f"unknown device '{name}': use ⟨device⟩ cpu, cuda, cuda:0 … or auto") from None
    if device.type not in ("cpu", "cuda"):
        raise ConfigError(f"device '{name}' is not supported: use ⟨device⟩ cpu, cuda, cuda:0 … or auto")
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ConfigError(f"⟨device⟩ {name}: this machine has no usable CUDA device; use ⟨device⟩ cpu or auto")
    if device.type == "cuda" and device.index is not None and device.index >= torch.cuda.device_count():
        raise ConfigError(f"⟨device⟩ {name}: there are only {torch.cuda.device_count()} CUDA devices")
    return device


def wait_for(device: torch.device) -> None:
    """Until the device has finished its work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def environment_of(device: torch.device, way: str, threads: int | None = None) -> str:
    """A name for everything that float results depend on besides the seed: software, hardware, way of computing."""
    where = (
        f"{torch.cuda.get_device_name(device)}, CUDA {torch.version.cuda}" if device.type == "cuda" else _processor()
    )
    versions = f"laconic {__version__}, torch {torch.__version__}, numpy {np.__version__}"
    return f"{versions}; {where}; {threads or torch.get_num_threads()} threads; {way}"


def _processor() -> str:
    """The model of the CPU, where the system tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


NOISE_DRAWS, PER_SUM, PER_CLIENT = "noise draws", "per-sum", "per-client"
_MOST_CLIENTS = 2000
"""So many clients' records are looked at, where each client's are apart and only a folder is to be recognised."""
_SAME_SUMS = (NOISE_DRAWS, "secagg", "consistency", "test data", "held-out data", "eval_every", "best_by")
"""What changes no sum of clients' codes. Two runs that differ in nothing else are one release."""
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")


def identity_of(experiment: Experiment) -> dict[str, Any]:
    """Scheme, initial weights and constants, loss, sampler, limits, digests of records, and the options that say so.

    Code of the user's own (loss, model, parts) is named by where it is and what it says."""
    said = [one.name for one in declared_in(type(experiment)) if one.about.identity]
    if not experiment.scheme.evaluations.every:
        said.remove("held_out")  # it means nothing there, and older folders do not have it
    loss = experiment.loss if isinstance(experiment.loss, str) else code_of(experiment.loss)
    return {
        "scheme": experiment.scheme.fingerprint,
        "model": f"{trainable_size(experiment.model)} weights, {_digest(*experiment.model.state_dict().values())}",
        "structure": structure_of(experiment.model),
        "own code": sorted({code_of(part) for part in (*_own_parts(experiment), *_own_layers(experiment.model))}),
        "front end": _front_end(experiment.front_end),
        "loss": loss,
        "sampler": str(experiment.sampler.to_dict()),
        "population": f"{experiment.population.num_clients} clients, {_population_digest(experiment.population)}",
        "public data": _digest(*_tensors(experiment.public)) if experiment.public else "none",
        "limits": _limits(experiment),
        "test data": _digest(*_tensors(experiment.test)) if experiment.test else "none",
        "held-out data": _digest(*_tensors(experiment.holdout)) if experiment.holdout else "none",
        **({} if experiment.attack is None else {"attack": str(experiment.attack.to_dict())}),
        NOISE_DRAWS: PER_SUM if experiment.draws_per_sum else PER_CLIENT,
        **{name: getattr(experiment, name) for name in said},
    }


def noise_name(experiment: Experiment) -> str:
    """What is in the name of all noise of a simulation: a digest of all that a sum of clients' codes depends on.

    Two runs of one seed that differ in any of it, in one record, say, draw independent noise: with the same noise, the
    difference of their releases would reveal the data's. Unlike in a folder's identity, the records of all clients are
    read. Without privacy there is nothing to name. Engine, precision and device are not in it: they change the last
    bits of sums, and two such runs are one release up to these.
    """
    if not experiment.scheme.private:
        return ""
    about = {name: value for name, value in identity_of(experiment).items() if name not in _SAME_SUMS}
    about["every record"] = _population_digest(experiment.population, experiment.population.num_clients)
    return hashlib.blake2b(json.dumps(about, sort_keys=True).encode(), digest_size=16).hexdigest()


def structure_of(model: nn.Module) -> str:
    """A digest of the layers and their order."""
    return _text_digest(_ADDRESS.sub("", repr(model)))


def _front_end(front_end: nn.Module | None) -> str:
    """Other features under the same noise would be other data."""
    if front_end is None:
        return "none"
    if isinstance(front_end, FrontEnd) and not isinstance(front_end, ScatteringFrontEnd):
        return f"{describe(front_end)}, {front_end.digest}"
    return f"{describe(front_end)}, {_digest(*front_end.state_dict().values())}"


def _limits(experiment: Experiment) -> str:
    """What decides who takes part and when the run ends: with other limits it is another mechanism."""
    budget = experiment.budget
    if budget is None:
        return "none"
    return (
        f"{budget.max_participations} participations, server's ε {budget.participant_epsilon}, δ {budget.delta},"
        f" outsider's ε {budget.epsilon} ({budget.accountant or 'tightest'})"
    )


def _population_digest(population: Population, most: int = _MOST_CLIENTS) -> str:
    """Of all records; where there are more clients than `most`, each with records apart, of some spread evenly."""
    if isinstance(population, PooledPopulation):
        return _digest(*population.tensors)
    count = min(population.num_clients, most)
    chosen = np.unique(np.linspace(0, population.num_clients - 1, count).astype(np.int64))
    digest = hashlib.blake2b(digest_size=8)
    for client in chosen.tolist():
        digest.update(_digest(*_tensors(population.records(client))).encode())
    return digest.hexdigest()


def code_of(what: Any) -> str:
    """A name for a function or class that a user wrote: where it is, and a digest of what it does, if that is known.

    The same name may stand for other code when the run goes on, and the same noise would then meet other updates.
    """
    kind = what if callable(what) else type(what)
    name = f"{getattr(kind, '__module__', '?')}:{getattr(kind, '__qualname__', type(kind).__qualname__)}"
    try:
        return f"{name} {_text_digest(inspect.getsource(kind))}"
    except (OSError, TypeError):  # typed into an interpreter, or not written in Python
        code = getattr(kind, "__code__", None)
        return name if code is None else f"{name} {_text_digest(repr((code.co_code, code.co_names, code.co_consts)))}"


def _own_parts(experiment: Experiment) -> list[Part]:
    """Parts of scheme, sampler and attack that are not Laconic's."""
    found: list[Part] = []
    waiting: list[Any] = [experiment.scheme, experiment.sampler, experiment.attack]
    while waiting:
        part = waiting.pop(0)
        if isinstance(part, Part):
            found += [] if type(part).__module__.startswith("laconic.") else [part]
            waiting += [getattr(part, field.name) for field in dataclasses.fields(part)]
    return found


def _own_layers(model: nn.Module) -> list[type]:
    """The classes in a model that are neither torch's nor Laconic's: what they compute is in their code alone."""
    kinds = {type(layer) for layer in model.modules()}
    return [kind for kind in kinds if not kind.__module__.startswith(("torch.", "laconic."))]


def _text_digest(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def _tensors(records: Records) -> list[Tensor]:
    return [*tensors_of(records.inputs), records.targets]


def _digest(*tensors: Tensor) -> str:
    digest = hashlib.blake2b(digest_size=8)
    for tensor in tensors:
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).numpy().view(np.uint8).data)
    return digest.hexdigest()
