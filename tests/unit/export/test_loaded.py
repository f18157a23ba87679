"""`laconic.load`, and what a result shows of itself."""

from __future__ import annotations

import builtins
import html
import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import laconic
from laconic.errors import ConfigError, RunFolderError
from laconic.figures import at_most
from laconic.runner.outcome import RunResult
from laconic.schemes import fl_std, fl_std_dp

TRAIN: dict[str, Any] = {"local_lr": 0.5, "local_steps": 2}


def some_records(count: int) -> tuple[torch.Tensor, torch.Tensor]:
    inputs = torch.randn(count, 4, generator=torch.Generator().manual_seed(count))
    return inputs, (inputs.sum(1) > 0).long()


MODEL = nn.Linear(4, 2)
COMMON: dict[str, Any] = {
    "model": MODEL,
    "clients": [some_records(10 + n) for n in range(20)],
    "test": some_records(50),
    "sampling_rate": 1.0,
    "rounds": 2,
}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> RunResult:
    scheme = fl_std_dp(clip_norm=0.5, noise_multiplier=3.0, **TRAIN)
    return laconic.run(scheme, delta=1e-5, out=tmp_path_factory.mktemp("runs") / "mine", **COMMON)


def copied(finished: RunResult, to: Path) -> Path:
    import shutil

    assert finished.folder is not None
    shutil.copytree(finished.folder, to)
    return to


def test_a_loaded_run_is_the_one_that_was_made(finished: RunResult) -> None:
    assert finished.folder is not None
    again = laconic.load(finished.folder, model=nn.Linear(4, 2))
    assert torch.equal(again.model.weight, finished.model.weight)  # type: ignore[arg-type]
    assert again.summary() == json.loads(json.dumps(finished.summary()))
    assert again.history == json.loads(json.dumps(finished.history))
    assert repr(again) == repr(finished)


def test_a_run_from_python_without_its_module_has_its_weights(finished: RunResult) -> None:
    assert finished.folder is not None
    again = laconic.load(finished.folder)
    assert torch.equal(again.model.weights["weight"], finished.model.weight)  # type: ignore[index]
    with pytest.raises(ConfigError, match="pass the module as model"):
        again.model(torch.zeros(1, 4))
    with pytest.raises(ConfigError, match="its layers are others"):
        laconic.load(finished.folder, model=nn.Linear(4, 3))


@pytest.mark.parametrize(
    "name",
    [
        "summary.json",
        "privacy.json",
        "model.safetensors",
        "best.safetensors",
        "config.toml",
        "records.toml",
        "rounds.jsonl",
        "charges.jsonl",
        "identity.json",
        "checkpoint/saves.jsonl",
        "checkpoint/state.safetensors",
    ],
)
def test_a_folder_that_was_changed_is_not_loaded(name: str, finished: RunResult, tmp_path: Path) -> None:
    folder = copied(finished, tmp_path / "run")
    laconic.load(folder)
    content = (folder / name).read_bytes()
    place = content.rindex(b"1") if b"1" in content else len(content) - 2
    (folder / name).write_bytes(content[:place] + b"2" + content[place + 1 :])
    with pytest.raises(RunFolderError, match=name.replace(".", r"\.")):
        laconic.load(folder)
    (folder / name).unlink()
    if name != "best.safetensors":  # tables of many runs keep none
        with pytest.raises(RunFolderError):
            laconic.load(folder)


def test_a_run_that_is_not_finished_is_not_loaded(tmp_path: Path) -> None:
    def stop(row: dict[str, Any]) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        laconic.run(fl_std(**TRAIN), out=tmp_path / "run", observer=stop, **COMMON)
    with pytest.raises(RunFolderError, match="not finished.*resume"):
        laconic.load(tmp_path / "run")
    laconic.run(fl_std(**TRAIN), out=tmp_path / "run", resume=True, **COMMON)
    assert laconic.load(tmp_path / "run").last["round"] == 2
    laconic.run(fl_std(**TRAIN), out=tmp_path / "run", resume=True, **COMMON | {"rounds": 3})
    assert laconic.load(tmp_path / "run").last["round"] == 3
    with pytest.raises(RunFolderError, match="holds no run"):
        laconic.load(tmp_path)


def test_a_result_is_a_short_table(finished: RunResult) -> None:
    lines = repr(finished).splitlines()
    assert len(lines) < 12 and max(map(len, lines[:-1])) < 100
    for start in ("scheme       fl-std-dp", "accuracy", "ε, outsider", "ε, server", "bytes", "time", "folder"):
        assert any(line.startswith(start) for line in lines), start
    assert f"{at_most(finished.last['epsilon'])} at δ = 1e-05" in repr(finished)
    plain = laconic.run(fl_std(**TRAIN), **COMMON)
    assert "none: this scheme adds no noise" in repr(plain) and "folder" not in repr(plain)


def test_a_notebook_shows_the_same_escaped(finished: RunResult, tmp_path: Path) -> None:
    from dataclasses import replace

    evil = replace(finished, scheme="<script>alert(1)</script>", folder=Path("<b>&"))
    shown = evil._repr_html_()
    assert "<script>" not in shown and "<b>" not in shown
    assert html.escape("<script>alert(1)</script>") in shown


def test_the_history_is_a_data_frame(finished: RunResult) -> None:
    pytest.importorskip("pandas", reason="pandas is not installed")
    frame = finished.to_pandas()
    assert frame.index.tolist() == [1, 2]
    assert frame["accuracy"].iloc[-1] == finished.history[-1]["accuracy"]


def test_a_result_can_be_plotted(finished: RunResult) -> None:
    pyplot = pytest.importorskip("matplotlib.pyplot", reason="matplotlib is not installed")
    pyplot.switch_backend("Agg")
    for over, label in (
        ("round", "round"),
        ("bytes", "bytes sent up, all clients"),
        ("epsilon", "ε against an outsider"),
    ):
        axes = finished.plot(over=over)
        assert (axes.get_xlabel(), axes.get_ylabel()) == (label, "accuracy")
        assert len(axes.lines[0].get_ydata()) == 2
    assert finished.plot("loss", axes=axes) is axes and len(axes.lines) == 2
    with pytest.raises(ConfigError, match="did you mean 'accuracy'"):
        finished.plot("acuracy")
    with pytest.raises(ConfigError, match="unknown axis"):
        finished.plot(over="time")
    pyplot.close("all")


@pytest.mark.parametrize(("library", "call"), [("matplotlib", "plot"), ("pandas", "to_pandas")])
def test_a_missing_library_is_said_as_such(
    library: str, call: str, finished: RunResult, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == library]:
        monkeypatch.delitem(sys.modules, name)
    real = builtins.__import__

    def without(name: str, *rest: Any) -> Any:
        if name.partition(".")[0] == library:
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ConfigError, match=f"need.* {library}: pip install"):
        getattr(finished, call)()


def test_a_run_of_the_command_line_is_loaded_with_its_model(tmp_path: Path) -> None:
    from laconic.runner.run import Run, run_in
    from laconic.settings.build import files_of, settle
    from laconic.settings.config import RunConfig
    from laconic.store.folder import RunFolder

    settled = settle(RunConfig().with_values({"run.rounds": 1, "data.num_clients": 100, "run.device": "cpu"}))
    with run_in(RunFolder(tmp_path / "run"), Run(settled.experiment), files_of(settled)) as simulation:
        result = simulation.run()
    again = laconic.load(tmp_path / "run")
    inputs = torch.rand(3, *settled.federation.input_shape)
    assert torch.equal(again.model(inputs), result.model.eval()(inputs))


@pytest.mark.parametrize("name", ["preprocessing.toml", "front_end.safetensors", "vocabulary.txt"])
def test_a_file_that_was_put_there_later_is_not_believed(finished: RunResult, name: str, tmp_path: Path) -> None:
    folder = copied(finished, tmp_path / "run")
    (folder / name).write_bytes(b"anything")
    with pytest.raises(RunFolderError, match=f"{name} is not of this run"):
        laconic.load(folder, model=MODEL)
    with pytest.raises(RunFolderError, match=f"{name} is not of this run"):
        laconic.export_run(folder, "card")


def test_weights_of_a_best_round_that_there_was_not_are_not_believed(tmp_path: Path) -> None:
    laconic.run(fl_std(**TRAIN), out=tmp_path / "run", **COMMON | {"test": None})
    assert not (tmp_path / "run" / "best.safetensors").exists()
    content = (tmp_path / "run" / "model.safetensors").read_bytes()
    (tmp_path / "run" / "best.safetensors").write_bytes(content)
    with pytest.raises(RunFolderError, match="best.safetensors is not of this run"):
        laconic.export_run(tmp_path / "run", "torchscript", best=True, model=MODEL)
