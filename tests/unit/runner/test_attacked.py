"""Runs under attack: their metrics by class, divergence as a result, and what their folders say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from attack_tools import SIZES, TRAIN, experiment
from torch import nn

import laconic
from conftest import make_population, make_records
from laconic import schemes
from laconic.adversary.attack import Attack
from laconic.adversary.attacks.gradient_ascent import GradientAscent, RandomUpdate
from laconic.adversary.attacks.labels import InBackdoor, OutBackdoor
from laconic.errors import RunFolderError, TrainingError
from laconic.report.page.document import run_page
from laconic.report.page.reading import RunView
from laconic.report.summary_lines import result_lines
from laconic.runner.evaluation import last_rounds
from laconic.scheme import Scheme

STD, SIGN = schemes.fl_std(**TRAIN), schemes.fl_sign(**TRAIN, sign_step=0.05)
BACKDOOR = InBackdoor(fraction=0.4, source=1, target=2, boost=3)
WILD = RandomUpdate(fraction=0.4, scale=1e38)


def run(scheme: Scheme, attack: Attack | None, **options: Any) -> laconic.RunResult:
    e = experiment(scheme, attack)
    defaults: dict[str, Any] = {
        "rounds": 12,
        "model": e.model,
        "clients": e.population,
        "test": e.test,
        "sampler": e.sampler,
    }
    return laconic.run(scheme, attack=attack, workers=1, **(defaults | options))


def predictions(model: nn.Module, test: laconic.Records) -> torch.Tensor:
    return model(torch.as_tensor(test.inputs)).argmax(1)


def test_metrics_by_class_are_those_of_the_predictions() -> None:
    test = make_records(120, seed=1)
    result = run(STD, BACKDOOR)
    found, last = predictions(result.model, test), result.last
    for label, accuracy in enumerate(last["class_accuracies"]):
        of_class = test.targets == label
        assert accuracy == pytest.approx(float((found[of_class] == label).double().mean()))
    source = test.targets == 1
    assert last["class_accuracy"] == last["class_accuracies"][1]
    assert last["attack_accuracy"] == pytest.approx(float((found[source] == 2).double().mean()))
    assert last["accuracy"] == pytest.approx(float((found == test.targets).double().mean()))
    plain, attacked = run(STD, InBackdoor(fraction=0.0, source=1, target=2)), result.attack
    assert plain.attack is not None and attacked is not None
    means = [found["last_ten"]["attack_accuracy"]["mean"] for found in (plain.attack, attacked)]
    assert means[0] < 0.1 and means[1] > 0.3  # the attack works; the figure oscillates from round to round


def test_accuracy_of_an_out_backdoor_is_without_the_classes_that_honest_clients_lack() -> None:
    test, large = make_records(120, seed=1), make_population([30] * 10)
    result = run(STD, OutBackdoor(fraction=0.4, source=1, target=2), clients=large)
    found, counted = predictions(result.model, test), test.targets != 1
    assert result.last["accuracy"] == pytest.approx(float((found == test.targets)[counted].double().mean()))
    assert result.last["class_accuracies"][1] == result.last["class_accuracy"]
    assert result.last["attack_accuracy"] == pytest.approx(float((found[~counted] == 2).double().mean()))
    assert result.last["loss"] < 1.5  # that class is not in the loss either


def test_the_best_round_has_its_figures_and_the_last_ten_have_theirs() -> None:
    result = run(STD, BACKDOOR)
    rows = {row["round"]: row for row in result.history}
    assert result.best is not None and result.attack is not None
    assert result.best["class_accuracy"] == rows[result.best["round"]]["class_accuracy"]
    values = [row["class_accuracy"] for row in result.history][-10:]
    last = result.attack["last_ten"]["class_accuracy"]
    assert (last["min"], last["rounds"]) == (min(values), 10) and last["mean"] == pytest.approx(sum(values) / 10)
    assert last_rounds([]) == {}
    assert [row["malicious"] for row in result.history] == [4] * 12
    assert result.attack["kind"] == "InBackdoor" and result.attack["converged"] and result.attack["num_malicious"] == 4


def test_a_run_without_an_attack_says_nothing_of_one() -> None:
    result = run(STD, None)
    assert result.attack is None and "attack" not in result.summary()
    assert not {"malicious", "class_accuracies"} & set(result.last)


def test_attacked_runs_are_deterministic() -> None:
    for attack in (BACKDOOR, RandomUpdate(fraction=0.4), GradientAscent(fraction=0.4, collude=False)):
        one, two = run(SIGN, attack, rounds=3), run(SIGN, attack, rounds=3)
        for a, b in zip(one.model.parameters(), two.model.parameters(), strict=True):
            assert torch.equal(a, b)


# A run that diverges is a result


def test_weights_that_are_no_longer_finite_end_an_attacked_run(tmp_path: Path) -> None:
    result = run(STD, WILD, out=tmp_path / "run")
    assert result.stop_reason == "diverged" and result.attack is not None and not result.attack["converged"]
    assert "diverged" in result.history[-1] and "accuracy" not in result.history[-1]
    assert all(torch.isfinite(p).all() for p in result.model.parameters())  # those of the round before
    text = dict(result_lines(result.summary()))
    assert text["  result"].startswith("– (does not converge: the weights are no longer finite after round")
    summary = json.loads((tmp_path / "run/summary.json").read_text())
    assert summary["stop_reason"] == "diverged" and not summary["attack"]["converged"]
    again = run(STD, WILD, out=tmp_path / "run", resume=True)
    assert again.stop_reason == "diverged" and len(again.history) == len(result.history)


def test_without_an_attack_it_is_an_error() -> None:
    wild = schemes.fl_std(local_lr=3e38, local_steps=3)
    with pytest.raises(TrainingError, match="no longer finite"):
        run(wild, None)


def test_a_run_that_diverges_at_once_has_a_result(tmp_path: Path) -> None:
    wilder = RandomUpdate(fraction=0.4, scale=1e38, boost=1e30)
    result = run(STD, wilder, out=tmp_path / "run")
    assert (result.stop_reason, result.best, len(result.history)) == ("diverged", None, 1)
    assert (tmp_path / "run/report.html").exists()
    assert run(STD, wilder, out=tmp_path / "run", resume=True).stop_reason == "diverged"


@pytest.mark.parametrize("scheme", [SIGN, schemes.fl_cs(ratio=0.6, num_chunks=2, **TRAIN)], ids=lambda s: s.name)
def test_other_schemes_survive_or_diverge_but_do_not_fail(scheme: Scheme) -> None:
    result = run(scheme, WILD, rounds=4)
    assert result.stop_reason in ("rounds", "diverged")
    if scheme is SIGN:
        assert result.stop_reason == "rounds"


def test_honest_codes_that_are_no_numbers_survive_a_vote() -> None:
    """A wild attacker drives honest training to NaN; a vote tosses coins for it and goes on."""
    wild = schemes.fl_sign(local_lr=3e38, local_steps=3, sign_step=0.05)
    result = run(wild, GradientAscent(fraction=0.4), rounds=3)
    assert result.stop_reason == "rounds"
    assert all(torch.isfinite(p).all() for p in result.model.parameters())


def test_nothing_learnt_is_no_convergence_either() -> None:
    result = run(STD, GradientAscent(fraction=0.4, boost=50))
    assert result.attack is not None and not result.attack["converged"]
    assert "hardly better than always saying one class" in result.attack["why"] or result.stop_reason == "diverged"


# Folders and reports


def test_a_folder_of_one_attack_is_not_resumed_with_another(tmp_path: Path) -> None:
    run(STD, BACKDOOR, rounds=2, out=tmp_path / "run")
    for other in (None, GradientAscent(fraction=0.4), InBackdoor(fraction=0.4, source=1, target=2, boost=4)):
        with pytest.raises(RunFolderError, match="another attack"):
            run(STD, other, rounds=3, out=tmp_path / "run", resume=True)
    run(STD, None, rounds=2, out=tmp_path / "plain")
    with pytest.raises(RunFolderError, match="another attack"):
        run(STD, BACKDOOR, rounds=3, out=tmp_path / "plain", resume=True)


def test_the_report_shows_the_attacked_class() -> None:
    result = run(STD, BACKDOOR)
    page = run_page(RunView(name="attacked", path="attacked", rows=result.history, summary=result.summary()))
    assert 'data-name="accuracy of the attacked class"' in page and 'data-name="success of the attack"' in page
    plain = run(STD, None)
    page = run_page(RunView(name="plain", path="plain", rows=plain.history, summary=plain.summary()))
    assert 'data-name="accuracy"' in page and "attacked" not in page
    headings = [heading for heading, _ in result_lines(result.summary())]
    assert headings[-4:] == ["Attack", "  accuracy", "  class_accuracy", "  attack_accuracy"]


def test_as_many_attack_in_every_poisson_cohort() -> None:
    """0.4 of the 20 clients that are expected, however many came."""
    sampler = laconic.Poisson(sampling_rate=0.5)
    result = run(STD, BACKDOOR, sampler=sampler, clients=make_population(SIZES * 4))
    assert result.attack is not None and len({row["cohort"] for row in result.history}) > 1
    assert (result.attack["fewest_in_a_cohort"], result.attack["most_in_a_cohort"]) == (8, 8)
    assert "8 in a cohort" in dict(result_lines(result.summary()))["Attack"]
