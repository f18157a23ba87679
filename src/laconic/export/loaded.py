"""`laconic.load`: the result of a finished run, from its folder."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from laconic.errors import ConfigError
from laconic.export.trained import trained_model, weights_of
from laconic.features.base import with_head
from laconic.own_code import only
from laconic.runner.outcome import RunResult
from laconic.store.finished import Finished, finished_run


class WeightsOnly(nn.Module):
    """Trained parameters by name, where nobody said which module they belong to."""

    def __init__(self, weights: dict[str, Tensor], why: str) -> None:
        super().__init__()
        self.weights, self._why = weights, why

    def forward(self, *inputs: Any) -> Tensor:
        raise ConfigError(self._why)


def load(
    folder: str | Path,
    *,
    model: nn.Module | None = None,
    front_end: nn.Module | None = None,
    allow_code: bool = False,
) -> RunResult:
    """The result of a finished run, as `laconic.run` returned it.

    The folder is checked as a resumed run checks it, and model, summary and statement must be those that the run left
    behind. Nothing is unpickled. A run from Python needs its `model` (and a `front_end` of your own) to have more than
    weights: any module of the same structure.

    Args:
        folder: the run folder.
        model: a module of the same structure, for a run from Python.
        front_end: the run's front end, if it was one of your own.
        allow_code: import a model of the user's own that the folder names. Trust whoever wrote the folder.

    Returns:
        What `laconic.run` returned.

    Examples:
        >>> import tempfile, torch
        >>> clients = [(torch.randn(4, 8), torch.randint(0, 2, (4,))) for _ in range(10)]
        >>> model, scheme = torch.nn.Linear(8, 2), laconic.schemes.fl_std(local_lr=0.1, local_steps=1)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     out = folder + "/run"
        ...     done = laconic.run(scheme, model=model, clients=clients, sampling_rate=1.0, rounds=1, out=out)
        ...     again = laconic.load(out, model=model)
        >>> torch.equal(again.model.weight, done.model.weight)
        True
    """
    run = finished_run(folder)
    with nullcontext() if allow_code else only(()):
        module = _model(run, model, front_end)
    s = run.summary
    return RunResult(
        model=module,
        history=run.history,
        statement=s["statement"],
        ledger=s["ledger"],
        best=s["best"],
        last=s["last"],
        stop_reason=s["stop_reason"],
        seconds=s["seconds"],
        folder=run.path,
        profile=s["profile"],
        metric=s["best_is_chosen_by"],
        attack=s.get("attack"),
        group_testing=s.get("group_testing"),
        scheme=s.get("scheme", ""),
        warnings=tuple(s.get("warnings", ())),
        judged=s.get("judged", {}),
        released_statement=s.get("released_statement", {}),
    )


def _model(run: Finished, model: nn.Module | None, front_end: nn.Module | None) -> nn.Module:
    try:
        trained = trained_model(run, model=model, front_end=front_end)
    except ConfigError as error:
        if model is not None:
            raise
        return WeightsOnly(weights_of(run), str(error))
    return trained.head if trained.front_end is None else with_head(trained.front_end, trained.head)
