"""What growth costs: a new kind of private release, a metric or a part is one or two files, and no other file changes.

Each test adds one from outside the package, in the text below, and looks for it wherever a user would: in ε, statement,
plan, offer, policy, rows, report, logs. Whatever is not followed by itself would be a file to edit.
"""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from node_tools import Small, make_offer, refusals

import laconic
from conftest import make_population, make_records
from laconic import Budget, Calibration, Evaluations, Poisson, calibrated, metrics, schemes
from laconic.cli.main import cli
from laconic.codecs.queries import Query
from laconic.entry import SchemeEntry
from laconic.errors import ConfigError
from laconic.experiment.mechanism import accountant_of
from laconic.federation.offer import Offer
from laconic.federation.server.watchers import RecordedEvents
from laconic.operations import EventLog, fields
from laconic.parts import Part
from laconic.privacy.accounting.releases import Rounds
from laconic.privacy.released import released_row
from laconic.privacy.statement import statement_lines
from laconic.report.model_card import model_card
from laconic.report.page.reading import asked_metric
from laconic.report.summary_lines import result_lines
from laconic.scheme import Scheme

COUNTS = '''
"""A private count of records per class, asked once: one file, outside the package."""

from dataclasses import dataclass, replace
from typing import ClassVar

import torch

from laconic.codecs.queries import Query
from laconic.metrics import CLIENTS, METRICS, Metric
from laconic.parts import positive, positive_int
from laconic.privacy.accounting.releases import Rounds
from laconic.schemes import fl_std_dp

METRICS.register("class_records", Metric("class_records", "records of each class, per client", places=(CLIENTS,)))
METRICS.register("class_records_error", Metric("class_records_error", "their standard error", places=(CLIENTS,)))


@dataclass(frozen=True, kw_only=True)
class ClassCounts(Query):
    """How many records of each class a client has on average. At most `most` of a client count, in L2 norm."""

    name: ClassVar[str] = "class counts"

    num_classes: int
    most: float = 20.0

    def __post_init__(self):
        positive_int(num_classes=self.num_classes)
        positive(most=self.most)

    def rounds(self, after):
        return Rounds(after=after, last=after + 1)

    @property
    def cells(self):
        return self.num_classes

    def answer(self, asked):
        return torch.bincount(asked.records.targets.cpu(), minlength=self.cells)[: self.cells].float() / self.most

    def found(self, mean, noise):
        return {"clients_class_records": (mean * self.most).tolist(), "clients_class_records_error": noise * self.most}

    def about(self):
        return {"most": self.most, "text": "the first round counts the records of each class"}


def counted(*, clip_norm, noise_multiplier=None, num_classes=10, **train):
    scheme = fl_std_dp(clip_norm=clip_norm, noise_multiplier=noise_multiplier, **train)
    return replace(scheme, name="counted", queries=(ClassCounts(num_classes=num_classes),))
'''


@pytest.fixture
def counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The module of the class counts. What it registers is forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(metrics.METRICS, "_entries", dict(metrics.METRICS))
    (tmp_path / "own_counts.py").write_text(COUNTS)
    kinds = set(Part._kinds)
    yield importlib.import_module("own_counts")
    for kind in set(Part._kinds) - kinds:
        del Part._kinds[kind]
    del sys.modules["own_counts"]


def plain(**options: Any) -> Scheme:
    return schemes.fl_std_dp(**{"clip_norm": 0.5, "noise_multiplier": 2.0, "local_lr": 0.1, "local_steps": 2} | options)


def counting(counts: Any, **options: Any) -> Scheme:
    query = counts.ClassCounts(num_classes=3, **options)
    return replace(plain(), queries=(query,))


def test_a_new_private_release_is_read_off_the_noisy_sum(counts: Any) -> None:
    """One file outside, none inside: the counts come near the truth, and the weights stay as they are."""
    sizes = [8, 6, 10, 7, 9] * 20
    population = make_population(sizes)
    scheme = replace(counting(counts), noise=laconic.DiscreteGaussian(noise_multiplier=0.5))
    result = laconic.run(
        scheme, model=model(), clients=population, sampling_rate=1.0, rounds=3, delta=1e-3, noise_draws="per-client"
    )
    row, after = result.history[0], result.history[1]
    truth = np.bincount(np.concatenate([population.records(k).targets for k in range(100)]), minlength=3) / 100
    error = row["clients_class_records_error"]
    assert 0 < error < 0.2
    assert np.abs(np.array(row["clients_class_records"]) - truth).max() < 5 * error
    assert "clients_class_records" not in after
    assert row["weights"] != after["weights"]
    assert result.answers["class counts"]["clients_class_records"] == row["clients_class_records"]


def model() -> torch.nn.Module:
    torch.manual_seed(1)
    return torch.nn.Linear(6, 3)


def test_a_client_moves_the_mean_by_the_bound_and_not_more(counts: Any) -> None:
    """Sabotage: one client holds 4000 records of ten thousand, and counts as 20."""
    population = make_population([4000, *[6] * 99])
    result = laconic.run(counting(counts), model=model(), clients=population, sampling_rate=1.0, rounds=2, delta=1e-3)
    mean = np.array(result.history[0]["clients_class_records"])
    assert float(mean.sum()) < (99 * 6 + 20 * 3**0.5) / 100 + 15 * result.history[0]["clients_class_records_error"]


def test_it_is_in_both_epsilons_and_in_the_calibration(counts: Any) -> None:
    asked = Calibration(
        sampler=Poisson(sampling_rate=0.5), num_clients=100, rounds=10, size=21, budget=Budget(delta=1e-3, epsilon=4.0)
    )
    about: dict[str, Any] = {
        "sampler": asked.sampler, "num_clients": 100, "size": 21, "budget": asked.budget, "slack": 0, "horizon": 10,
    }  # fmt: skip
    with_it = accountant_of(counting(counts, noise_multiplier=0.5), **about)
    without = accountant_of(plain(), **about)
    assert with_it.released_epsilon(10) > without.released_epsilon(10) + 0.5
    assert with_it.participant_epsilon(10) > without.participant_epsilon(10) + 0.5
    # With the same σ its round costs what a round of training does.
    same = accountant_of(counting(counts), **about)
    assert same.released_epsilon(10, "rdp") == pytest.approx(without.released_epsilon(10, "rdp"), rel=1e-9)
    chosen = calibrated(replace(counting(counts), noise=laconic.DiscreteGaussian(noise_multiplier=None)), asked)
    assert chosen.queries[0].noise_multiplier is not None
    assert accountant_of(chosen, **about).released_epsilon(10) <= 4.0


def test_the_command_line_says_and_keeps_all_of_it(counts: Any, tmp_path: Path, capsys: Any) -> None:
    words = ["own_counts:counted", "--num-clients", "60", "--sampling-rate", "0.5", "--rounds", "3", "--delta", "1e-3"]
    words += ["--clip-norm", "1", "--epsilon", "20", "--local-lr", "0.1", "--local-steps", "2"]
    cli(["plan", *words], standalone_mode=False)
    said = " ".join(capsys.readouterr().out.split())
    assert "the first round counts the records of each class (1 round in all): 10 cells with sensitivity 1" in said
    assert "class counts up: " in said
    cli(["run", *words, "--out", "run", "--quiet", "--checkpoint-seconds", "0"], standalone_mode=False)
    printed = " ".join(capsys.readouterr().out.split())
    assert "Class counts round 1, clients_class_records (" in printed
    folder = tmp_path / "run"
    statement = json.loads((folder / "privacy.json").read_text())
    about = statement["mechanism"]["queries"]["class counts"]
    assert about["rounds"] == 1 and about["alone"]["rdp"] > 0 and about["grid"]["bits"] >= 8
    assert any(text.startswith("of the class counts: ") for text in statement["assumptions"])
    assert dict(statement_lines(statement))["Class counts"].startswith("the first round counts the records")
    summary = json.loads((folder / "summary.json").read_text())
    assert dict(result_lines(summary))["Class counts"].startswith("round 1, clients_class_records (")
    assert set(summary["ledger"]["planned_messages"]) == {"class counts", "training"}
    assert "Class counts" in (folder / "report.html").read_text()
    assert summary["rounds"] == 3 and statement["released"]["epsilon"]["pld"] <= 20
    rows = [json.loads(line) for line in (folder / "rounds.jsonl").read_text().splitlines()]
    assert [("clients_class_records" in row) for row in rows] == [True, False, False]
    assert released_row(rows[0], private=True)["clients_class_records_9"] == rows[0]["clients_class_records"][9]


def test_a_run_that_goes_on_asks_in_the_same_rounds(counts: Any, tmp_path: Path) -> None:
    words = ["run", "own_counts:counted", "--num-clients", "20", "--sampling-rate", "1", "--rounds", "2"]
    words += ["--clip-norm", "1", "--noise-multiplier", "2", "--delta", "1e-3", "--checkpoint-seconds", "0", "--quiet"]
    cli([*words, "--out", "whole", "--rounds", "3"], standalone_mode=False)
    cli([*words, "--out", "parts"], standalone_mode=False)
    cli(["run", "--out", "parts", "--resume", "--rounds", "3", "--allow-code", "--quiet"], standalone_mode=False)
    whole, parts = (json.loads((tmp_path / name / "summary.json").read_text()) for name in ("whole", "parts"))
    assert whole["answers"] == parts["answers"] and whole["last"]["epsilon"] == parts["last"]["epsilon"]


def test_an_offer_carries_it_and_a_node_prices_it(counts: Any) -> None:
    """A node recomputes the contract, refuses by its own policy, and the release is one of its limits."""
    offer = make_offer(scheme=counting(counts, noise_multiplier=0.5), budget=Budget(delta=1e-5), rounds=5)
    read = Offer.from_bytes(offer.to_bytes())
    assert read == offer and read.scheme.queries == offer.scheme.queries
    first, second = read.contract.release(1), read.contract.release(2)
    assert (first.phase, first.code_size, first.clip, first.bound) == ("class counts", 3, "l2", 1.0)
    assert second.phase == "training" and 0.49 < first.multiplier <= 0.5
    bare = make_offer(scheme=plain(), budget=Budget(delta=1e-5), rounds=5)
    between = 0.5 * (cost(bare) + cost(offer))
    assert cost(offer) > cost(bare) + 1
    assert refusals(bare, max_participant_epsilon=between) == ""
    assert "max_participant_epsilon" in refusals(offer, max_participant_epsilon=between)


def cost(offer: Offer) -> float:
    accountant = offer.mechanism.accountant
    assert accountant is not None
    return accountant.participant_epsilon(offer.rounds)


def test_nodes_answer_it_in_a_masked_sum(counts: Any, tmp_path: Path) -> None:
    some = Small(tmp_path, scheme=counting(counts, noise_multiplier=2.0))
    server = some.join()
    sent = server.collect(some.plan(server), server.model.initial)
    assert (sent.messages, sent.lost, sent.total.shape) == (3, "", (3,))
    uploads = [row for row in some.node(0)._folder.log.rows() if row["what"] == "uploaded"]
    assert len(uploads) == 1 and uploads[0]["participant_epsilon"] > 0


def test_what_it_does_not_go_with_is_refused_by_its_name(counts: Any) -> None:
    scheme = counting(counts)
    with pytest.raises(ConfigError, match="class counts are answered by whole clients, and this run protects a record"):
        replace(scheme, train=schemes.fl_std_dp(clip_norm=1.0, noise_multiplier=1.0, unit="record").train)
    with pytest.raises(ConfigError, match="class counts are sums of another kind than those that train"):
        replace(scheme, noise=laconic.CorrelatedGaussian(noise_multiplier=2.0, coefficients=(1024, 512)))
    with pytest.raises(ConfigError, match="leave no round to train in"):
        laconic.run(scheme, model=model(), clients=make_population([6] * 20), sampling_rate=1.0, rounds=1, delta=1e-2)
    both = replace(scheme, evaluations=Evaluations(every=2))
    assert [phase.name for phase in both.phases] == ["evaluations", "class counts", "training"]
    with pytest.raises(ConfigError, match="phases need names of their own"):
        replace(scheme, queries=2 * scheme.queries)


def test_two_queries_in_the_same_round_are_refused(counts: Any) -> None:
    """The accountant counts rounds by phase: a round of two phases would be charged as two, and released as one."""

    class Later(counts.ClassCounts):  # type: ignore[misc, name-defined]
        name = "later counts"

        def rounds(self, after: int) -> Rounds:
            return Rounds(after=6, last=9, every=3)

    later = replace(plain(), queries=(Later(num_classes=3),))
    assert later.planned(10) == {"later counts": 1, "training": 9}
    with pytest.raises(ConfigError, match="evaluations and later counts would be in the same round"):
        replace(later, evaluations=Evaluations(every=9))
    assert replace(later, evaluations=Evaluations(every=5)).planned(10)["training"] == 7


@pytest.mark.parametrize(
    "first", [Rounds(), Rounds(after=2, every=3), Rounds(last=4), Rounds(after=5, last=20, every=7)]
)
@pytest.mark.parametrize("second", [Rounds(last=2), Rounds(after=3, every=2), Rounds(after=8, last=12, every=5)])
def test_schedules_meet_exactly_where_they_have_a_round_in_common(first: Rounds, second: Rounds) -> None:
    assert first.meets(second) == any(number in first and number in second for number in range(1, 500))
    assert first.meets(second) == second.meets(first)


def test_a_scheme_without_queries_is_what_it_was() -> None:
    assert "queries" not in plain().to_dict()
    assert Query.known_kinds() == ["Evaluations", "Moments"]


def f_half(scores: np.ndarray, targets: np.ndarray) -> float:
    """The share of the positive records among those that are taken for positive."""
    taken = scores > 0
    return float(targets[taken].mean()) if taken.any() else 0.0


def test_a_metric_is_one_call(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Registered once, it is in rows, result, report, released rows, logs, gauges and the choice of the best round."""
    monkeypatch.setattr(metrics.METRICS, "_entries", dict(metrics.METRICS))
    about = metrics.Metric("precision_of_ones", "precision", of_scores=f_half, places=(metrics.TEST, metrics.HELD_OUT))
    metrics.METRICS.register(about.name, about)
    population = make_population([8] * 20, classes=2)
    model = torch.nn.Linear(6, 2)
    log = tmp_path / "log.jsonl"
    records: dict[str, Any] = {"test": make_records(40, classes=2), "holdout": make_records(30, classes=2)}
    about_run: dict[str, Any] = {"observer": RecordedEvents(EventLog(log)), "out": tmp_path / "run", "delta": 1e-2}
    result = laconic.run(plain(), model=model, clients=population, sampling_rate=1.0, rounds=2, **records, **about_run)
    row = result.last
    assert 0 <= row["precision_of_ones"] <= 1 and "holdout_precision_of_ones" in row
    assert result.best is not None and "precision_of_ones" in result.best
    known = {"accuracy", "balanced_accuracy", "auroc", "r2", "rmse", "mae", "loss"}
    assert set(metrics.judging()) == known | {"precision_of_ones"}
    assert f"precision_of_ones {row['precision_of_ones']:.4f}" in dict(result_lines(result.summary()))["Last round"]
    assert {"precision_of_ones", "holdout_precision_of_ones"} <= set(released_row(row, private=True))
    assert "precision_of_ones" in json.loads(log.read_text().splitlines()[-2])
    assert "precision_of_ones" in (tmp_path / "run/report.html").read_text()
    assert "precision of ones" in model_card(result.summary(), {})
    assert asked_metric([result.history], "Precision-of-ones") == "precision_of_ones"


def test_who_may_see_a_metric_stands_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics.METRICS, "_entries", dict(metrics.METRICS))
    metrics.METRICS.register("inner", metrics.Metric("inner", "inner figure", released=False))
    row = {"round": 1, "inner": 0.5, "clients_inner": [0.5], "accuracy": 0.25, "class_accuracy": 0.75, "cohort": 7}
    assert released_row(row, private=True) == {"round": 1, "accuracy": 0.25}
    assert "inner" not in fields() and "accuracy" in fields()


RULE = '''
from dataclasses import dataclass

from laconic.aggregate.base import Aggregator


@dataclass(frozen=True, kw_only=True)
class Middle(Aggregator):
    """Of all codes the middle half, entry by entry."""

    def combine(self, codes, weights):
        ordered, quarter = codes.sort(0).values, len(codes) // 4
        return ordered[quarter : len(codes) - quarter].mean(0)
'''


def test_a_robust_rule_is_one_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "own_rule.py").write_text(RULE)
    words = ["run", "fl-std", "--aggregator", "own_rule:Middle", "--num-clients", "20", "--sampling-rate", "0.5"]
    try:
        cli([*words, "--rounds", "2", "--out", "run", "--quiet"], standalone_mode=False)
    finally:
        Part._kinds.pop("Middle", None)
        sys.modules.pop("own_rule", None)
    assert 'name = "own_rule:Middle"' in (tmp_path / "run/config.toml").read_text()
    assert json.loads((tmp_path / "run/summary.json").read_text())["rounds"] == 2


def test_a_scheme_is_its_function_and_a_row_beside_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With its codec that makes two files: what a row of `SCHEMES` says is all that the rest of the house asks."""

    def fl_half(**train: Any) -> Scheme:
        """FL-HALF: half of the weights, the same in all rounds."""
        return replace(schemes.fl_bas_3(ratio=0.5, **train), name="fl-half")

    plain_row = SchemeEntry(fl_half, "a test", "4·K bytes", "4·K bytes")
    monkeypatch.setitem(schemes.SCHEMES._entries, "fl-half", plain_row)
    private_row = SchemeEntry(schemes.PrivateScheme(fl_half), "a test", "b·K bits", "4·K bytes", base=plain_row)
    monkeypatch.setitem(schemes.SCHEMES._entries, "fl-half-dp", private_row)
    words = ["fl-half-dp", "--clip-norm", "0.5", "--epsilon", "4", "--num-clients", "1000"]
    cli(["plan", *words, "--json"], standalone_mode=False)
    planned = json.loads(capsys.readouterr().out)
    assert planned["scheme"] == "fl-half-dp" and planned["code_size"] == 325
    cli(["schemes"], standalone_mode=False)
    assert "FL-HALF-DP: FL-HALF with clipped and noised codes." in capsys.readouterr().out
