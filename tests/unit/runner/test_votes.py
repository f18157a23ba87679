"""Runs that begin with votes: resumed, masked, counted and stated as any other round is."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent, SelfComposedDpEvent
from dp_accounting.rdp import RdpAccountant
from scheme_tools import SIZES, model, run, scheme

import laconic
from conftest import make_population, make_records
from laconic.adversary.attacks.gradient_ascent import RandomUpdate
from laconic.aggregate.protocol import PlainSum
from laconic.clients import wire
from laconic.clients.simulated import SimulatedClients
from laconic.codecs.votes import Ballot
from laconic.errors import ConfigError, PrivacyError
from laconic.experiment.experiment import Experiment
from laconic.packing import integers
from laconic.privacy.accounting.budget import Budget
from laconic.privacy.mechanism.clip import NoClip
from laconic.privacy.mechanism.gaussian import NoNoise
from laconic.round import bounded_codes
from laconic.runner.run import Run
from laconic.scheme import Scheme
from laconic.store.folder import RunFolder

KEPT = 50  # of 83 weights, at a ratio of 0.6


def voting(name: str = "fl-top-dp", **changes: Any) -> Scheme:
    chosen = {"top_selection": "votes", "vote_rounds": 2, "vote_block": 3, "noise_multiplier": 1.5}
    if name.endswith("-dp"):
        chosen["vote_noise_multiplier"] = 2.0
    return scheme(name, **(chosen | changes))


def small(chosen: Scheme, **options: Any) -> laconic.RunResult:
    return run(chosen, **({"public": None, "rounds": 4, "eval_every": 1, "workers": 1, "device": "cpu"} | options))


def weights(result: laconic.RunResult) -> torch.Tensor:
    return torch.cat([p.detach().reshape(-1) for p in result.model.parameters()])


def experiment(chosen: Scheme, **options: Any) -> Experiment:
    defaults: dict[str, Any] = {
        "scheme": chosen,
        "model": model(),
        "population": make_population(SIZES),
        "sampler": laconic.Poisson(sampling_rate=0.4),
        "budget": Budget(delta=1e-5),
        "rounds": 4,
        "workers": 1,
        "device": "cpu",
    }
    return Experiment(**(defaults | options))


@contextmanager
def begun(path: Path, clients: SimulatedClients | None = None) -> Iterator[Run]:
    """A run in a folder, as far as it gets in the block."""
    folder = RunFolder(path)
    folder.make()
    folder.open()
    e = experiment(voting(), checkpoint_seconds=1e9, eval_every=1)
    try:
        started = Run(e, clients=clients, folder=folder)
        started.begin()
        yield started
    finally:
        folder.close()


@pytest.mark.parametrize("name", ["fl-top", "fl-top-bis"])
def test_it_learns_without_public_data(name: str) -> None:
    result = small(
        voting(name, noise_multiplier=0.1, vote_noise_multiplier=None, vote_rounds=1), rounds=30, eval_every=30
    )
    assert result.last["accuracy"] > 0.75


def test_votes_leave_the_weights_as_they_are_and_the_rest_moves_only_what_was_chosen() -> None:
    chosen = voting()
    trained = Run(experiment(chosen))
    initial, seen = trained.model.initial.clone(), []
    trained.observer = lambda row: seen.append(trained.state.weights.clone())
    trained.run()
    assert torch.equal(seen[0], initial) and torch.equal(seen[1], initial)
    moved = (seen[3] != initial).nonzero().reshape(-1)
    kept = trained.state.shared["kept"]
    assert len(kept) == KEPT and set(moved.tolist()) <= set(kept.tolist()) and len(moved) > KEPT // 2
    assert [row.get("vote") for row in trained.history] == ["1 of 2", "2 of 2", None, None]
    assert "votes" not in trained.state.rule


def test_masked_votes_give_the_same_model_as_simulated_ones() -> None:
    options = {"max_dropouts": 4, "dropout_rate": 0.2, "sampling_rate": 0.6}
    open_, masked = (
        small(voting(), secagg=how, noise_draws="per-client", **options) for how in ("simulated", "masked")
    )
    assert torch.equal(weights(open_), weights(masked))


def test_bytes_are_those_of_ballots_first_and_the_set_is_told_once_after_the_vote() -> None:
    result = small(voting())
    blocks = math.ceil(83 / 3)
    bits = result.statement["mechanism"]["selection"]["grid"]["bits"]
    told: set[int] = set()
    cohorts = _cohorts(voting())
    for row, cohort in zip(result.history, cohorts, strict=True):
        if "vote" in row:
            assert row["bytes_up"] == row["messages_up"] * wire.message_size(blocks, integers(bits))
            assert row["bytes_down"] == row["messages_down"] * wire.message_size(0)
            assert row["bytes_once"] == 0
            continue
        assert row["bytes_down"] == row["messages_down"] * wire.message_size(KEPT)
        assert row["bytes_once"] == len(cohort - told) * wire.message_size(KEPT, integers(32))
        told |= cohort


def _cohorts(chosen: Scheme) -> list[set[int]]:
    trained = Run(experiment(chosen))
    trained.begin()
    return [set(trained.plan(number).cohort.tolist()) for number in range(1, 5)]


@pytest.mark.parametrize(("name", "stop"), [("fl-top-dp", 1), ("fl-top-dp", 2), ("fl-top-dp", 3), ("fl-top", 2)])
def test_a_run_that_is_interrupted_ends_as_if_it_had_not_been(name: str, stop: int, tmp_path: Path) -> None:
    def interrupt(row: dict[str, Any]) -> None:
        if row["round"] == stop:
            raise KeyboardInterrupt

    whole = small(voting(name))
    with pytest.raises(KeyboardInterrupt):
        small(voting(name), out=tmp_path / "run", observer=interrupt)
    resumed = small(voting(name), out=tmp_path / "run", resume=True)
    assert torch.equal(weights(whole), weights(resumed))
    assert whole.ledger == resumed.ledger and whole.statement == resumed.statement


def test_a_killed_vote_is_charged_before_it_is_released_and_replayed_for_nothing(tmp_path: Path) -> None:
    with begun(tmp_path / "run") as killed:
        assert killed.begin_round(1) is not None
    charges = (tmp_path / "run" / "charges.jsonl").read_text().splitlines()
    assert [json.loads(line)["round"] for line in charges] == [1]
    with begun(tmp_path / "run") as resumed:
        result = resumed.run()
        assert resumed.journal.num_charged == 4
    assert result.statement["released"]["epsilon"] == small(voting()).statement["released"]["epsilon"]


def test_a_vote_that_another_machine_repeats_is_charged_as_one_more_vote(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("laconic.runner.run._FIRST_ROUNDS", 1)  # so many are announced, and may have been released
    with begun(tmp_path / "run") as first:
        first.begin_round(1)
    clients = SimulatedClients(experiment(voting()))
    clients.environment = "another machine"
    with begun(tmp_path / "run", clients) as second:
        result = second.run()
        assert second.journal.num_charged == 5
    assert result.statement["released"]["epsilon"]["rdp"] == pytest.approx(_independent(votes=3, rounds=5), rel=1e-4)


def _independent(*, votes: int, rounds: int) -> float:
    """dp-accounting's own composition, with the σ that the integer grid leaves (a five-hundredth less at most)."""
    whole = RdpAccountant()
    for sigma, count in ((2.0, votes), (1.5, rounds - votes)):
        effective = sigma * math.sqrt(1 - (2 / 32) ** 2)
        sampled = PoissonSampledDpEvent(0.4, GaussianDpEvent(effective))
        whole.compose(SelfComposedDpEvent(sampled, count))
    return float(whole.get_epsilon(1e-5))


def test_the_statement_says_how_the_coordinates_were_chosen_and_its_figure_has_the_votes_in_it() -> None:
    result = small(voting())
    votes = result.statement["mechanism"]["selection"]
    assert (votes["by"], votes["rounds"], votes["block"], votes["kept"]) == ("votes", 2, 3, KEPT)
    assert votes["sensitivity"] == math.sqrt(votes["marks"])
    assert votes["noise"]["noise_multiplier"] == 2.0
    assert result.statement["released"]["epsilon"]["rdp"] == pytest.approx(_independent(votes=2, rounds=4), rel=1e-4)
    assert any("of the votes" in text for text in result.statement["assumptions"])


def test_a_repeated_vote_on_other_records_is_refused(tmp_path: Path) -> None:
    with begun(tmp_path / "run") as started:
        started._one_round(1)
    with begun(tmp_path / "run") as resumed:
        assert isinstance(resumed.clients, SimulatedClients)
        resumed.clients.work.population = make_population(SIZES, seed=5)
        with pytest.raises(PrivacyError, match="comes out other than before"):
            resumed._one_round(1)


def test_a_run_ends_when_votes_and_training_together_have_used_the_budget() -> None:
    chosen = voting()
    figures = [row["epsilon"] for row in small(chosen).history]
    assert figures == sorted(figures)
    stopped = small(chosen, epsilon=figures[2] + 1e-9)
    assert (stopped.stop_reason, len(stopped.history)) == ("budget", 3)
    with pytest.raises(PrivacyError, match="within the 2 votes"):
        small(chosen, epsilon=figures[1] + 1e-9)


def test_a_replayed_row_takes_no_training_round_for_a_vote_that_is_not_replayed_yet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("laconic.runner.run._FIRST_ROUNDS", 4)

    def figures(environment: str, rounds: int) -> list[float]:
        clients = SimulatedClients(experiment(voting()))
        clients.environment = environment
        with begun(tmp_path / "run", clients) as started:
            for number in range(1, rounds + 1):
                started._one_round(number)
            return [row["epsilon"] for row in started.history]

    figures("one machine", 4)
    before = figures("another", 1)
    figures("another", 3)
    # A second vote and a training round are charged now, and will be replayed: the first row is what it was.
    assert figures("another", 1) == before
    assert before[0] == pytest.approx(experiment(voting()).accountant.with_repeats({"votes": 1}).released_epsilon(5))


def test_patience_begins_after_the_votes_since_they_cannot_improve_the_model() -> None:
    result = small(voting(vote_rounds=3), rounds=9, holdout=make_records(20, seed=4), patience=1)
    assert [row["round"] for row in result.history if "vote" in row] == [1, 2, 3]
    assert len(result.history) > 3


def test_a_client_that_marks_everything_is_cut_to_what_the_sensitivity_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    scheme = voting().at(1)
    plan = experiment(voting()).typical_plan()
    allowed = scheme.clip.sensitivity(28) ** 2

    def marks(updates: torch.Tensor) -> list[float]:
        return bounded_codes(scheme, plan, updates, streams=[]).square().sum(1).tolist()

    assert marks(torch.full((3, 83), 1e30)) == [allowed] * 3
    # Its own codec, which marks all of 28 blocks with 5 each: the bound is applied after it.
    monkeypatch.setattr(Ballot, "encode", lambda *_: torch.full((3, 28), 5.0))
    assert marks(torch.zeros(3, 83)) == [allowed] * 3
    # The twin: without the bound, the sensitivity would be a lie.
    unbounded = replace(scheme, clip=NoClip(), noise=NoNoise(), secure_sum=PlainSum())
    assert float(bounded_codes(unbounded, plan, torch.zeros(3, 83), streams=[]).square().sum(1).max()) > allowed


def test_attackers_vote_too_and_the_statement_counts_their_missing_noise() -> None:
    attacked = small(voting(), attack=RandomUpdate(fraction=0.2, boost=5.0))
    text = attacked.statement["attack"]["text"]
    assert not attacked.statement["attack"]["holds"] and "do not hold" in text


def test_groups_vote_as_well() -> None:
    chosen = replace(voting(), groups=3)
    result = small(chosen, sampling_rate=0.8, secagg="masked")
    assert result.history[0]["groups"] == 3 and "vote" in result.history[0]


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(ConfigError, match="--vote-rounds 4 of --rounds 4 leaves none to train in"):
        experiment(voting(vote_rounds=4))
    with pytest.raises(ConfigError, match="blocks of 60 weights are larger than the 50 weights"):
        experiment(voting(vote_block=60))
    with pytest.raises(ConfigError, match="--vote-noise-multiplier means nothing"):
        experiment(voting("fl-top", vote_noise_multiplier=1.0), budget=None)
    with pytest.raises(ConfigError, match="record-level training moves all weights"):
        replace(scheme("fl-std-record-dp"), codec=voting("fl-top").codec)


def test_the_first_rounds_of_other_schemes_are_no_votes() -> None:
    chosen = scheme("fl-top-dp")
    assert chosen.at(1) is chosen
