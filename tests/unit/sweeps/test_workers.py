"""Runs elsewhere, in processes or on Ray: who gets which job, what is heard, and what becomes of a lost one."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from laconic.sweeps import workers
from laconic.sweeps.grid import Grid
from laconic.sweeps.jobs import Job, Watch
from laconic.sweeps.workers import Told, in_processes, pass_on

# A stand-in that loads no torch: it dies of jobs that say so, and fails others.
STAND_IN = """
import json, os, sys
for line in sys.stdin:
    job = json.loads(line)
    name = job["name"]
    if name == "dies":
        os.kill(os.getpid(), 9)
    failure = {"error": "as told", "exit_code": 2} if name == "fails" else None
    row = {"round": 1, "threads": job["threads"]}
    for said in (["started", name, 2, 0], ["row", name, row], ["ended", name, failure]):
        print(json.dumps(said), flush=True)
"""


class Heard(Watch):
    def __init__(self) -> None:
        self.rows: dict[str, dict[str, Any]] = {}
        self.ends: dict[str, str] = {}

    def row(self, name: str, row: dict[str, Any]) -> None:
        self.rows[name] = row

    def ended(self, name: str, failure: dict[str, Any] | None) -> None:
        assert name not in self.ends
        self.ends[name] = "" if failure is None else failure["error"]


def jobs(*names: str) -> list[Job]:
    config = Grid.from_dict({"scheme": {"name": "fl-std"}}).points()[0].config
    return [Job(name, config, Path(name)) for name in names]


def test_a_process_that_dies_fails_its_own_run_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "_WORKER", (sys.executable, "-c", STAND_IN))
    heard = Heard()
    in_processes(jobs("a", "dies", "b", "fails", "c", "d"), heard, count=2, threads=3)
    assert {name for name, end in heard.ends.items() if not end} == {"a", "b", "c", "d"}
    assert heard.ends["fails"] == "as told" and "was killed (SIGKILL)" in heard.ends["dies"]
    assert heard.rows["d"] == {"round": 1, "threads": 3}


def test_every_process_may_die(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "_WORKER", (sys.executable, "-c", "import sys; sys.exit(3)"))
    heard = Heard()
    in_processes(jobs("a", "b", "c"), heard, count=2, threads=1)
    assert all("ended with exit code 3" in heard.ends[name] for name in "abc")


def test_what_a_worker_tells_is_what_the_watch_hears() -> None:
    stream, heard = io.StringIO(), Heard()
    told = Told(stream)
    told.started("a", 3, 1)
    told.note("a", "a caution")
    told.row("a", {"round": 2, "loss": float("nan")})
    told.ended("a", {"error": "ε is spent", "exit_code": 3})
    assert [pass_on(line, heard)[0] for line in stream.getvalue().splitlines()] == ["started", "note", "row", "ended"]
    assert heard.rows == {"a": {"round": 2, "loss": None}} and heard.ends == {"a": "ε is spent"}


def test_a_job_survives_its_way() -> None:
    (job,) = jobs("local_lr=0.1+seed=0")
    assert Job.from_json(job.to_json()) == job


class StandInForRay:
    """As much of Ray as a sweep uses; tasks are done when somebody waits for them, the one called 'lost' never."""

    class exceptions:
        class RayError(Exception):
            pass

        class TaskCancelledError(RayError):
            pass

    def __init__(self) -> None:
        self.wanted: list[dict[str, Any]] = []
        self.most = 0

    def cluster_resources(self) -> dict[str, float]:
        return {"CPU": 2.0}

    def remote(self, **options: Any) -> Any:
        assert options == {"max_retries": 0}, "a run that was lost is gone on with when the user says so"
        return lambda function: self

    def options(self, **wanted: Any) -> Any:
        self.wanted.append(wanted)
        return SimpleNamespace(remote=lambda text, out, grid: text)

    def wait(self, going: list[str], *, num_returns: int) -> tuple[list[str], list[str]]:
        self.most = max(self.most, len(going))
        return going[:num_returns], going[num_returns:]

    def get(self, text: str) -> str:
        name = Job.from_json(text).name
        if name == "lost":
            raise self.exceptions.RayError("the node is gone\nand more")
        return json.dumps({"error": "as told", "exit_code": 2} if name == "fails" else None)


def test_a_machine_of_a_cluster_that_is_lost_fails_its_own_run_only(tmp_path: Path) -> None:
    (tmp_path / "grid.toml").touch()
    ray, heard = StandInForRay(), Heard()
    workers._hand_out(ray, jobs("a", "lost", "fails", "b"), heard, tmp_path, most=2)
    assert (heard.ends["a"], heard.ends["b"], heard.ends["fails"]) == ("", "", "as told")
    assert heard.ends["lost"] == "Ray lost the run (RayError: the node is gone); it can be gone on with"
    assert ray.most == 2 and ray.wanted == [{"num_cpus": 1, "num_gpus": 0}] * 4


def test_a_machine_that_does_not_see_the_folder_says_so(tmp_path: Path) -> None:
    (tmp_path / "grid.toml").write_text("seeds = 1\n")
    (job,) = jobs("a")
    for out, digest in ((tmp_path / "elsewhere", workers.digest_of(b"seeds = 1\n")), (tmp_path, "another grid")):
        said = json.loads(workers.run_job(job.to_json(), str(out), digest))
        assert "choose an --out that all machines share" in said["error"] and said["exit_code"] == 5
