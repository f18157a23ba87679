"""The sweep over ε and bytes: it keeps to its bytes, runs nothing twice, chooses the best, and reports what it ran."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from click.testing import CliRunner

from benchmarks.frontier import choose as choosing
from benchmarks.frontier import runs as running
from benchmarks.frontier.__main__ import main
from benchmarks.frontier.choose import CHANGES, Search, changed, choose, read_choices, scaled, shapes
from benchmarks.frontier.features import Features, load_data, write_features
from benchmarks.frontier.report import main as report
from benchmarks.frontier.runs import CHOSEN, MEASURED, Runs, Trial, key_of, read_rows
from benchmarks.frontier.settings import BUDGET, EPSILONS, QUICK, TEST_SEEDS, Setting, World
from laconic.cli.main import cli
from laconic.data.synthetic import dead_leaves
from laconic.features.kinds import public_front_end
from laconic.streams import Streams

CPU = torch.device("cpu")


def runs_in(folder: Path) -> Runs:
    return Runs(QUICK, folder, features=folder, data_dir=None, device="cpu", workers=0, gpu_workers=0)


@pytest.mark.parametrize("rounds", [25, 200, 400, 1000])
def test_heads_keep_to_the_bytes(rounds: int) -> None:
    """Simulated: in 1 of 740 runs more than three deviations above the mean (normal); 40 draws with a fixed seed."""
    world = replace(World(), most_features=10**6)
    message = 60 + 20 * (world.features_for(rounds) + 1)
    rng = np.random.default_rng(0)
    parts = rng.binomial(world.clients * rounds, world.rate, 40)  # who takes part, over all rounds together
    assert parts.max() * message / world.clients <= BUDGET
    assert rounds * world.rate * message > 0.9 * BUDGET


def test_features_are_those_of_the_front_end(tmp_path: Path) -> None:
    write_features(tmp_path / "f.pt", QUICK, public="dead-leaves", mirror=True, seed=1, data_dir=None, device=CPU)
    features = Features(tmp_path / "f.pt", 20, ridge=0.05)
    federation, _ = load_data(QUICK, "dead-leaves", 1, None)
    leaves = dead_leaves(QUICK.images, (1, 8, 8), Streams(1).numpy("front end images"))
    front_end = public_front_end("scattering", (1, 8, 8), features=20, images=leaves, ridge=0.05, mirror=True)
    theirs = federation.population.records(17)
    ours = features.clients().records(17)
    assert torch.equal(ours.targets, theirs.targets)
    assert torch.allclose(ours.inputs, front_end(theirs.inputs), atol=1e-3)
    assert torch.equal(features.records("judge").targets, federation.test.targets)


def test_held_out_pictures_belong_to_no_client() -> None:
    chosen, _ = load_data(QUICK, "dead-leaves", 0, None)
    final, _ = load_data(QUICK, "dead-leaves", TEST_SEEDS[0], None)
    assert (chosen.population.num_clients, final.population.num_clients) == (126, 140)
    assert final.holdout is None
    held = {tuple(image.flatten().tolist()) for image in chosen.holdout.inputs}
    for client in range(126):
        assert not held & {tuple(image.flatten().tolist()) for image in chosen.population.records(client).inputs}


def fake_row(trial: Trial, accuracy: float) -> dict[str, str]:
    return dict(zip(CHOSEN, key_of(trial), strict=True)) | dict.fromkeys(MEASURED, "1") | {"accuracy": str(accuracy)}


def test_no_run_is_made_twice_and_a_torn_row_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []

    def train(job: running.Job) -> dict[str, str]:
        made.append(job.seed)
        return fake_row((job.setting, job.epsilon, job.seed), 0.5 + job.seed / 100)

    monkeypatch.setattr(running, "train", train)
    monkeypatch.setattr(running, "write_features", lambda path, *_, **__: path.touch())
    trials = [(Setting(features=9, rounds=2), 1.0, seed) for seed in (0, 10, 10)]
    with runs_in(tmp_path) as runs:
        assert runs.accuracies(trials) == [0.5, 0.6, 0.6]
    assert made == [0, 10]
    file = tmp_path / "runs.csv"
    file.write_text(file.read_text()[:-5])  # as a kill may leave it
    with runs_in(tmp_path) as runs:
        runs.accuracies(trials)
    assert made == [0, 10, 10]
    assert [row["seed"] for row in read_rows(file)] == ["0", "10"]


class Landscape:
    """Runs whose accuracy is known: the closer to a hidden optimum the better."""

    world = World()

    def accuracies(self, trials: Iterable[Trial]) -> list[float]:
        return [self.accuracy(*trial) for trial in trials]

    def accuracy(self, s: Setting, epsilon: float, seed: int) -> float:
        score = 0.9 - abs(np.log(s.rounds / 400)) / 10 - abs(np.log(s.reach / (60 * epsilon**0.5))) / 100
        score += 0.02 * (not s.mirror) - 0.01 * (s.ridge != 0.03) - 0.01 * (s.scheme == "fl-cs-dp")
        return float(score)


def test_the_search_finds_the_best_setting() -> None:
    chosen = choose(Landscape())  # type: ignore[arg-type]
    for epsilon in EPSILONS:
        setting, kept = chosen[f"{epsilon:g}"]
        assert kept == epsilon
        assert (setting.rounds, setting.features) == (400, 815)
        assert (setting.ridge, setting.mirror) == (0.03, False)
    assert {chosen[name][0].scheme for name in chosen} == {
        "fl-std-dp",
        "fl-top-dp",
        "fl-freq-dp",
        "fl-cs-dp",
        "fl-sign-dp",
    }
    assert chosen["fl-top-dp 50%"][0].ratio == 0.5
    assert {setting.downlink for setting, _ in chosen.values()} == {"half", "weights"}


def test_ties_go_to_the_first() -> None:
    options = [(Setting(momentum=m), 1.0) for m in (0.9, 0.0)]
    assert Search(Landscape()).best_of({"x": options})["x"] == options[0]  # type: ignore[arg-type]


def test_changes_of_the_step() -> None:
    start = Setting(reach=10.0)
    assert changed(start, {"reach": 0.7, "ridge": 0.5}) == Setting(reach=7.0, ridge=0.5)
    assert [s.reach for s, _ in scaled((start, 1.0), (1.0, 2.0))] == [10.0, 20.0]
    assert [s.sign_step for s, _ in scaled((Setting(sign_step=0.1), 1.0), (1.0, 2.0))] == [0.1, 0.2]
    assert start.server_lr * start.clip_norm * start.rounds / (1 - start.momentum) == pytest.approx(10)
    assert [s.features for s in shapes(World(), 1.0)] == [815, 543, 407]


@pytest.mark.slow
def test_from_the_search_to_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    small = choosing.smaller
    monkeypatch.setattr(choosing, "EPSILONS", (1.0,))
    monkeypatch.setattr(choosing, "CHANGES", CHANGES[1:3])
    monkeypatch.setattr(
        choosing, "smaller", lambda best: {k: v for k, v in small(best).items() if "top" in k or "bits" in k}
    )
    out = ["--quick", "--workers", "0", "--out", str(tmp_path / "runs")]
    with pytest.raises(SystemExit):
        main([*out, "--stage", "final"])
    assert "run --stage choose first" in capsys.readouterr().err
    main([*out, "--stage", "choose"])
    rows = read_rows(tmp_path / "runs/runs.csv")
    assert {row["judged_on"] for row in rows} == {"held-out"}
    with pytest.raises(SystemExit):
        report([str(tmp_path / "runs")])
    assert "has no tested runs" in capsys.readouterr().err
    main(out)
    tested = [row for row in read_rows(tmp_path / "runs/runs.csv") if row["judged_on"] == "test"]
    assert len(tested) == 9  # the head, a codec, and 32 bits down, three seeds each
    assert all(0.95 < float(row["released_epsilon"]) <= 1 for row in tested)
    assert all(int(row["bytes_up"]) <= QUICK.budget for row in tested)
    report([str(tmp_path / "runs"), "--out", str(tmp_path / "docs/frontier.md")])
    page = (tmp_path / "docs/frontier.md").read_text(encoding="utf-8")
    assert "figures mean nothing" in page
    head = [float(row["accuracy"]) for row in tested if (row["scheme"], row["downlink"]) == ("fl-std-dp", "half")]
    assert f"{sum(head) / 3:.4f} ±" in page
    beside = {path.name for path in (tmp_path / "docs/frontier").iterdir()}
    assert beside == {"runs.csv", "chosen.json", "summary.csv", "epsilon.png", "bytes.png"}

    world, chosen = read_choices(tmp_path / "runs/chosen.json")
    assert world == QUICK
    command = chosen["1"][0].command(world, 1.0, TEST_SEEDS[0])
    assert command in page
    words = [*shlex.split(command)[1:], "--out", str(tmp_path / "again"), "--device", "cpu", "--quiet", "--json"]
    again: Any = CliRunner().invoke(cli, words)
    assert again.exit_code == 0, again.output
    assert f'"accuracy": {head[0]:.3f}'[:-1] in again.output  # up to the order in which floats were added
