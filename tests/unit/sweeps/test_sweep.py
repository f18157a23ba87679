"""A sweep from its grid to its table: runs as `laconic run` gives them, interrupted and failed ones, the table."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest
from e2e_tools import call

import laconic
from laconic.errors import ConfigError, RunFolderError
from laconic.figures import at_most
from laconic.observers.observer import Row
from laconic.sweeps import jobs
from laconic.sweeps import sweep as sweep_module
from laconic.sweeps.grid import Grid
from laconic.sweeps.jobs import Watch
from laconic.sweeps.sweep import Sweep

BASE: dict[str, Any] = {
    "scheme": {"name": "fl-std-dp", "clip_norm": 0.5, "noise_multiplier": 1.0, "local_steps": 1},
    "run": {"rounds": 2, "device": "cpu", "threads": 1},
    "data": {"num_clients": 30},
    "sampler": {"sampling_rate": 0.3},
    "model": {"name": "logistic"},
}
NOT_TIME = ("seconds",)


def rows(run: Path) -> list[dict[str, Any]]:
    """The rounds of a run, less what depends on the clock."""
    found = map(json.loads, (run / "rounds.jsonl").read_text().splitlines())
    return [{key: value for key, value in row.items() if key not in NOT_TIME} for row in found]


def same_run(one: Path, other: Path) -> None:
    """The same weights and rounds, bit for bit."""
    assert (one / "model.safetensors").read_bytes() == (other / "model.safetensors").read_bytes()
    assert rows(one) == rows(other)
    assert (one / "config.toml").read_text() == (other / "config.toml").read_text()


class Heard(Watch):
    """Remembers what it is told, and may interrupt."""

    def __init__(self, interrupt_at: tuple[str, int] | None = None) -> None:
        self.names: list[str] = []
        self.failed: dict[str, str] = {}
        self.finished_before: dict[str, int] = {}
        self._at = interrupt_at

    def started(self, name: str, rounds: int, finished: int) -> None:
        self.finished_before[name] = finished

    def row(self, name: str, row: Row) -> None:
        if (name, row["round"]) == self._at:
            raise KeyboardInterrupt

    def ended(self, name: str, failure: dict[str, Any] | None) -> None:
        self.names.append(name)
        if failure is not None:
            self.failed[name] = failure["error"]


def swept(out: Path, watch: Watch | None = None, **more: Any) -> Any:
    return Sweep.of(Grid.from_dict(BASE | more), out).run(watch or Watch())


@pytest.fixture
def no_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """They take time, and one test looks at them."""
    monkeypatch.setattr(sweep_module, "plots_available", lambda: False)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("sweeps") / "first"
    swept(out, grid={"local_lr": [0.1, 0.5]}, seeds=2)
    return out


def test_a_run_of_a_sweep_is_the_run_that_laconic_run_gives(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = "--clip-norm 0.5 --noise-multiplier 1 --local-steps 1 --rounds 2 --device cpu --threads 1"
    more = "--num-clients 30 --sampling-rate 0.3 --model logistic --local-lr 0.5 --seed 1 --quiet"
    ended = call(capsys, "run", "fl-std-dp", *options.split(), *more.split(), "--out", tmp_path / "alone")
    assert ended.code == 0, ended.err
    same_run(finished / "runs/local_lr=0.5+seed=1", tmp_path / "alone")


def test_the_table_has_every_run_and_the_mean_over_seeds(finished: Path) -> None:
    lines = list(csv.DictReader(io.StringIO((finished / "table.csv").read_text())))
    assert [(line["local_lr"], line["seed"], line["state"]) for line in lines] == [
        ("0.1", "0", "finished"),
        ("0.1", "1", "finished"),
        ("0.5", "0", "finished"),
        ("0.5", "1", "finished"),
    ]
    last = [rows(finished / line["folder"])[-1]["accuracy"] for line in lines]
    assert [float(line["last"]) for line in lines] == last
    mean, spread = (last[2] + last[3]) / 2, abs(last[2] - last[3]) / 2**0.5
    assert f"| 0.5 | 2 | {mean:.3f} ± {spread:.2g} |" in (finished / "table.md").read_text()
    spent = sum(float(line["epsilon"]) for line in lines)
    assert (
        f"All 4 runs of the same clients together, or settings that are chosen by them, have up to ε = {at_most(spent)}"
        in ((finished / "table.md").read_text())
    ), "what a user must know who looks at many private runs"
    assert (finished / "table.png").stat().st_size > 5000


@pytest.mark.usefixtures("no_pictures")
@pytest.mark.parametrize(
    ("more", "shared"),
    [
        ({"grid": {"run.eval_every": [1, 2]}}, True),  # the sums are the same, so the noise is
        ({"grid": {"model.zero": [True, False]}}, False),
        ({"grid": {"scheme.local_lr": [0.1, 0.2]}}, False),
        ({"grid": {"scheme.local_lr": [0.1, 0.2]}, "secagg": {"noise_draws": "per-client"}}, False),
        ({"grid": {"sampler.sampling_rate": [0.3, 0.5]}}, False),
        ({"seeds": 2}, False),
    ],
)
def test_runs_that_share_their_noise_have_no_epsilon_together(
    tmp_path: Path, more: dict[str, Any], shared: bool
) -> None:
    """The difference of two releases with the same noise has none: then ε does not add up, it is gone."""
    swept(tmp_path / "sweep", **more)
    remarks = (tmp_path / "sweep/table.md").read_text(encoding="utf-8")
    assert ("have the same noise" in remarks) == shared
    assert ("their sum" in remarks) != shared


@pytest.mark.usefixtures("no_pictures")
def test_finished_runs_are_not_repeated_and_new_values_are_added(finished: Path) -> None:
    before = (finished / "runs/local_lr=0.1+seed=0/summary.json").stat().st_mtime_ns
    heard = Heard()
    result = swept(finished, heard, grid={"local_lr": [0.1, 0.2]}, seeds=1)
    assert heard.names == ["local_lr=0.2+seed=0"]
    assert (finished / "runs/local_lr=0.1+seed=0/summary.json").stat().st_mtime_ns == before
    assert [line.state for line in result.table.lines] == ["finished"] * 2


@pytest.mark.usefixtures("no_pictures")
def test_another_base_is_refused_before_anything_starts(finished: Path) -> None:
    heard = Heard()
    with pytest.raises(RunFolderError, match="was started with scheme.clip_norm = 0.5"):
        swept(finished, heard, scheme=BASE["scheme"] | {"clip_norm": 0.7}, grid={"local_lr": [0.1]})
    assert not heard.names


@pytest.mark.usefixtures("no_pictures")
def test_a_sweep_goes_on_where_it_was_interrupted(tmp_path: Path, finished: Path) -> None:
    axes: dict[str, Any] = {"grid": {"local_lr": [0.1, 0.5]}, "seeds": 1}
    with pytest.raises(KeyboardInterrupt):
        swept(tmp_path, Heard(("local_lr=0.5+seed=0", 1)), **axes)
    assert "not run" not in (tmp_path / "table.md").read_text()
    assert "local_lr=0.5+seed=0: unfinished" in (tmp_path / "table.md").read_text()
    heard = Heard()
    swept(tmp_path, heard, **axes)
    assert heard.names == ["local_lr=0.5+seed=0"] and heard.finished_before == {"local_lr=0.5+seed=0": 1}
    same_run(tmp_path / "runs/local_lr=0.5+seed=0", finished / "runs/local_lr=0.5+seed=0")


@pytest.mark.usefixtures("no_pictures")
def test_a_failed_run_does_not_end_the_others_and_the_exit_code_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    settle = jobs.settle

    def broken(config: Any, **options: Any) -> Any:
        if config.scheme.options["local_lr"] == 0.1:
            raise RuntimeError("out of memory\nat some place")
        return settle(config, **options)

    monkeypatch.setattr(jobs, "settle", broken)
    (tmp_path / "grid.toml").write_text(Grid.from_dict(BASE | {"grid": {"local_lr": [0.1, 0.5]}}).to_toml())
    ended = call(capsys, "sweep", tmp_path / "grid.toml", "--out", tmp_path / "out")
    assert ended.code == 6 and "1 of 2 runs failed: local_lr=0.1+seed=0 (RuntimeError: out of memory)" in ended.err
    assert "0.1     0 of 1" in ended.out and "0.5     1" in ended.out
    assert "at some place" in json.loads((tmp_path / "out/failures.json").read_text())["local_lr=0.1+seed=0"]["trace"]
    monkeypatch.setattr(jobs, "settle", settle)
    ended = call(capsys, "sweep", tmp_path / "out", "--json")
    assert ended.code == 0 and [run["state"] for run in ended.json["runs"]] == ["finished"] * 2


def test_a_dry_run_lists_runs_with_their_costs_and_writes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("some.toml").write_text(Grid.from_dict(BASE | {"grid": {"noise_multiplier": [1.0, 4.0]}}).to_toml())
    ended = call(capsys, "sweep", "some.toml", "--dry-run")
    assert ended.code == 0 and "2 runs in sweeps/some" in ended.out
    assert "noise_multiplier = 4: σ = 4, ε = 0." in ended.out and "kB up" in ended.out
    assert not Path("sweeps").exists()


def test_the_table_is_made_again_with_another_metric(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ended = call(capsys, "sweep", finished, "--table", "--metric", "loss", "--against", "local_lr")
    assert ended.code == 0 and "loss" in ended.out and "Smaller is better" in ended.out
    for wrong, said in (("--metric", "unknown metric 'nonsense'"), ("--against", "unknown axis 'nonsense'")):
        ended = call(capsys, "sweep", finished, "--table", wrong, "nonsense")
        assert ended.code == 2 and said in ended.err


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["not-there.toml"], 2, "cannot read"),
        (["."], 5, "holds no sweep"),
        (["grid.toml", "--table", "--out", "nothing"], 5, "holds no sweep"),
        (["grid.toml", "--on", "moon"], 2, "use local or ray"),
        (["grid.toml", "--on", "ray", "--side-by-side"], 2, "leave it out"),
        (["grid.toml", "--jobs", "0"], 2, "--jobs"),
        (["grid.toml", "--set", "local_lr=3"], 2, "it is an axis of the grid"),
        (["grid.toml", "--out", "."], 5, "not the folder of a sweep and not empty"),
    ],
)
def test_a_command_that_cannot_work_says_why(
    arguments: list[str],
    code: int,
    said: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "grid.toml").write_text(Grid.from_dict(BASE | {"grid": {"local_lr": [0.1]}}).to_toml())
    if arguments in (["."], ["grid.toml", "--out", "."]):
        (tmp_path / "something.txt").touch()
        (tmp_path / "grid.toml").rename(tmp_path / "my.toml")
        arguments = ["my.toml" if word == "grid.toml" else word for word in arguments]
    ended = call(capsys, "sweep", *arguments)
    assert ended.code == code and said in ended.err and "Traceback" not in ended.err


def test_without_ray_the_error_says_how_to_install_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from laconic.sweeps import workers

    monkeypatch.setattr(workers.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"--on ray needs ray: pip install '.\[ray\]'"):
        laconic.sweep(BASE, tmp_path / "out", on="ray")
    assert not (tmp_path / "out").exists()
