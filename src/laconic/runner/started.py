"""What observers are told when a run starts: what it is, in plain values."""

from __future__ import annotations

from typing import Any

from laconic.experiment.experiment import Experiment
from laconic.observers.observer import Started
from laconic.options.declare import declared_in
from laconic.runner.progress import Progress


def started_of(run: Progress) -> Started:
    e = run.experiment
    return Started(
        scheme=e.scheme.name,
        fingerprint=e.scheme.fingerprint,
        private=e.scheme.private,
        rounds=e.rounds,
        finished=run.state.rounds,
        metric=run.evaluation.metric,
        settings=settings_of(e) | {"model.weights": run.model.size},
        folder=run.path,
    )


def settings_of(e: Experiment) -> dict[str, Any]:
    """'run.rounds', 'scheme.clip.clip_norm' and so on: numbers, words and truth values."""
    found: dict[str, Any] = {f"run.{one.name}": getattr(e, one.name) for one in declared_in(type(e))}
    found |= _flat("scheme", e.scheme.to_dict()) | _flat("sampler", e.sampler.to_dict())
    if e.budget is not None:
        found |= _flat("privacy", e.budget.to_dict())
    if e.attack is not None:
        found |= _flat("attack", e.attack.to_dict())
    found |= {"data.num_clients": e.population.num_clients, "model.name": type(e.model).__name__}
    return {name: value for name, value in found.items() if value is not None}


def _flat(name: str, value: Any) -> dict[str, Any]:
    """Nested dictionaries as dotted names; what is no plain value is left out."""
    if isinstance(value, dict):
        return {key: one for k, v in value.items() for key, one in _flat(f"{name}.{k}", v).items()}
    return {name: value} if isinstance(value, bool | int | float | str) else {}
