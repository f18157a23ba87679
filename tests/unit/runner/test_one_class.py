"""A model that takes everything for one class is warned about, and its best round is not simply the first."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from e2e_tools import call
from torch import Tensor, nn

import laconic
from laconic import schemes
from laconic.codecs.queries import Evaluations
from laconic.data.population import Records
from laconic.runner.evaluation import ONE_CLASS, Evaluation, OneClass


def rare(count: int = 40, positives: int = 4) -> Records:
    """Inputs that say nothing of a rare class."""
    targets = torch.zeros(count, dtype=torch.int64)
    targets[:positives] = 1
    return Records(torch.ones(count, 1), targets)


def trained(test: Records, rounds: int = 4) -> laconic.RunResult:
    model = nn.Linear(1, 2)
    nn.init.zeros_(model.weight)
    nn.init.zeros_(model.bias)
    return laconic.run(
        schemes.fl_std(local_lr=0.1, local_steps=3, batch_size=10),
        model=model,
        clients=[rare()] * 3,
        test=test,
        sampling_rate=1.0,
        rounds=rounds,
    )


def test_it_is_warned_about_and_the_best_round_is_the_one_with_the_least_loss() -> None:
    result = trained(rare())
    assert result.last["accuracy"] == 0.9 and result.last[ONE_CLASS] == 0
    assert result.best is not None and result.best["round"] == 4
    (warning,) = result.summary()["warnings"]
    assert "takes all 40 test records for class 0, and 90.0% of them are" in warning
    assert "less noise" not in warning


def test_a_model_that_tells_classes_apart_is_not_warned_about() -> None:
    """The sabotaged twin: with an input that says the class, nothing is said."""
    told = rare()
    told = Records(told.targets[:, None].float() * 4 - 2, told.targets)
    model = nn.Linear(1, 2)
    result = laconic.run(
        schemes.fl_std(local_lr=1.0, local_steps=3, batch_size=10),
        model=model,
        clients=[told] * 3,
        test=told,
        sampling_rate=1.0,
        rounds=10,
    )
    assert result.last["balanced_accuracy"] == 1.0 and "warnings" not in result.summary()


def rows(*given: tuple[float, float, bool]) -> list[dict[str, Any]]:
    return [
        {"round": i, "accuracy": a, "loss": loss} | ({ONE_CLASS: 0} if one else {})
        for i, (a, loss, one) in enumerate(given, 1)
    ]


class _State:
    best: dict[str, Any] | None = None
    best_holdout, stale = None, 0


@pytest.mark.parametrize(
    ("given", "best"),
    [
        (rows((0.9, 0.5, True), (0.9, 0.4, True), (0.9, 0.45, True)), 2),
        (rows((0.9, 0.5, True), (0.85, 0.6, False), (0.9, 0.4, True)), 2),
        (rows((0.8, 0.5, False), (0.8, 0.4, False)), 1),  # as ever: the first of equals
        (rows((0.8, 0.5, False), (0.85, 0.9, False)), 2),
    ],
)
def test_which_round_is_best(given: list[dict[str, Any]], best: int) -> None:
    class Judge(Evaluation):
        def __init__(self) -> None:
            self.metric = "accuracy"  # type: ignore[misc]
            self._experiment = SimpleNamespace(scheme=SimpleNamespace(evaluations=Evaluations()))  # type: ignore[assignment]

    state = _State()
    for row in given:
        Judge().note(row, state)  # type: ignore[arg-type]
    assert state.best is not None and state.best["round"] == best


@pytest.mark.parametrize(
    ("outputs", "targets", "found"),
    [
        (torch.tensor([[1.0, 0.0], [2.0, 0.0]]), torch.tensor([0, 1]), {ONE_CLASS: 0}),
        (torch.tensor([[1.0, 0.0], [0.0, 2.0]]), torch.tensor([0, 1]), {}),
        (torch.tensor([1.0, 2.0]), torch.tensor([0, 1]), {ONE_CLASS: 1}),
        (torch.tensor([[1.0, 0.0], [2.0, 0.0]]), torch.tensor([0, 0]), {}),  # there is only one class to name
        (torch.tensor([1.0, 2.0]), torch.tensor([0.5, 1.0]), {}),
    ],
)
def test_what_counts_as_one_class(outputs: Tensor, targets: Tensor, found: dict[str, int]) -> None:
    seen = OneClass()
    for part, their in zip(outputs.split(1), targets.split(1), strict=True):
        seen.add(part, their)
    assert seen.found(targets) == found


def test_a_folder_without_a_test_file_is_warned_about(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "d").mkdir()
    table = "x,target\n" + "1,0\n2,1\n" * 5
    for name in "ab":
        (tmp_path / f"d/{name}.csv").write_text(table)
    command = ["run", "fl-std", "--dataset", "d", "--rounds", "1", "--sampling-rate", "0.9", "--quiet", "--out"]
    assert "there are no test records" in call(capsys, *command, "without").err
    (tmp_path / "d/test.csv").write_text(table)
    assert "there are no test records" not in call(capsys, *command, "with").err
