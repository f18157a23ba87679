"""The simulator: budget, participations, ledger, best round, early stopping, resuming."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import laconic
from conftest import make_population, make_records
from laconic import schemes
from laconic.clients import wire
from laconic.data.population import FunctionPopulation, Population
from laconic.errors import ConfigError, PrivacyError, RunFolderError, TrainingError
from laconic.experiment.experiment import Experiment
from laconic.plan import RoundPlan
from laconic.round import uplink_encoding
from laconic.runner.run import Run
from laconic.store.folder import RunFolder
from laconic.store.journal import Journal

PRIVATE = schemes.fl_std_dp(clip_norm=0.5, noise_multiplier=1.0, local_lr=0.2, local_steps=2, batch_size=4)
PLAIN = schemes.fl_std(local_lr=0.2, local_steps=2, batch_size=4)
SIZES = [4, 9, 1, 12, 7, 5, 3, 8] * 5


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Linear(6, 3)


def run(scheme: Any = PLAIN, **options: Any) -> laconic.RunResult:
    defaults: dict[str, Any] = {
        "model": model(),
        "clients": make_population(SIZES),
        "test": make_records(200, seed=1),
        "rounds": 6,
        "sampling_rate": 0.3,
    }
    if scheme.private:
        defaults["delta"] = 1e-5
    return laconic.run(scheme, **(defaults | options))


def test_it_learns() -> None:
    result = run(rounds=15)
    assert result.last["accuracy"] > 0.9
    assert result.best is not None
    assert result.best["accuracy"] == max(row["accuracy"] for row in result.history)
    with torch.no_grad():
        outputs = result.model(make_records(200, seed=1).inputs)
    accuracy = float((outputs.argmax(1) == make_records(200, seed=1).targets).float().mean())
    assert accuracy == pytest.approx(result.last["accuracy"])


def test_engines_and_runs_agree() -> None:
    one = run(engine="one-by-one")
    again, many = run(engine="one-by-one"), run(engine="cohort", chunk=3)
    for a, b, c in zip(*(r.model.parameters() for r in (one, again, many)), strict=True):
        assert torch.equal(a, b)
        assert torch.allclose(a, c, atol=1e-5)
    assert one.ledger == many.ledger


def test_the_ledger_counts_the_bytes_that_would_travel() -> None:
    result = run(PRIVATE, rounds=4)
    experiment = Experiment(
        scheme=PRIVATE,
        model=model(),
        population=make_population(SIZES),
        sampler=laconic.Poisson(sampling_rate=0.3),
        rounds=4,
        budget=laconic.Budget(delta=1e-5),
    )
    simulation = Run(experiment)
    simulation.begin()
    for number in range(1, 5):
        plan = simulation.plan(number)
        up, down = every_message(simulation, plan)
        row = result.history[number - 1]
        assert row["bytes_up"] == sum(map(len, up))
        assert row["bytes_down"] == sum(map(len, down))
        assert row["cohort"] == len(up)


def every_message(simulation: Run, plan: RoundPlan) -> tuple[list[bytes], list[bytes]]:
    up, down = [], []
    for chunk in simulation.clients.work.codes(plan, simulation.state.weights):
        for client, code in zip(chunk.clients, chunk.values, strict=True):
            header = (plan.round, plan.attempt, int(client), 1.0, plan.fingerprint)
            encoding = uplink_encoding(simulation.experiment.scheme, len(code), plan)
            up.append(wire.encode(wire.Message("code", *header, code), encoding))
            down.append(wire.encode(wire.Message("weights", *header, simulation.state.weights)))
    return up, down


def test_the_released_epsilon_is_the_accountants() -> None:
    result = run(PRIVATE, rounds=6)
    accountant = laconic.Accountant(
        sampler=laconic.Poisson(sampling_rate=0.3), noise=PRIVATE.noise, num_clients=len(SIZES), delta=1e-5
    )
    # The sampler's finite precision is taken out of δ, which shows in the eleventh digit.
    assert result.last["epsilon"] == pytest.approx(accountant.released_epsilon(6), rel=1e-10)
    assert result.statement["released"]["epsilon"] == pytest.approx(accountant.released(6).to_dict(), rel=1e-10)
    most = result.statement["participant"]["participations"]
    assert 1 <= most <= 6
    assert result.last["participant_epsilon"] == pytest.approx(accountant.participant_epsilon(most), rel=1e-10)


def test_a_budget_stops_the_run_before_it_is_exceeded() -> None:
    free = run(PRIVATE, rounds=6)
    limit = (free.history[2]["epsilon"] + free.history[3]["epsilon"]) / 2
    stopped = run(PRIVATE, rounds=6, epsilon=limit)
    assert stopped.stop_reason == "budget"
    assert stopped.last["round"] == 3
    assert stopped.statement["released"]["rounds_charged"] == 3
    assert stopped.last["epsilon"] <= limit


def test_the_servers_budget_stops_the_run_too() -> None:
    free = run(PRIVATE, rounds=6)
    limit = (free.history[0]["participant_epsilon"] + free.history[-1]["participant_epsilon"]) / 2
    stopped = run(PRIVATE, rounds=6, participant_epsilon=limit)
    assert stopped.stop_reason == "budget"
    assert stopped.last["participant_epsilon"] <= limit
    assert stopped.last["round"] < 6
    # Where a run stops by who took part, its length says something of that: nothing amplifies the outsider's ε.
    assert not stopped.statement["released"]["amplified_by_sampling"]
    assert stopped.statement["released"]["epsilon"]["pld"] == stopped.statement["participant"]["epsilon"]["pld"]
    with pytest.raises(ConfigError, match="--max-participations"):
        run(PRIVATE, rounds=6, participant_epsilon=limit, epsilon=50.0)
    capped = run(PRIVATE, rounds=6, participant_epsilon=50.0, epsilon=50.0, max_participations=2)
    assert capped.statement["released"]["amplified_by_sampling"]


def test_a_budget_for_no_round_at_all_is_refused() -> None:
    with pytest.raises(PrivacyError, match="does not allow a single round"):
        run(PRIVATE, epsilon=0.01)


def test_max_participations_caps_every_client() -> None:
    result = run(PRIVATE, rounds=20, max_participations=2)
    assert result.statement["participant"]["participations"] == 2
    assert result.last["cohort"] == 0 or sum(row["cohort"] for row in result.history) <= 2 * len(SIZES)


def test_an_empty_cohort_is_charged_and_releases_noise_alone() -> None:
    """A model that does not change would tell an outsider that nobody came."""
    result = run(PRIVATE, rounds=12, sampling_rate=0.02)
    empty = [row for row in result.history if row["cohort"] == 0]
    assert empty
    assert all("discarded" in row and row["bytes_up"] == 0 for row in empty)
    assert result.statement["released"]["rounds_charged"] == 12
    losses = [row["loss"] for row in result.history]
    assert len(set(losses)) == 12


def test_too_few_for_the_noise_is_discarded_and_charged() -> None:
    result = run(PRIVATE, rounds=8, sampling_rate=0.12, max_dropouts=4)
    discarded = [row for row in result.history if "discarded" in row]
    assert discarded
    assert all(row["cohort"] <= 4 for row in discarded)
    assert result.statement["released"]["rounds_charged"] == 8
    # So small a federation cannot hide that a cohort was too small.
    assert not result.statement["released"]["amplified_by_sampling"]


def test_large_cohorts_keep_their_amplification_with_slack() -> None:
    accountant = laconic.Accountant(
        sampler=laconic.Poisson(sampling_rate=1 / 60), noise=PRIVATE.noise, num_clients=6000, delta=1e-5, slack=10
    )
    assert accountant.amplified(200)
    assert accountant.released_epsilon(200) < accountant.participant_epsilon(1)


def test_early_stopping_needs_and_uses_the_held_out_set() -> None:
    with pytest.raises(ConfigError, match="--holdout"):
        run(patience=2)
    result = run(rounds=200, patience=2, holdout=make_records(20, seed=4))
    assert result.stop_reason == "patience"
    assert result.last["round"] < 200
    held = [row["holdout_accuracy"] for row in result.history]
    assert max(held[:-2]) >= max(held[-2:])


def test_a_nan_update_does_not_get_through_a_private_round() -> None:
    good = make_population(SIZES)
    huge = FunctionPopulation(
        len(SIZES),
        lambda c: good.records(c) if c else laconic.Records(good.records(0).inputs * 1e37, good.records(0).targets),
    )
    result = run(PRIVATE, clients=huge, sampling_rate=1.0, rounds=2)
    assert all(bool(torch.isfinite(p).all()) for p in result.model.parameters())
    with pytest.raises(TrainingError, match="diverged"):
        steep = schemes.fl_std(local_lr=100.0, local_steps=2, batch_size=4)
        run(steep, clients=huge, sampling_rate=1.0, rounds=2)


def test_centralized_pools_everything_and_sends_nothing() -> None:
    result = run(schemes.centralized(local_lr=0.2, epochs=1, batch_size=10), rounds=3)
    assert [row["cohort"] for row in result.history] == [1, 1, 1]
    assert result.ledger["bytes_up"] == result.ledger["bytes_down"] == 0
    assert result.last["accuracy"] > 0.9


def test_a_million_lazy_clients() -> None:
    base = make_records(50)

    def make(client: int) -> laconic.Records:
        return laconic.Records(*(t[client % 45 : client % 45 + 5] for t in base))

    clients: Population = FunctionPopulation(1_000_000, make)
    result = run(clients=clients, sampling_rate=2e-5, rounds=2)
    assert 5 < result.last["cohort"] < 60


class Stopped(Exception):
    pass


@pytest.mark.parametrize("scheme", [PLAIN, PRIVATE, schemes.fl_std(local_lr=0.2, epochs=1, momentum=0.9)])
@pytest.mark.parametrize("after", [1, 3, 5])
def test_stopped_and_resumed_is_bit_identical(scheme: Any, after: int, tmp_path: Path) -> None:
    whole = run(scheme, out=tmp_path / "whole")

    def stop(row: dict[str, Any]) -> None:
        if row["round"] == after:
            raise Stopped

    options = {"out": tmp_path / "cut", "checkpoint_seconds": 0.0 if after != 3 else 1e9}
    with pytest.raises(Stopped):
        run(scheme, observer=stop, **options)
    resumed = run(scheme, resume=True, **options)
    for name in ("model.safetensors", "best.safetensors"):
        assert (tmp_path / "cut" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    assert resumed.ledger == whole.ledger
    assert resumed.statement == whole.statement
    assert strip(resumed.history) == strip(whole.history)


def strip(history: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{k: v for k, v in row.items() if k != "seconds"} for row in history]


def test_a_replay_elsewhere_is_a_new_attempt_and_is_charged(tmp_path: Path) -> None:
    """Other hardware may round differently: the same noise on another sum would give the noise away."""

    def stop(row: dict[str, Any]) -> None:
        if row["round"] == 4:
            raise Stopped

    options: dict[str, Any] = {"out": tmp_path / "run", "checkpoint_seconds": 1e9}
    with pytest.raises(Stopped):
        run(PRIVATE, observer=stop, engine="one-by-one", **options)
    resumed = run(PRIVATE, resume=True, engine="cohort", **options)
    # Nothing shows that the first process stopped in round 4: it had announced that it may go on to the last one.
    assert [row["attempt"] for row in resumed.history] == [1] * 6
    assert resumed.statement["released"]["rounds_charged"] == 12
    assert resumed.last["epsilon"] > run(PRIVATE).last["epsilon"]
    journal = Journal(RunFolder(tmp_path / "run"), "elsewhere")
    counts: dict[int, int] = {}
    for cohort in (charge.cohort for charge in journal.charges):
        for client in cohort:
            counts[client] = counts.get(client, 0) + 1
    assert resumed.statement["participant"]["participations"] == max(counts.values())


def test_noise_is_never_used_again_on_other_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed at home, redone a little elsewhere, then at home again: no round after that is a replay."""

    def stop_after(last: int) -> Any:
        def stop(row: dict[str, Any]) -> None:
            if row["round"] == last:
                raise Stopped

        return stop

    options: dict[str, Any] = {"out": tmp_path / "run", "checkpoint_seconds": 1e9}
    for place, last in (("home", 5), ("elsewhere", 2)):
        monkeypatch.setattr("laconic.clients.simulated.environment_of", lambda *args, place=place: place)
        with pytest.raises(Stopped):
            run(PRIVATE, observer=stop_after(last), resume=True, **options)
    monkeypatch.setattr("laconic.clients.simulated.environment_of", lambda *args: "home")
    result = run(PRIVATE, resume=True, **options)
    assert [row["attempt"] for row in result.history] == [2] * 6
    assert result.statement["released"]["rounds_charged"] == 3 * 6  # both had announced that they may go on to the end


def test_a_run_that_was_interrupted_pays_for_nothing_twice_elsewhere(tmp_path: Path) -> None:
    """It saved when it ended, and announced no further round."""

    def stop(row: dict[str, Any]) -> None:
        if row["round"] == 4:
            raise KeyboardInterrupt

    options: dict[str, Any] = {"out": tmp_path / "run", "checkpoint_seconds": 1e9}
    with pytest.raises(KeyboardInterrupt):
        run(PRIVATE, observer=stop, engine="one-by-one", **options)
    resumed = run(PRIVATE, resume=True, engine="cohort", **options)
    assert [row["attempt"] for row in resumed.history] == [0] * 6
    assert resumed.statement["released"]["rounds_charged"] == 6


def test_other_limits_are_another_run(tmp_path: Path) -> None:
    def stop(row: dict[str, Any]) -> None:
        if row["round"] == 4:
            raise Stopped

    options: dict[str, Any] = {"out": tmp_path / "run", "checkpoint_seconds": 1e9}
    with pytest.raises(Stopped):
        run(PRIVATE, observer=stop, max_participations=1, **options)
    with pytest.raises(RunFolderError, match="another limits"):
        run(PRIVATE, resume=True, **options)
    with pytest.raises(RunFolderError, match="charged for 4 rounds"):
        run(PRIVATE, resume=True, max_participations=1, rounds=2, **options)


def test_charged_rounds_count_before_they_are_replayed(tmp_path: Path) -> None:
    def stop_after(last: int) -> Any:
        def stop(row: dict[str, Any]) -> None:
            if row["round"] == last:
                raise Stopped if last == 6 else KeyboardInterrupt

        return stop

    options: dict[str, Any] = {"out": tmp_path / "run", "checkpoint_seconds": 1e9, "rounds": 8}
    with pytest.raises(Stopped):
        run(PRIVATE, observer=stop_after(6), **options)
    with pytest.raises(KeyboardInterrupt):
        run(PRIVATE, observer=stop_after(2), resume=True, **options)
    statement = json.loads((tmp_path / "run" / "privacy.json").read_text())
    assert statement["released"]["rounds_charged"] == 6
    six = run(PRIVATE, rounds=6).statement
    assert statement["participant"]["participations"] == six["participant"]["participations"]


def test_a_cap_just_below_the_servers_budget_is_judged_as_the_run_is() -> None:
    """With slack a hundredth of δ is set aside: a budget met without it may still stop the run."""
    sampler = laconic.Poisson(sampling_rate=0.3)
    loose = laconic.Accountant(sampler=sampler, noise=PRIVATE.noise, num_clients=40, delta=1e-5).participant_epsilon(2)
    budget = laconic.Budget(delta=1e-5, participant_epsilon=loose, max_participations=2)
    experiment = Experiment(
        scheme=PRIVATE,
        model=model(),
        population=make_population(SIZES),
        sampler=sampler,
        rounds=3,
        budget=budget,
        max_dropouts=1,
    )
    assert experiment.accountant is not None
    assert experiment.accountant.cohort_dependent


class RunningMean(nn.Module):
    """A module that remembers its inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 3)
        self.register_buffer("mean", torch.zeros(6))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        if self.training:
            self.mean.mul_(0.9).add_(inputs.detach().mean(0), alpha=0.1)
        outputs: torch.Tensor = self.layer(inputs - self.mean)
        return outputs


class ReplacedMean(RunningMean):
    """The same, by a new tensor instead of a change in place."""

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        if self.training:
            self.mean = 0.9 * self.mean + 0.1 * inputs.detach().mean(0)
        outputs: torch.Tensor = self.layer(inputs - self.mean)
        return outputs


@pytest.mark.parametrize("engine", ["auto", "one-by-one", "cohort"])
@pytest.mark.parametrize("kind", [RunningMean, ReplacedMean])
def test_a_model_that_remembers_clients_is_refused(kind: type[nn.Module], engine: str) -> None:
    with pytest.raises(ConfigError, match="buffer 'mean'|one-by-one"):
        run(PRIVATE, model=kind(), engine=engine)


def test_resuming_another_run_is_refused(tmp_path: Path) -> None:
    run(PLAIN, out=tmp_path / "run", rounds=2)
    before = (tmp_path / "run" / "model.safetensors").read_bytes()
    with pytest.raises(RunFolderError, match="resume=True"):
        run(PLAIN, out=tmp_path / "run")
    with pytest.raises(RunFolderError, match="another scheme"):
        run(PRIVATE, out=tmp_path / "run", resume=True)
    with pytest.raises(RunFolderError, match="another seed"):
        run(PLAIN, out=tmp_path / "run", resume=True, seed=5)
    assert (tmp_path / "run" / "model.safetensors").read_bytes() == before


def test_other_weights_or_data_are_another_run(tmp_path: Path) -> None:
    """Even before the first checkpoint: the same noise must not meet other updates."""

    def stop(row: dict[str, Any]) -> None:
        raise Stopped

    with pytest.raises(Stopped):
        run(PRIVATE, out=tmp_path / "run", observer=stop, checkpoint_seconds=1e9)
    torch.manual_seed(1)
    with pytest.raises(RunFolderError, match="another model"):
        run(PRIVATE, out=tmp_path / "run", resume=True, model=nn.Linear(6, 3))
    with pytest.raises(RunFolderError, match="another population"):
        run(PRIVATE, out=tmp_path / "run", resume=True, clients=make_population(SIZES, seed=5))
    assert run(PRIVATE, out=tmp_path / "run", resume=True).statement == run(PRIVATE).statement


@pytest.mark.parametrize("place", ["updates", "server_step"])
def test_ctrl_c_in_the_middle_of_a_round_changes_nothing(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options: dict[str, Any] = {"out": tmp_path / "cut", "max_participations": 3, "checkpoint_seconds": 0.0}
    calls = itertools.count(1)

    def interrupted(*args: Any, **kwargs: Any) -> Any:
        if next(calls) == 3:
            raise KeyboardInterrupt
        return original(*args, **kwargs)

    from laconic.runner import run as simulator

    target = simulator if place == "server_step" else simulator.SimulatedClients
    name = place if place == "server_step" else "collect"
    original = getattr(target, name)
    monkeypatch.setattr(target, name, interrupted)
    with pytest.raises(KeyboardInterrupt):
        run(PRIVATE, **options)
    monkeypatch.undo()
    resumed = run(PRIVATE, resume=True, **options)
    whole = run(PRIVATE, out=tmp_path / "whole", max_participations=3)
    assert strip(resumed.history) == strip(whole.history)
    assert resumed.statement == whole.statement


def test_a_budget_for_a_scheme_without_noise_is_refused() -> None:
    with pytest.raises(ConfigError, match="adds no noise"):
        run(PLAIN, epsilon=1.0)


def test_rounds_may_grow_on_resume(tmp_path: Path) -> None:
    run(PRIVATE, out=tmp_path / "run", rounds=3)
    grown = run(PRIVATE, out=tmp_path / "run", rounds=6, resume=True)
    whole = run(PRIVATE, rounds=6)
    for a, b in zip(strip(grown.history), strip(whole.history), strict=True):
        assert a.pop("weights") == b.pop("weights")
        assert a == pytest.approx(b, rel=1e-10)  # ε: what the sampler costs is taken out of δ for all planned rounds
    for a, b in zip(grown.model.parameters(), whole.model.parameters(), strict=True):
        assert torch.equal(a, b)


def test_other_code_is_another_run(tmp_path: Path) -> None:
    """The noise of a killed round is drawn again when it is repeated: it must not meet other updates."""

    def folder(number: int) -> Path:
        return tmp_path / str(number)

    def tanh(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.cross_entropy(outputs.tanh(), targets, reduction="none")

    def plain(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.cross_entropy(outputs, targets, reduction="none")

    plain.__qualname__ = tanh.__qualname__
    run(PRIVATE, out=folder(1), rounds=2, loss=tanh)
    with pytest.raises(RunFolderError, match="another loss"):
        run(PRIVATE, out=folder(1), rounds=2, loss=plain, resume=True)
    quiet, noisy = (torch.nn.Sequential(torch.nn.Linear(6, 3), torch.nn.Dropout(p)) for p in (0.0, 0.5))
    noisy[0].load_state_dict(quiet[0].state_dict())
    run(PRIVATE, out=folder(2), rounds=2, model=quiet)
    with pytest.raises(RunFolderError, match="another structure"):
        run(PRIVATE, out=folder(2), rounds=2, model=noisy, resume=True)


def test_one_record_of_any_client_makes_another_run(tmp_path: Path) -> None:
    sizes = [6, 9, 3, 12, 7, 5, 4, 8]
    clients = [make_population(sizes).records(client) for client in range(len(sizes))]
    run(PRIVATE, out=tmp_path / "run", rounds=2, clients=clients)
    inputs = clients[2].inputs.clone()
    inputs[0, 0] += 1
    clients[2] = clients[2]._replace(inputs=inputs)
    with pytest.raises(RunFolderError, match="another population"):
        run(PRIVATE, out=tmp_path / "run", rounds=2, clients=clients, resume=True)


class Moody(torch.nn.Linear):
    """What it computes depends on something that no identity knows."""

    factor = 1.0

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.factor * super().forward(inputs)


@pytest.mark.parametrize("factor", [1.0, 1.5])
def test_a_repeated_round_comes_out_as_before_or_not_at_all(
    factor: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(row: dict[str, Any]) -> None:
        if row["round"] == 3:
            raise RuntimeError("killed")

    def go(**options: Any) -> laconic.RunResult:
        torch.manual_seed(0)
        return run(PRIVATE, out=tmp_path / "run", model=Moody(6, 3), checkpoint_seconds=1e6, test=None, **options)

    with pytest.raises(RuntimeError, match="killed"):
        go(observer=killed)
    charges = (tmp_path / "run/charges.jsonl").read_bytes()
    monkeypatch.setattr(Moody, "factor", factor)
    if factor == 1.0:
        assert len(go(resume=True).history) == 6
        return
    for _ in range(2):  # asking again does not help
        with pytest.raises(PrivacyError, match="round 1 comes out other than before the run was interrupted"):
            go(resume=True)
    known = tmp_path / "run/repeated.json"
    for damage in ("[[1, 0]]", "[[1, 0, 5]]", "{", "5"):
        content = known.read_text()
        known.write_text(damage)
        with pytest.raises(RunFolderError, match="repeated.json is damaged"):
            go(resume=True)
        known.write_text(content)
    assert (tmp_path / "run/charges.jsonl").read_bytes() == charges
