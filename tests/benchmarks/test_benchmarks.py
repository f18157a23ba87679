"""The benchmark harness: contenders take turns, do the work they are asked for, and the report is what was measured."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from benchmarks import all_cnn_step, decoding, integer_accuracy, own_networks, own_rounds, workload
from benchmarks.__main__ import main
from benchmarks.aims import check
from benchmarks.contest import Process, Unavailable, contest, interleaved
from benchmarks.processes import _born, family
from benchmarks.report import PAGE, figure, page
from benchmarks.report import main as report
from laconic.codecs.dct import dct, dct_adjoint
from laconic.models.networks import cnn
from laconic.train.flat import trainable_size


class Scripted:
    """A contender that notes its turns in a shared log."""

    def __init__(self, name: str, log: list[str], seconds: list[float], fails: bool = False) -> None:
        self.name, self.group, self._log, self._seconds, self._fails = name, "g", log, iter(seconds), fails

    def start(self) -> None:
        self._log.append(f"start {self.name}")

    def measure(self, count: int) -> dict[str, Any]:
        if self._fails:
            raise Unavailable("broken")
        self._log.append(self.name)
        return {"seconds": next(self._seconds), "peak_mb": 1.0}

    def stop(self) -> None:
        self._log.append(f"stop {self.name}")


def test_contenders_take_turns_and_a_broken_one_is_left_out() -> None:
    log: list[str] = []
    contenders = [Scripted("a", log, [1, 2, 9]), Scripted("b", log, [], fails=True), Scripted("c", log, [3, 3, 3])]
    result = contest(contenders, repeats=3)
    assert log == ["start a", "start b", "start c", *["a", "c"] * 3, "stop a", "stop b", "stop c"]
    assert [(row["name"], row["median"]) for row in result["contenders"]] == [("a", 2), ("c", 3)]
    assert result["skipped"] == {"b": "broken"}


def test_all_are_stopped_when_the_harness_is_interrupted() -> None:
    log: list[str] = []

    class Interrupting(Scripted):
        def measure(self, count: int) -> dict[str, Any]:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interleaved([Scripted("a", log, [1]), Interrupting("b", log, [])], repeats=1)
    assert log[-2:] == ["stop a", "stop b"]


def scripted_process(body: str) -> Process:
    return Process("p", "g", [sys.executable, "-c", body])


def test_a_process_runs_the_rounds_that_it_is_asked_for(tmp_path: Path) -> None:
    rounds = tmp_path / "rounds"
    body = f"""
import subprocess, sys, time
from benchmarks.pacing import serve
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
def one_round():
    print("chatter")
    time.sleep(0.02)
    open({str(rounds)!r}, "a").write("x")
serve(one_round)
"""
    process = scripted_process(body)
    process.start()
    members = family(process._running.pid)
    answer = process.measure(3)
    process.stop()
    assert len(rounds.read_text()) == 4  # one to warm up
    assert 0.02 <= answer["seconds"] < 5
    assert answer["peak_mb"] > 1
    assert len(members) == 2
    assert _ends(members)


def _ends(members: dict[int, str]) -> bool:
    """Whether a family is gone, or about to be: those who are killed take a moment to go."""
    for _ in range(100):
        if not any(born and _born(pid) == born and not _defunct(pid) for pid, born in members.items()):
            return True
        time.sleep(0.05)
    return False


def _defunct(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def test_a_process_that_fails_says_why() -> None:
    process = scripted_process("raise ValueError('no such thing')")
    with pytest.raises(Unavailable, match="no such thing"):
        process.start()
    process.stop()


def test_a_process_that_says_nothing_is_given_up() -> None:
    process = Process("p", "g", [sys.executable, "-c", "import time; time.sleep(600)"], patience=0.5)
    with pytest.raises(Unavailable, match=r"no answer within 0\.5 s"):
        process.start()
    process.stop()


def test_the_workload_is_the_papers() -> None:
    assert trainable_size(workload.cnn()) == trainable_size(cnn(input_shape=(1, 28, 28), num_classes=10)) == 1_663_370
    for size in (10**4, 10**6):
        assert trainable_size(workload.mlp(size)) == pytest.approx(size, rel=0.05)
    inputs, targets = workload.images(20)
    assert inputs.shape == (20, 1, 28, 28)
    assert inputs.dtype == torch.float32 and targets.dtype == torch.int64


def test_the_decoding_problem_is_laconics() -> None:
    rng = np.random.default_rng(0)
    signal, code = rng.normal(size=(2, decoding.LENGTH)), rng.normal(size=(2, decoding.COUNT))
    assert np.allclose(decoding.forward(signal), dct(torch.from_numpy(signal), decoding.COUNT).numpy())
    assert np.allclose(decoding.adjoint(code), dct_adjoint(torch.from_numpy(code), decoding.LENGTH).numpy())
    loss = ((code - decoding.forward(signal)) ** 2).sum() / 2 + decoding.L1_WEIGHT * np.abs(signal).sum()
    assert decoding.objective(code, signal) == pytest.approx(loss)


def contender(name: str, group: str, *seconds: float, **more: float) -> dict[str, Any]:
    return {"name": name, "group": group, "seconds": list(seconds), "median": float(np.median(seconds)), **more}


@pytest.fixture
def measured() -> dict[str, Any]:
    """Results as the harness writes them, with round numbers."""
    w1 = [
        contender("laconic fl-std-dp, auto", "laconic", 2.0, 2.1, 1.9, peak_mb=900.0),
        contender("laconic fl-std-dp, one-by-one", "laconic", 1.0, 1.0, 1.0, peak_mb=800.0),
        contender("laconic fl-std, auto", "laconic", 2.0, 2.1, 1.9, peak_mb=800.0),
        contender("pfl, 1 process × 2 threads", "pfl", 4.0, 4.0, 4.0, peak_mb=700.0),
        contender("pfl, 2 processes × 1 thread", "pfl", 3.0, 3.0, 3.0, peak_mb=700.0),
        contender("Flower, Ray, 2 actors", "Flower", 7.0, 7.0, 7.0, peak_mb=3000.0),
    ]
    w3 = [
        contender("laconic, 20 iterations", "laconic", 0.3, objective=1.1),
        contender("laconic, 50 iterations", "laconic", 0.8, objective=0.99),
        contender("PyLBFGS OWL-QN, default tolerance, matrix", "PyLBFGS OWL-QN", 6.0, objective=1.0),
    ]
    points = [{"x": 1000, "seconds": 0.2, "peak_mb": 400.0}, {"x": 10**6, "seconds": 0.21, "peak_mb": 550.0}]
    curve = {"axis": "population", "about": "p", "points": points}
    machine = {"cpu": "a CPU", "cores": 2, "threads": 2, "load_before": 0.1, "python": "3", "torch": "2", "numpy": "2"}
    suites = {
        "w1": {"title": "W1", "about": "A.", "ours": "laconic fl-std-dp, auto", "contenders": w1, "skipped": {}},
        "w2": {"title": "W2", "left_out": "it is not there"},
        "w3": {"title": "W3", "about": "C.", "ours": "laconic, 50 iterations", "contenders": w3}
        | {"skipped": {"PyLops": "not installed"}},
        "growth": {"title": "Growth", "about": "G.", "curves": [curve]},
    }
    asked = {"device": "cpu", "quick": False, "repeats": 3}
    return asked | {"machine": machine, "peers": {"pfl": "0.6"}, "suites": suites}


def test_the_aims_take_the_peers_best_setting_and_no_worse_solver(measured: dict[str, Any]) -> None:
    assert [(a.measured, a.met) for a in check(measured)] == [
        ("1.50×", True),  # against pfl's better setting
        ("3.50×", False),
        ("1.50×", True),
        ("3.50×", False),
        ("7.50×", True),  # by 50 iterations: the objective of 20 is worse
        ("900 MB", True),
        ("+150 MB", False),
        ("1.05×", True),
    ]


def test_aims_on_a_gpu_are_milliseconds(measured: dict[str, Any]) -> None:
    row = contender("laconic fl-std, auto", "laconic", 0.0215)
    measured["device"], measured["suites"] = "cuda", {"w1": {"contenders": [row]}}
    assert [(a.measured, a.aim, a.met) for a in check(measured)] == [("21.5 ms", "11 ms or less", False)]


def test_weights_of_ones_own_are_compared_with_shared_ones_on_a_gpu(measured: dict[str, Any]) -> None:
    groups = {"laconic": 0.1, "plain loop": 0.9, "shared weights": 0.08}
    rows = [contender(group, group, seconds) for group, seconds in groups.items()]
    measured["device"], measured["suites"] = "cuda", {name: {"contenders": rows} for name in ("w6", "w7", "w8")}
    assert [(a.measured, a.met) for a in check(measured)] == [
        ("9.00×", False),  # W8 aims at 10
        ("1.25× as long", True),
        ("1.25× as long", True),
    ]


def test_networks_as_users_write_them_are_timed_in_every_way() -> None:
    class Once:
        rounds = 0

        def round_done(self) -> bool:
            self.rounds += 1
            return False

    assert trainable_size(own_networks.resnet()) == 175_258
    assert trainable_size(own_networks.VisionTransformer()) == 142_026
    pacer: Any = Once()
    own_rounds.plain("cnn-lstm of torch", pacer, "cpu", 2, 1, shared=False)
    own_rounds.plain("cnn-lstm of torch", pacer, "cpu", 2, 1, shared=True)
    own_rounds.through_laconic("cnn-lstm of torch", pacer, "cpu", 2, 1)
    assert pacer.rounds == 3


def test_the_report_says_what_was_measured(measured: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "cpu.json").write_text(json.dumps(measured))
    report([str(tmp_path / "cpu.json"), "--out", str(tmp_path / "performance.md")])
    text = (tmp_path / "performance.md").read_text()
    assert "| pfl, 2 processes × 1 thread | 3.00 | 3.00 – 3.00 | 1.50 | 700 |" in text
    assert "| laconic, 50 iterations | 0.800 | 0.800 – 0.800 | 1.00 | 0.9900 |" in text
    assert "| 1,000,000 | 0.210 | 550 |" in text
    assert "Left out: it is not there." in text
    assert "Left out: PyLops (not installed)." in text
    assert (tmp_path / "performance" / "cpu-growth.png").stat().st_size > 5000
    assert "smoke test" not in text
    assert "smoke test" in page({"cpu": measured | {"quick": True}}, "performance")


def test_figures_have_three_digits() -> None:
    assert [figure(v) for v in (1234.5, 21.46, 2.146, 0.2146, 0.00002146, 0)] == [
        *("1,234", "21.5", "2.15", "0.215", "2.15e-05", "0")
    ]


def test_the_page_is_the_one_made_from_the_files_beside_it() -> None:
    files = sorted(PAGE.with_suffix("").glob("*.json"))
    if not files:
        pytest.skip("no results have been committed yet")
    results = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in files}
    assert PAGE.read_text(encoding="utf-8") == page(results, PAGE.stem)
    assert not any(r["quick"] for r in results.values())


def test_every_way_to_convolve_is_timed_and_right(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    all_cnn_step.main(
        ["--clients", "2", "--pictures", "2", "--side", "4", "--repeats", "1", "--json", str(tmp_path / "ways.json")]
    )
    ways = json.loads((tmp_path / "ways.json").read_text())["ways"]
    printed = capsys.readouterr().out
    assert len(ways) == 4 and all(name in printed for name in ways)
    for name, row in ways.items():
        assert row["milliseconds"] > 0
        assert row["error"] < (0.1 if "bfloat16" in name else 1e-5)
    # 281 million multiply-adds forward for a picture (thesis section 8.3.1), three times that with the way back.
    assert all_cnn_step.flops(1, 1, 32) == pytest.approx(6 * 281e6, rel=0.005)


def test_quick_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(os.environ, "OMP_NUM_THREADS", "1")
    main(["--quick", "--only", "w1,w2,masks", "--no-peers", "--out", str(tmp_path / "quick.json")])
    results = json.loads((tmp_path / "quick.json").read_text())
    rows = results["suites"]["w1"]["contenders"]
    assert [row["name"] for row in rows] == ["laconic fl-std-dp, auto"]
    assert rows[0]["median"] > 0
    assert "laconic sparse-first" in [row["name"] for row in results["suites"]["w2"]["contenders"]]
    assert results["machine"]["cores"] >= 1
    text = page({"quick": results}, "performance")
    assert "laconic fl-std-dp, auto" in text
    assert [row["checked"] for row in results["suites"]["masks"]["rows"]] == [True, True, True]
    assert "| clients | values | bits | k, c, t | meet, once | masks |" in text
    assert "| 5 | 100 | 4, 5, 4 |" in text


def test_accuracy_on_the_grid(tmp_path: Path) -> None:
    """Rows go to a file as they come, are read back, and become a table; a published row is known for each scheme."""
    runs = [
        integer_accuracy.Run(
            "fl-top-dp", 0.005, noise, seed, 200, 0.8 + seed / 100, 0.82, 0.5, eps, bits, 40, 4e3, 0.02
        )
        for noise, eps, bits in (("continuous", 1.0, 32), ("integer", 1.01, 13))
        for seed in (0, 1)
    ]
    for run in runs:
        integer_accuracy.append(tmp_path / "runs.csv", run)
    assert integer_accuracy.read(tmp_path / "runs.csv") == runs
    text = integer_accuracy.table(runs, "On a machine.")
    assert "| fl-top-dp 0.5 % | 200 | last | 80.50 (80.00, 81.00) | 80.50 (80.00, 81.00) | +0.00 | 1.00 |" in text
    assert "| fl-top-dp 0.5 % | 32 → 13 | 40.0 | 1.0000 → 1.0100 |" in text
    for scheme in integer_accuracy.PUBLISHED:
        assert integer_accuracy.published_row(scheme).settings["scheme"]["noise_multiplier"] == 1.54


def test_an_unknown_part_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--only", "w1,w99"])
    assert "--only w99: choose from w1" in capsys.readouterr().err


def test_the_page_of_clinical_results_is_made_of_the_figures() -> None:
    from benchmarks.clinical import EXPERIMENTS, page

    runs = []
    for experiment in EXPERIMENTS:
        for seed in range(2):
            run = {"name": experiment.name, "seed": seed, "command": experiment.command, "auroc": 0.87 + 0.02 * seed}
            run |= {"balanced_accuracy": 0.8, "bytes_up": 1000.0, "bytes_down": 1000.0, "peak_bytes": 10**9}
            run |= {"rounds": 10, "minutes": 2.0, "cpu_minutes": 1.0}
            if "-dp" in experiment.command:
                run |= {
                    "unit": "client",
                    "accountant": "rdp",
                    "epsilon": 1.0,
                    "participant_epsilon": 3.0,
                    "delta": 1e-5,
                }
            runs.append(run)
    text = page({"machine": {}, "runs": runs})
    assert "| 2 | 0.8800 (0.8700 to 0.8900) |" in text and "1.00 (rdp) / 3.00 per client" in text
    assert "at least 0.88, mean over splits: **holds** (0.8800)" in text
    assert "over 100 times fewer bytes up: **does not hold** (1,000, 1,000)" in text
    assert "reaches 0.88 in 1 of 2 splits (0.8700, 0.8900)" in text
