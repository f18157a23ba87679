"""Runs with evaluations: they leave the weights alone, and are resumed, masked, counted and stated as any round is."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scheme_tools import model, scheme

import laconic
from conftest import make_population, make_records
from laconic.clients.work import split_rows
from laconic.codecs.queries import Evaluations
from laconic.data.population import PooledPopulation, Records
from laconic.errors import ConfigError
from laconic.experiment.experiment import Experiment
from laconic.experiment.identity import identity_of
from laconic.experiment.mechanism import untested
from laconic.observers.progress import PlainProgress
from laconic.privacy.accounting.budget import Budget
from laconic.privacy.accounting.tight import gaussian_epsilon
from laconic.privacy.released import released_row
from laconic.privacy.statement import statement_lines
from laconic.runner.run import Run
from laconic.scheme import Scheme
from laconic.store.folder import RunFolder

SIZES = [6, 9, 3, 12, 7, 5, 4, 8] * 2


def measuring(name: str = "fl-std-dp", *, every: int = 3, sigma: float | None = 0.5, **changes: Any) -> Scheme:
    kind = Evaluations(every=every, noise_multiplier=sigma if name.endswith("-dp") else None, **changes)
    return replace(scheme(name), evaluations=kind)


def experiment(chosen: Scheme, **options: Any) -> Experiment:
    defaults: dict[str, Any] = {
        "scheme": chosen,
        "model": model(),
        "population": make_population(SIZES),
        "sampler": laconic.Poisson(sampling_rate=0.6),
        "budget": Budget(delta=1e-5, accountant="rdp") if chosen.private else None,
        "rounds": 6,
        "workers": 1,
        "device": "cpu",
        "held_out": 0.3,
        "eval_every": 6,
    }
    return Experiment(**(defaults | options))


def trained(chosen: Scheme, **options: Any) -> Run:
    """All rounds, without a statement at the end."""
    run = Run(experiment(chosen, **options))
    run.begin()
    for number in range(1, run.experiment.rounds + 1):
        run._one_round(number)
    return run


def finished(chosen: Scheme, **options: Any) -> Run:
    run = Run(experiment(chosen, **options))
    run.run()
    return run


def test_an_evaluation_leaves_the_weights_and_the_rule_as_they_are() -> None:
    run = Run(experiment(measuring()))
    seen: list[torch.Tensor] = []
    run.observer = lambda row: seen.append(run.state.weights.clone())
    run.begin()
    for number in range(1, 7):
        run._one_round(number)
    assert [torch.equal(a, b) for a, b in pairwise(seen)] == [False, True, False, False, True]
    assert ["evaluation" in row for row in run.history] == [False, False, True] * 2
    assert "scores" not in run.state.rule
    up = [row["bytes_up"] / row["messages_up"] for row in run.history]
    assert up[2] < 80 < up[1]  # two cells, and a header of 60 bytes


def test_without_noise_the_metric_is_the_mean_of_the_clients_own() -> None:
    run = trained(measuring("fl-std", every=2), sampler=laconic.Poisson(sampling_rate=1.0), rounds=2)
    population, seed = run.experiment.population, run.clients.streams.public_seed("public")
    rates = []
    for client in range(len(SIZES)):
        held = population.records(client).some(split_rows(population.size(client), 0.3, seed, client)[1])
        outputs = torch.cat(list(run.model.outputs(run.state.weights, held.inputs)))
        rates.append(float((outputs.argmax(1) == held.targets).double().mean()))
    assert run.history[1]["clients_accuracy"] == pytest.approx(np.mean(rates), abs=1e-5)


def test_what_is_set_aside_is_never_trained_on() -> None:
    """Other held-out records give other metrics, and the same weights bit for bit; others to train on do not."""
    population = make_population(SIZES)
    seed = Run(experiment(measuring())).clients.streams.public_seed("public")

    def spoilt(part: int) -> Run:
        targets = population.pool.targets.clone()
        for client in range(len(SIZES)):
            rows = population.rows(client)[split_rows(population.size(client), 0.3, seed, client)[part]]
            targets[rows] = (targets[rows] + 1) % 3
        rows_of_all = [population.rows(client) for client in range(len(SIZES))]
        return trained(
            measuring("fl-std"), population=PooledPopulation(Records(population.pool.inputs, targets), rows_of_all)
        )

    plain, held, others = trained(measuring("fl-std")), spoilt(1), spoilt(0)
    assert torch.equal(plain.state.weights, held.state.weights)
    assert not torch.equal(plain.state.weights, others.state.weights)
    assert plain.history[5]["clients_accuracy"] > held.history[5]["clients_accuracy"] + 0.3


def test_masked_evaluations_are_the_simulated_ones() -> None:
    options = {"max_dropouts": 4, "dropout_rate": 0.1}
    open_, masked = (
        trained(measuring(), secagg=how, noise_draws="per-client", **options) for how in ("simulated", "masked")
    )
    assert torch.equal(open_.state.weights, masked.state.weights)
    for one, other in zip(open_.history, masked.history, strict=True):
        assert one.get("clients_accuracy") == other.get("clients_accuracy")


def test_every_kind_of_scheme_and_groups_can_evaluate() -> None:
    for name, more in (("fl-top-dp", {}), ("fl-sign-dp", {}), ("fl-cs-dp", {}), ("fl-std-dp", {"groups": 3})):
        chosen = replace(measuring(name, every=2), **more)
        run = trained(chosen, rounds=2, public=make_records(12, seed=2))
        assert 0 <= run.history[1]["clients_accuracy"] <= 1.2 and run.history[1]["clients_noise"] > 0


def test_both_figures_have_the_evaluations_in_and_the_statement_says_so() -> None:
    chosen = replace(measuring(sigma=0.8), noise=laconic.DiscreteGaussian(noise_multiplier=1.5))
    run = finished(chosen, sampler=laconic.Poisson(sampling_rate=1.0), budget=Budget(delta=1e-5))
    assert run.result is not None
    exact = gaussian_epsilon((4 / 1.5**2 + 2 / 0.8**2) ** -0.5, 1e-5)
    for who in ("released", "participant"):
        assert exact < run.result.statement[who]["epsilon"]["pld"] < 1.01 * exact
    about = run.result.statement["mechanism"]["evaluations"]
    assert (about["rounds"], about["sensitivity"], about["held_out"]) == (2, 1.0, 0.3)
    texts = dict(statement_lines(run.result.statement))
    assert texts["Evaluations"].startswith("every round divisible by 3 (2 in all) measures the accuracy")
    assert "noise multiplier 0.8; alone they would cost ε" in texts["Evaluations"]


def test_a_killed_run_repeats_an_evaluation_bit_for_bit_and_charges_it_once(tmp_path: Path) -> None:
    def begun(through: int | None) -> Run:
        folder = RunFolder(tmp_path / "run")
        folder.make()
        folder.open()
        try:
            run = Run(experiment(measuring(), checkpoint_seconds=1e9), folder=folder)
            run.begin()
            if through is None:
                run.run()
            else:
                for number in range(run.state.rounds + 1, through + 1):
                    run._one_round(number)
            return run
        finally:
            folder.close()

    begun(3)  # killed after the evaluation, before any checkpoint
    whole, again = trained(measuring()), begun(None)
    assert torch.equal(whole.state.weights, again.state.weights)
    assert again.journal.num_charged == 6
    rows = [json.loads(line) for line in (tmp_path / "run" / "rounds.jsonl").read_text().splitlines()]
    assert rows[2]["clients_accuracy"] == pytest.approx(whole.history[2]["clients_accuracy"])


def test_a_run_whose_clients_measure_is_not_called_untested() -> None:
    assert untested(experiment(measuring())) == []
    assert "nothing will say how good the model is" in untested(experiment(scheme("fl-std-dp")))[0]


def test_what_is_held_out_is_part_of_a_run_with_evaluations_and_of_no_other() -> None:
    """So a folder that was begun before there were any goes on."""
    for chosen, part in ((measuring(), True), (scheme("fl-std-dp"), False)):
        run = Run(experiment(chosen))
        assert ("held_out" in identity_of(run.experiment)) is part


def test_patience_stops_on_what_clients_measured_and_the_statement_is_of_the_whole_plan() -> None:
    stuck = replace(
        measuring("fl-std-dp", every=2, sigma=0.05), train=replace(scheme("fl-std-dp").train, local_lr=1e-9)
    )
    run = finished(stuck, rounds=40, patience=2)
    assert run.stop_reason == "patience" and run.state.rounds < 40
    assert run.result is not None
    released = run.result.statement["released"]
    assert released["rounds_planned"] == 40 > released["rounds_charged"]
    assert all("early stopping looked at a held-out set" not in text for text in run.result.statement["not_covered"])


def test_evaluations_that_noise_hides_end_no_run() -> None:
    run = finished(measuring(every=2, sigma=50.0), rounds=6, patience=1)
    assert run.stop_reason == "rounds"
    assert all(row["evaluation"].endswith("hidden by the noise") for row in run.history[1::2])
    assert not any("clients_accuracy" in row for row in run.history)


def test_a_lost_evaluation_is_charged_and_told_as_nothing() -> None:
    run = trained(measuring(every=2), rounds=2, dropout_rate=0.9)
    assert "discarded" in run.history[1] and "clients_accuracy" not in run.history[1]
    assert run.journal.num_charged == 2


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: experiment(measuring(every=7)), "is never"),
        (lambda: replace(scheme("fl-std-record-dp"), evaluations=Evaluations(every=2)), "not for single records"),
        (lambda: replace(scheme("sign-sgd"), evaluations=Evaluations(every=2)), "signs tell the change of one round"),
        (lambda: replace(scheme("centralized"), evaluations=Evaluations(every=2)), "no clients that could evaluate"),
        (lambda: replace(scheme("fl-std"), evaluations=Evaluations(every=2, noise_multiplier=1.0)), "means nothing"),
        (lambda: Run(experiment(measuring(metric="auroc"))), "two classes, and there are 3"),
        (lambda: experiment(scheme("fl-std"), patience=2), "--evaluate-every"),
    ],
)
def test_what_cannot_be_is_refused(make: Any, text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        make()


def test_schemes_without_evaluations_keep_their_fingerprints() -> None:
    plain = scheme("fl-std-dp")
    assert "evaluations" not in plain.to_dict() and Scheme.from_dict(plain.to_dict()) == plain
    chosen = measuring()
    assert Scheme.from_dict(chosen.to_dict()) == chosen and chosen.fingerprint != plain.fingerprint


def test_what_was_measured_is_shown_and_may_leave_the_server() -> None:
    row = {"round": 3, "bytes_up": 1, "bytes_down": 1, "cohort": 9, "clients_accuracy": 0.5, "clients_noise": 0.04}
    assert "clients' accuracy 0.500 ± 0.040" in PlainProgress(5, "accuracy").text(row)
    assert "clients'" not in PlainProgress(5, "accuracy").text({"round": 1, "bytes_up": 1, "bytes_down": 1})
    assert released_row(row, private=True) == {"round": 3, "clients_accuracy": 0.5, "clients_noise": 0.04}
