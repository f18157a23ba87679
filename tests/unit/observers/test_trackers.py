"""`--track`: only released values leave, the run goes on if a tool fails, and the real libraries take what they get."""

from __future__ import annotations

import json
import logging
import os
import re
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner
from torch import nn

import laconic
from laconic.cli.main import cli
from laconic.errors import ConfigError
from laconic.figures import at_most
from laconic.observers.observer import Started
from laconic.observers.tracker import MEMORY, Tracker, released_settings, tracker
from laconic.schemes import fl_std, fl_std_dp
from laconic.settings.build import tracked
from laconic.settings.config import RunConfig

TRAIN: dict[str, Any] = {"local_lr": 0.5, "local_steps": 2}
SEED = 918273645


def some_records(count: int) -> tuple[torch.Tensor, torch.Tensor]:
    inputs = torch.randn(count, 4, generator=torch.Generator().manual_seed(count))
    return inputs, (inputs.sum(1) > 0).long()


COMMON: dict[str, Any] = {
    "model": nn.Linear(4, 2),
    "clients": [some_records(10) for _ in range(20)],
    "test": some_records(50),
    "holdout": some_records(40),
    "sampler": laconic.FixedSize(cohort_size=10),  # whose ε is quick
    "rounds": 3,
}
PRIVATE: dict[str, Any] = {"delta": 1e-5, "seed": SEED}


class Heard(Tracker):
    """A tool that only remembers what it is handed."""

    name = "heard"

    def __init__(self) -> None:
        super().__init__({"data.dataset": "/home/somebody/secret.csv", "model.name": "logistic"})
        self.opened: list[dict[str, Any]] = []
        self.rows: list[tuple[int, dict[str, float]]] = []
        self.files: dict[str, str] = {}
        self.times: list[float] = []
        self.closed: list[str] = []

    def open(self, run: Started, parameters: dict[str, Any], known: dict[str, Any]) -> dict[str, Any]:
        self.opened.append({"parameters": parameters, "known": known, "fingerprint": run.fingerprint})
        return {"id": "abc"}

    def log(self, step: int, values: dict[str, float]) -> None:
        self.rows.append((step, values))
        self.times.append(self.clock(step))

    def keep(self, file: Path) -> None:
        self.files[file.name] = file.read_text(encoding="utf-8")

    def close(self, status: str) -> None:
        self.closed.append(status)

    @property
    def everything(self) -> str:
        told = json.dumps([self.opened, self.rows, self.closed], ensure_ascii=False)
        return "\n".join([told, *self.files.values()])


def private_run(heard: Any, out: Path | None) -> laconic.RunResult:
    scheme = fl_std_dp(clip_norm=0.5, noise_multiplier=3.0, **TRAIN)
    return laconic.run(scheme, observer=heard, out=out, **PRIVATE, **COMMON)


def leaks(text: str, result: laconic.RunResult, out: Path) -> list[str]:
    """What of a private run is in there that only the server may know."""
    found = [name for name in ("cohort", "bytes_up", "participations", "participant", "seconds") if f'"{name}"' in text]
    found += ["the server's ε"] * (at_most(result.last["participant_epsilon"]) in text)
    found += ["the seed"] * (str(SEED) in text)
    found += ["a path"] * (str(out) in text or "/home/" in text or "secret.csv" in text)
    found += ["the host"] * bool(re.search(rf"\b{re.escape(socket.gethostname())}\b", text))
    found += ["bytes in all"] * (" in all" in text)
    return found


def test_only_released_values_of_a_private_run_leave(tmp_path: Path) -> None:
    heard = Heard()
    result = private_run(heard, tmp_path / "run")
    assert leaks(heard.everything, result, tmp_path) == []
    allowed = {"loss", "accuracy", "balanced_accuracy", "auroc", "epsilon"}
    assert all(set(values) <= allowed | {f"holdout_{name}" for name in allowed} for _, values in heard.rows)
    assert [step for step, _ in heard.rows] == [1, 2, 3]
    assert [values["accuracy"] for _, values in heard.rows] == [row["accuracy"] for row in result.history]
    assert heard.rows[-1][1]["epsilon"] == result.history[-1]["epsilon"]
    assert set(heard.files) == {"statement.json", "report.md"} and heard.closed == ["finished"]
    statement = json.loads(heard.files["statement.json"])
    assert statement["released"] == result.statement["released"] and "participant" not in statement
    assert at_most(result.last["epsilon"]) in heard.files["report.md"]
    assert heard.opened[0]["parameters"]["scheme.clip.clip_norm"] == 0.5
    assert "data.dataset" not in heard.opened[0]["parameters"]
    assert [b - a for a, b in zip(heard.times, heard.times[1:], strict=False)] == [1.0, 1.0]


@pytest.mark.parametrize("private", [True, False])
def test_where_others_see_when_a_row_arrives_those_of_a_private_run_come_at_its_end(private: bool) -> None:
    class Elsewhere(Heard):
        shows_arrival = True
        early = 0

        def row(self, row: dict[str, Any]) -> None:
            super().row(row)
            self.early = len(self.rows)

    heard = Elsewhere()
    if private:
        private_run(heard, None)
    else:
        laconic.run(fl_std(**TRAIN), observer=heard, **COMMON)
    assert heard.early == (0 if private else 3)
    assert [step for step, _ in heard.rows] == [1, 2, 3] and heard.closed == ["finished"]


def test_no_row_has_a_smaller_epsilon_than_the_statement_where_held_out_records_may_end_the_run() -> None:
    heard = Heard()
    scheme = fl_std_dp(clip_norm=0.5, noise_multiplier=3.0, **TRAIN)
    result = laconic.run(scheme, observer=heard, patience=5, **PRIVATE, **COMMON)
    assert result.history[0]["epsilon"] < result.last["epsilon"]
    told = [(step, values["epsilon"]) for step, values in heard.rows if "epsilon" in values]
    assert told == [(3, result.last["epsilon"])]
    assert [step for step, values in heard.rows if "accuracy" in values] == [1, 2, 3]


class Careless(Heard):
    """What the test above must notice: a tracker that hands over rows and statement as they are."""

    def row(self, row: dict[str, Any]) -> None:
        self.log(row["round"], row)

    def _files(self, summary: dict[str, Any], folder: Path) -> list[Path]:
        (folder / "statement.json").write_text(json.dumps(summary["statement"], ensure_ascii=False), encoding="utf-8")
        return [folder / "statement.json"]


def test_a_careless_tracker_would_be_noticed(tmp_path: Path) -> None:
    careless = Careless()
    result = private_run(careless, None)
    found = leaks(careless.everything, result, tmp_path)
    assert {"cohort", "bytes_up", "participant", "the server's ε", "the seed"} <= set(found)


def test_values_per_client_and_training_losses_have_no_way_out() -> None:
    from laconic.privacy.released import released_row

    row = {"round": 1, "loss": 0.5, "train_loss": 0.1, "auroc_by_client": [0.1, 0.9], "cohort": 7, "host": "node1"}
    assert released_row(row, private=True) == {"round": 1, "loss": 0.5}
    assert released_row(row, private=False) == {"round": 1, "loss": 0.5, "cohort": 7}


def test_without_privacy_traffic_and_the_whole_report_are_handed_over(tmp_path: Path) -> None:
    heard = Heard()
    laconic.run(fl_std(**TRAIN), observer=heard, out=tmp_path / "run", seed=SEED, **COMMON)
    assert heard.rows[0][1]["cohort"] > 0 and heard.rows[0][1]["bytes_up"] > 0
    assert "report.html" in heard.files
    assert heard.opened[0]["parameters"]["run.seed"] == SEED


def test_the_report_that_is_handed_over_names_no_file_of_the_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard = Heard()
    monkeypatch.setattr("laconic.settings.build.tracker", lambda name, about: heard)
    table = tmp_path / "of dr <x>" / "patients.csv"
    table.parent.mkdir()
    rows = [f"{n % 7},{n % 5},site{n % 4},{n % 2}" for n in range(80)]
    table.write_text("\n".join(["a,b,site,y", *rows]))
    words = ["fl-std", "--dataset", str(table), "--client-column", "site", "--target", "y", "--rounds", "1"]
    words += ["--sampling-rate", "1", "--local-lr", "0.1", "--local-steps", "1", "--out", str(tmp_path / "run")]
    CliRunner().invoke(cli, ["run", *words, "--track", "mlflow"], catch_exceptions=False)
    assert "patients.csv" in (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    assert "report.html" in heard.files and "accuracy" in heard.files["report.html"]
    assert "patients" not in heard.everything and str(tmp_path) not in heard.everything


def test_no_text_that_could_be_a_path_is_a_parameter() -> None:
    given = {"a": "/etc/passwd", "b": "C:\\data", "c": "fl-std", "d": 1, "e": "https://x.org", "run.seed": 3}
    assert released_settings(given, private=True) == {"c": "fl-std", "d": 1}
    assert released_settings(given, private=False) == {"c": "fl-std", "d": 1, "run.seed": 3}


def test_a_resumed_run_goes_on_under_the_same_name(tmp_path: Path) -> None:
    class Stopping(Heard):
        def row(self, row: dict[str, Any]) -> None:
            super().row(row)
            raise KeyboardInterrupt

    first = Stopping()
    with pytest.raises(KeyboardInterrupt):
        laconic.run(fl_std(**TRAIN), observer=first, out=tmp_path / "run", **COMMON)
    assert first.closed == ["interrupted"] and first.opened[0]["known"] == {}
    assert json.loads((tmp_path / "run" / MEMORY).read_text()) == {"heard": {"id": "abc"}}
    again = Heard()
    laconic.run(fl_std(**TRAIN), observer=again, out=tmp_path / "run", resume=True, **COMMON)
    assert again.opened[0]["known"] == {"id": "abc"}
    assert [step for step, _ in again.rows] == [2, 3]


def test_a_tool_that_fails_does_not_end_the_run(caplog: pytest.LogCaptureFixture) -> None:
    class Failing(Heard):
        def log(self, step: int, values: dict[str, float]) -> None:
            raise OSError("no connection")

    failing = Failing()
    with caplog.at_level(logging.WARNING, logger="laconic"):
        assert laconic.run(fl_std(**TRAIN), observer=failing, **COMMON).last["round"] == 3
    assert caplog.text.count("heard fails, and the run goes on without it: OSError: no connection") == 1


def test_an_unknown_tool_gets_a_suggestion_and_a_missing_one_the_way_to_install_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(ConfigError, match="did you mean 'mlflow'"):
        laconic.run(fl_std(**TRAIN), track="mflow", **COMMON)
    monkeypatch.setitem(sys.modules, "wandb", None)
    monkeypatch.delitem(sys.modules, "laconic.observers.to_wandb", raising=False)
    with pytest.raises(ConfigError, match=r"--track wandb needs wandb: pip install '\.\[wandb\]'"):
        tracker("wandb")


def test_the_command_line_names_data_and_model_only_if_they_have_names(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Any] = []
    monkeypatch.setattr("laconic.settings.build.tracker", lambda name, about: told.append((name, about)))
    config = RunConfig().with_values({"run.track": "mlflow", "model.name": "cnn"})
    tracked(config)
    tracked(config.with_values({"data.dataset": "/home/somebody/table.csv", "model.name": "my_module:net"}))
    assert told == [
        ("mlflow", {"data.dataset": "digits", "model.name": "cnn"}),
        ("mlflow", {"data.dataset": "own data", "model.name": "own model"}),
    ]


# The real libraries, with local stores.


def test_tensorboard_reads_the_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reader = pytest.importorskip(
        "tensorboard.backend.event_processing.event_accumulator", reason="tensorboard is not installed"
    )
    scheme = fl_std_dp(clip_norm=0.5, noise_multiplier=3.0, **TRAIN)
    common = {"track": "tensorboard", "out": tmp_path / "run", **PRIVATE, **COMMON}
    first = laconic.run(scheme, **common | {"rounds": 2})
    result = laconic.run(scheme, resume=True, **common)
    files = list((tmp_path / "run" / "tensorboard").iterdir())
    assert len(files) == 2 and not any(re.search(rf"\b{socket.gethostname()}\b", file.name) for file in files)
    found = reader.EventAccumulator(str(tmp_path / "run" / "tensorboard"))
    found.Reload()
    scalars = found.Scalars("accuracy")
    assert [event.step for event in scalars] == [1, 2, 3]
    assert scalars[-1].value == pytest.approx(result.history[-1]["accuracy"])
    assert {"settings", "fingerprint", "statement.json", "report.md"} <= set(found.Tags()["tensors"])
    assert first.last["round"] == 2
    content = b"".join(file.read_bytes() for file in files).decode("utf-8", "replace")
    assert leaks(content, result, tmp_path) == []


@pytest.mark.filterwarnings("default")
def test_mlflow_has_the_run_in_a_local_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mlflow = pytest.importorskip("mlflow", reason="mlflow is not installed")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    scheme = fl_std_dp(clip_norm=0.5, noise_multiplier=3.0, **TRAIN)
    common = {"track": "mlflow", "out": tmp_path / "run", **PRIVATE, **COMMON}
    laconic.run(scheme, **common | {"rounds": 2})
    result = laconic.run(scheme, resume=True, **common)
    client = mlflow.MlflowClient("sqlite:///mlflow.db")
    experiment = client.get_experiment_by_name("laconic")
    (run,) = client.search_runs([experiment.experiment_id])
    assert run.info.status == "FINISHED"
    last = client.get_metric_history(run.info.run_id, "accuracy")[-1]
    assert run.info.end_time == last.timestamp  # how long a round took stays
    assert run.data.tags["fingerprint"] == client.get_run(run.info.run_id).data.tags["fingerprint"]
    assert not {"mlflow.user", "mlflow.source.name"} & set(run.data.tags)
    assert run.data.params["scheme.clip.clip_norm"] == "0.5" and "run.seed" not in run.data.params
    accuracy = client.get_metric_history(run.info.run_id, "accuracy")
    assert sorted(metric.step for metric in accuracy) == [1, 2, 3]
    files = {file.path for file in client.list_artifacts(run.info.run_id)}
    assert {"statement.json", "report.md"} <= files
    told = json.dumps([run.data.params, run.data.tags, run.data.metrics])
    assert leaks(told, result, tmp_path) == []


@pytest.mark.filterwarnings("default")
def test_wandb_writes_a_run_offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wandb = pytest.importorskip("wandb", reason="wandb is not installed")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("WANDB_MODE", raising=False)
    scheme = fl_std_dp(clip_norm=0.5, noise_multiplier=3.0, **TRAIN)
    result = laconic.run(scheme, track="wandb", out=tmp_path / "run", **PRIVATE, **COMMON)
    wandb.teardown()  # its own process writes the file, and is waited for at the end of this one
    (folder,) = (tmp_path / "run" / "wandb").glob("offline-run-*")
    (file,) = folder.glob("*.wandb")
    content = file.read_bytes().decode("utf-8", "replace")
    assert "scheme.clip.clip_norm" in content and "auroc" in content
    files = {file.name: file.read_text(encoding="utf-8") for file in (folder / "files").iterdir()}
    assert {"statement.json", "report.md"} <= set(files)
    assert leaks("\n".join([content, *files.values()]), result, Path("/home")) == []


SCRIPT = """
import sys, time
import torch
import laconic

clients = [(torch.randn(10, 4), torch.randint(0, 2, (10,))) for _ in range(5)]
scheme = laconic.schemes.fl_std(local_lr=0.1, local_steps=1)
tool = sys.argv[1]
laconic.run(scheme, model=torch.nn.Linear(4, 2), clients=clients, sampling_rate=1.0, rounds=1, track=tool, out="run")
if tool == "wandb":
    import wandb
    wandb.teardown()
time.sleep(float(sys.argv[2]))
"""


def requests_of(tool: str, folder: Path, seconds: float, **environment: str) -> list[bytes]:
    """What a process that tracks a run asks of the network: every request goes to a proxy of ours."""
    seen: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    with server.accept()[0] as connection:
                        connection.settimeout(1)
                        seen.append(connection.recv(200))
                except OSError:
                    return

        threading.Thread(target=serve, daemon=True).start()
        proxy = f"http://127.0.0.1:{server.getsockname()[1]}"
        names = ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy", "ALL_PROXY")
        left_out = {*names, "NO_PROXY", "no_proxy", "CI", "PYTEST_CURRENT_TEST", "WANDB_MODE", "MLFLOW_TRACKING_URI"}
        kept = {name: value for name, value in os.environ.items() if name not in left_out}
        kept |= dict.fromkeys(names, proxy) | environment
        words = [sys.executable, "-c", SCRIPT, tool, str(seconds)]
        subprocess.run(words, cwd=folder, env=kept, check=True, capture_output=True, timeout=120)
    return seen


@pytest.mark.parametrize("tool", ["tensorboard", "mlflow", "wandb"])
def test_nothing_is_sent_anywhere_unless_the_user_says_so(tool: str, tmp_path: Path) -> None:
    pytest.importorskip(tool, reason=f"{tool} is not installed")
    assert requests_of(tool, tmp_path, 2.0) == []


def test_a_request_would_be_noticed(tmp_path: Path) -> None:
    pytest.importorskip("mlflow", reason="mlflow is not installed")
    seen = requests_of("mlflow", tmp_path, 4.0, MLFLOW_DISABLE_TELEMETRY="false")
    assert any(b"telemetry" in request for request in seen)


def test_only_a_store_of_this_machine_gets_rows_at_once() -> None:
    pytest.importorskip("mlflow", reason="mlflow is not installed")
    from laconic.observers.to_mlflow import _here

    assert all(map(_here, ("sqlite:///mlflow.db", "file:///tmp/runs", "./mlruns", "mlruns")))
    assert not any(
        map(_here, ("http://mlflow:5000", "https://x.org", "databricks", "databricks://team", "postgresql://h/d"))
    )
