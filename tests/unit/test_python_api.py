"""`laconic.run` from Python: σ from ε as on the command line, arguments with a wrong name, observers, the bar."""

from __future__ import annotations

import sys
import types
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

import laconic
from laconic.errors import ConfigError, UnknownArgument
from laconic.experiment.experiment import Experiment
from laconic.observers.observer import Ended, Observer, Started
from laconic.privacy.accounting.accountant import Accountant
from laconic.privacy.accounting.budget import Budget
from laconic.runner.run import Run
from laconic.scheme import Scheme
from laconic.schemes import fl_sign_dp, fl_std, fl_std_dp, fl_std_record_dp, fl_top_dp
from laconic.settings.build import settle
from laconic.settings.config import RunConfig

TRAIN: dict[str, Any] = {"local_lr": 0.1, "local_steps": 1, "batch_size": 10}


def some_clients(count: int = 40) -> list[tuple[torch.Tensor, torch.Tensor]]:
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(10 * count, 4, generator=generator)
    return list(zip(inputs.split(10), (inputs.sum(1) > 0).long().split(10), strict=True))


COMMON: dict[str, Any] = {"model": nn.Linear(4, 2), "clients": some_clients(), "sampling_rate": 0.5, "rounds": 2}


@pytest.mark.parametrize(
    ("name", "scheme", "options", "more"),
    [
        ("fl-std-dp", fl_std_dp(clip_norm=0.5, **TRAIN), {"clip_norm": 0.5}, {}),
        (
            "fl-std-dp",
            fl_std_dp(clip_norm=0.5, noise="continuous", **TRAIN),
            {"clip_norm": 0.5, "noise": "continuous"},
            {},
        ),
        ("fl-std-dp", fl_std_dp(clip_norm=0.5, **TRAIN), {"clip_norm": 0.5}, {"max_dropouts": 2}),
        ("fl-sign-dp", fl_sign_dp(**TRAIN), {}, {}),
        (
            "fl-top-dp",
            fl_top_dp(ratio=0.5, clip_norm=0.5, top_selection="votes", vote_rounds=1, **TRAIN),
            {"clip_norm": 0.5, "ratio": 0.5, "top_selection": "votes", "vote_rounds": 1},
            {},
        ),
        (
            "fl-std-record-dp",
            fl_std_record_dp(clip_norm=1.0, record_rate=0.1, balance="none", **TRAIN),
            {"clip_norm": 1.0, "record_rate": 0.1, "balance": "none"},
            {},
        ),
    ],
    ids=["integers", "continuous", "with slack", "signs", "votes", "records"],
)
def test_epsilon_gives_the_noise_of_the_command_line(
    name: str, scheme: Scheme, options: dict[str, Any], more: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    slack = more.get("max_dropouts", 0)
    rate = 0.5 if options == {"clip_norm": 0.5} and not slack else 1.0  # at 1 the accountants are quick
    settled = settle(on_the_command_line(name, TRAIN | options, rate=rate, slack=slack, accountant="rdp"))
    made: list[Experiment] = []

    def caught(experiment: Experiment, observer: Any) -> Any:
        made.append(experiment)
        return types.SimpleNamespace(run=lambda: None)

    monkeypatch.setattr("laconic.api.Run", caught)
    population = settled.experiment.population
    common: dict[str, Any] = {"model": settled.experiment.model, "clients": population, "sampling_rate": rate}
    laconic.run(scheme, rounds=3, delta=1e-5, epsilon=8.0, accountant="rdp", **common, **more)
    assert made[0].scheme == settled.experiment.scheme
    assert made[0].budget == settled.experiment.budget
    found, theirs = made[0].accountant, settled.experiment.accountant
    assert found is not None and theirs is not None
    assert 7.9 < found.released_epsilon(3, "rdp") <= 8.0
    assert found.released_epsilon(3, "rdp") == theirs.released_epsilon(3, "rdp")


def on_the_command_line(name: str, options: dict[str, Any], *, rate: float = 0.5, **more: Any) -> RunConfig:
    values = {"scheme.name": name, "data.num_clients": 100, "sampler.sampling_rate": rate, "run.rounds": 3}
    values |= {"privacy.epsilon": 8.0, "run.device": "cpu", "run.eval_every": 3}
    values |= {"sampler.max_dropouts": more.get("slack", 0)}
    values |= {f"scheme.{key}": value for key, value in options.items()}
    return RunConfig().with_values(values | ({"privacy.accountant": "rdp"} if "accountant" in more else {}))


def test_the_promise_is_that_of_the_command_line_to_the_last_digit() -> None:
    settled = settle(on_the_command_line("fl-std-dp", TRAIN | {"clip_norm": 0.5}, rate=1.0)).experiment
    theirs = Run(settled).run()
    common: dict[str, Any] = {"model": settled.model, "clients": settled.population, "sampling_rate": 1.0}
    scheme = fl_std_dp(clip_norm=0.5, **TRAIN)
    ours = laconic.run(scheme, rounds=3, delta=1e-5, epsilon=8.0, test=settled.test, eval_every=3, **common)
    for key in ("summary", "released", "participant", "mechanism"):
        assert ours.statement[key] == theirs.statement[key], key
    assert 7.99 < ours.last["epsilon"] <= 8.0
    assert (ours.stop_reason, ours.last["round"]) == ("rounds", 3)


def test_the_noise_of_the_continuous_mechanism_would_not_have_been_enough() -> None:
    """What the test above would miss, were σ calibrated for another noise than the scheme's."""
    sampler = laconic.Poisson(sampling_rate=0.5)
    sigma = laconic.calibrate_noise(epsilon=8.0, delta=1e-5, rounds=3, sampler=sampler, num_clients=100, method="rdp")
    integers = laconic.DiscreteGaussian(noise_multiplier=sigma)
    assert Accountant(sampler=sampler, noise=integers, num_clients=100, delta=1e-5).released_epsilon(3, "rdp") > 8.0


def test_a_scheme_whose_noise_is_open_is_never_run() -> None:
    scheme = fl_std_dp(clip_norm=0.5, **TRAIN)
    assert scheme.open and scheme.private
    with pytest.raises(ConfigError, match="needs a noise multiplier.*epsilon"):
        laconic.run(scheme, delta=1e-5, **COMMON)
    with pytest.raises(ConfigError, match="no noise multiplier"):
        Experiment(
            scheme=scheme,
            model=nn.Linear(4, 2),
            population=laconic.FunctionPopulation(9, lambda client: some_clients(9)[client], size=lambda client: 10),
            sampler=laconic.Poisson(sampling_rate=0.5),
            budget=Budget(delta=1e-5),
        )
    sampler = laconic.Poisson(sampling_rate=0.5)
    with pytest.raises(ConfigError, match="σ is open"):
        Accountant(sampler=sampler, noise=scheme.noise, num_clients=40, delta=1e-5).released(1)


def test_the_scheme_with_its_noise_can_be_had_without_a_run() -> None:
    asked = laconic.Calibration(
        sampler=laconic.Poisson(sampling_rate=0.5),
        num_clients=40,
        rounds=2,
        size=10,
        budget=Budget(delta=1e-5, epsilon=8),
    )
    scheme = laconic.calibrated(fl_std_dp(clip_norm=0.5, **TRAIN), asked)
    ran = laconic.run(fl_std_dp(clip_norm=0.5, **TRAIN), delta=1e-5, epsilon=8, **COMMON)
    assert ran.statement["mechanism"]["noise"]["noise_multiplier"] == scheme.noise_multiplier
    assert laconic.calibrated(scheme, asked) is scheme


@pytest.mark.parametrize("stage", ["before-upload", "before-unmask"])
def test_all_rounds_fit_into_the_asked_epsilon_also_where_dropouts_keep_sampling_from_helping(stage: str) -> None:
    """Whether a committee can open depends on who is in it: then σ must do without amplification."""
    ran = laconic.run(
        fl_std_dp(clip_norm=0.5, **TRAIN),
        model=nn.Linear(4, 2),
        clients=some_clients(),
        sampler=laconic.FixedSize(cohort_size=10),
        rounds=4,
        epsilon=4.0,
        delta=1e-5,
        accountant="rdp",
        max_dropouts=2,
        dropout_rate=0.1,
        dropout_stage=stage,
    )
    assert ran.stop_reason == "rounds" and ran.last["round"] == 4 and ran.last["epsilon"] <= 4.0
    assert ran.statement["released"]["amplified_by_sampling"] == (stage == "before-upload")


def test_a_misspelt_argument_gets_a_suggestion() -> None:
    with pytest.raises(UnknownArgument, match="'eval_evry': did you mean 'eval_every'"):
        laconic.run(fl_std(**TRAIN), eval_evry=2, **COMMON)
    with pytest.raises(TypeError, match="did you mean 'sampling_rate'"):
        laconic.run(fl_std(**TRAIN), model=nn.Linear(4, 2), clients=some_clients(), rounds=1, samplin_rate=0.5)
    with pytest.raises(ConfigError, match="did you mean 'noise_multiplier'"):
        fl_std_dp(clip_norm=0.5, noise_multipler=1.0, **TRAIN)
    with pytest.raises(ConfigError, match="did you mean 'server_lr'"):
        fl_std(sever_lr=1.0, **TRAIN)
    with pytest.raises(UnknownArgument, match="did you mean 'canaries'"):
        laconic.audit_run(fl_std(**TRAIN), canaires=10, **COMMON)
    with pytest.raises(ConfigError, match="unknown tracker '5'"):
        laconic.run(fl_std(**TRAIN), track=5, **COMMON)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="must be a scheme"):
        laconic.run("fl-std", **COMMON)  # type: ignore[arg-type]


class Watching(Observer):
    def __init__(self) -> None:
        self.told: list[Any] = []

    def start(self, run: Started) -> None:
        self.told.append(run)

    def row(self, row: dict[str, Any]) -> None:
        self.told.append(row["round"])
        if row["round"] == 2 and "stop" in self.__dict__:
            raise KeyboardInterrupt

    def end(self, run: Ended) -> None:
        self.told.append(run)


def test_an_observer_is_told_of_the_start_every_round_and_the_end() -> None:
    watching = Watching()
    result = laconic.run(fl_std(**TRAIN), observer=watching, **COMMON)
    start, *rounds, end = watching.told
    assert rounds == [1, 2]
    assert (start.scheme, start.rounds, start.finished, start.private) == ("fl-std", 2, 0, False)
    assert start.settings["scheme.train.local_lr"] == 0.1
    assert (end.status, end.summary["last"]["round"]) == ("finished", 2)
    assert list(end.history) == result.history


def test_an_observer_is_told_of_an_interrupt_and_of_a_failure() -> None:
    watching = Watching()
    watching.stop = True  # type: ignore[attr-defined]
    with pytest.raises(KeyboardInterrupt):
        laconic.run(fl_std(**TRAIN), observer=watching, **COMMON)
    assert watching.told[-1].status == "interrupted"
    watching = Watching()

    def fail(row: dict[str, Any]) -> None:
        raise ValueError

    from laconic.observers.observer import Together

    with pytest.raises(ValueError):
        laconic.run(fl_std(**TRAIN), observer=Together(watching, fail), **COMMON)
    assert watching.told[-1].status == "failed"


def test_a_plain_function_is_an_observer() -> None:
    rows: list[dict[str, Any]] = []
    result = laconic.run(fl_std(**TRAIN), observer=rows.append, **COMMON)
    assert rows == result.history


def test_there_is_no_bar_where_nobody_sees_it(capfd: pytest.CaptureFixture[str]) -> None:
    laconic.run(fl_std(**TRAIN), **COMMON)
    assert capfd.readouterr() == ("", "")
    laconic.run(fl_std(**TRAIN), progress=True, **COMMON)
    assert "round 2/2" in capfd.readouterr().err


def test_a_terminal_has_a_bar(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    laconic.run(fl_std(**TRAIN), **COMMON)
    assert "round 2/2" in capsys.readouterr().err
    laconic.run(fl_std(**TRAIN), progress=False, **COMMON)
    assert capsys.readouterr().err == ""


@pytest.fixture
def notebook(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """A stand-in for a notebook's kernel: what its cells show."""
    shown: list[str] = []
    handle = types.SimpleNamespace(update=shown.append)

    def display(content: str, display_id: bool) -> Any:
        shown.append(content)
        return handle

    ipython: Any = types.ModuleType("IPython")
    ipython.get_ipython = lambda: types.SimpleNamespace(kernel=object())
    shows: Any = types.ModuleType("IPython.display")
    shows.HTML, shows.display = str, display
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", shows)
    yield shown


def test_a_notebook_has_a_bar(notebook: list[str]) -> None:
    laconic.run(fl_std(**TRAIN), test=some_clients(1)[0], **COMMON)
    assert "<progress value='0' max='2'>" in notebook[0]
    assert "<progress value='2' max='2'>" in notebook[-1] and "accuracy" in notebook[-1]


def test_the_accountant_of_a_budget_can_be_chosen() -> None:
    scheme = fl_std_dp(clip_norm=0.5, **TRAIN)
    common = COMMON | {"sampling_rate": 1.0}
    tight = laconic.run(scheme, delta=1e-5, epsilon=8, **common)
    papers = laconic.run(scheme, delta=1e-5, epsilon=8, accountant="moments", **common)
    sigmas = [run.statement["mechanism"]["noise"]["noise_multiplier"] for run in (tight, papers)]
    assert sigmas[0] < sigmas[1]


def test_the_ablation_of_an_open_scheme_runs() -> None:
    quiet = replace(fl_std_dp(clip_norm=0.5, **TRAIN), noise=laconic.NoNoise())
    assert not quiet.open
    laconic.run(quiet, **COMMON)
