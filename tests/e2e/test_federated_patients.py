"""Patients of five hospitals in a federation of real processes: the bits of the simulator, and what every log says."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from e2e_tools import COMMAND, charges, rounds
from process_tools import SEED, kill, laconic, started, wait_for_rounds, wait_until_gone, write_config

pytest.importorskip("flwr", reason="flwr is not installed: pip install '.[flower]'")
from safetensors.torch import load_file

from laconic.clients import secure_sums
from laconic.clients.simulated import SimulatedClients
from laconic.federation.entropy import TEST_SEED
from laconic.federation.node.lifetime import logged_costs, spent
from laconic.guard.folder import NodeFolder
from laconic.guard.transcript import UPLOADED
from laconic.privacy.accounting.releases import CLIENT, PATIENT
from laconic.runner.outcome import RunResult
from laconic.runner.run import Run
from laconic.secagg.foretell import Vanishes
from laconic.settings.build import settle
from laconic.settings.config import RunConfig, read_toml
from laconic.streams import Streams

pytestmark = pytest.mark.e2e

HOSPITALS = 5
DELTA = 1e-5


def write_hospitals(path: Path, patients: int = 300) -> None:
    """One table: patients with one to four rows, at one of five hospitals; whoever has much of x0 and x1 is ill."""
    rng = np.random.default_rng(7)
    with path.open("w", newline="") as stream:
        table = csv.writer(stream)
        table.writerow(["hospital", "person", *(f"x{n}" for n in range(8)), "ill"])
        for person in range(patients):
            own = rng.normal(size=8)
            for _ in range(rng.integers(1, 5)):
                row = (own + 0.3 * rng.normal(size=8)).clip(-3, 3)
                ill = int(rng.random() < 1 / (1 + np.exp(-2 * (row[0] + row[1]))))
                table.writerow([f"h{person % HOSPITALS}", f"p{person}", *np.round(row, 4).tolist(), ill])


def config_of(path: Path, **changes: Any) -> Path:
    write_hospitals(path / "patients.csv")
    given = {
        "data.dataset": str(path / "patients.csv"),
        "data.client_column": "hospital",
        "data.patient_column": "person",
        "data.target": "ill",
        "data.classes": "well,ill",
        "data.num_clients": None,
        "federation.nodes": HOSPITALS,
        "scheme.name": "fl-std-dp",
        "scheme.unit": "patient",
        "scheme.num_units": 240.0,
        "scheme.unit_rate": 0.8,
        "scheme.clip_norm": 1.0,
        "scheme.noise_multiplier": 8.0,
        "scheme.server_lr": 2.0,
        "scheme.momentum": 0.5,
        "privacy.delta": DELTA,
    }
    return write_config(path / "config.toml", **given | changes)


def simulated(config: Path, missing: dict[int, list[int]]) -> RunResult:
    """The same run in this process; in these rounds these hospitals do not come."""
    settled = settle(RunConfig.from_dict(read_toml(config)))
    experiment = replace(settled.experiment, noise_draws="per-client")
    clients = SimulatedClients(experiment)
    clients.streams = Streams(experiment.seed)  # under a test's seed, nodes name their noise by it alone
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            secure_sums,
            "vanishing_clients",
            lambda plan, streams, **options: dict.fromkeys(missing.get(plan.round, []), Vanishes.BEFORE_UPLOAD),
        )
        return Run(experiment, clients=clients).run()


def compared(folder: Path, config: Path, summary: dict[str, Any], missing: dict[int, list[int]]) -> None:
    """Weights, metrics, charges and statement are those of the simulator; the nodes' logs say the same ε."""
    near = simulated(config, missing)
    ours, theirs = load_file(folder / "model.safetensors"), near.model.state_dict()
    assert ours.keys() == theirs.keys() and all(torch.equal(ours[name], theirs[name]) for name in ours)
    history = rounds(folder)
    assert [row["accuracy"] for row in history] == [row["accuracy"] for row in near.history]
    assert [row["messages_up"] for row in history] == [row["messages_up"] for row in near.history]
    assert charges(folder) == {(number, 0): list(range(HOSPITALS)) for number in range(1, len(history) + 1)}
    statement = summary["statement"]
    for field in ("unit", "adjacency", "released", "participant", "delta"):
        assert statement[field] == json.loads(json.dumps(near.statement[field])), field
    assert statement["released"]["epsilon"] == statement["participant"]["epsilon"]
    assert "one patient with all records at one client" in statement["unit"]
    assert "a whole client has nothing: no ε holds for all its data together" in statement["not_covered"]
    for number in range(HOSPITALS):
        rows = NodeFolder(folder / f"federation/node-{number}/folder").log.rows()
        uploads = [row for row in rows if row["what"] == UPLOADED]
        away = [round for round, clients in missing.items() if number in clients]
        assert [row["round"] for row in uploads] == [r for r in range(1, len(history) + 1) if r not in away]
        assert {row["unit"] for row in uploads} == {PATIENT}
        whole, logged = statement["participant"]["epsilon"]["pld"], uploads[-1]["participant_epsilon"]
        costs = logged_costs(rows).values()
        figure = spent(costs, DELTA, PATIENT).participant_epsilon
        assert figure < whole if away else figure == pytest.approx(whole, rel=2e-2)  # of δ, slack reserves a hundredth
        assert figure <= logged < 1.25 * figure  # the guard's is a bound in closed form
        assert spent(costs, DELTA, CLIENT).epsilon == float("inf")


def test_patients_of_five_hospitals_have_the_bits_and_the_ledger_of_the_simulator(tmp_path: Path) -> None:
    config = config_of(tmp_path)
    far = laconic("federate", str(config), "--out", "run", "--json", cwd=tmp_path, seed=True)
    assert far.returncode == 0, far.stderr
    compared(tmp_path / "run", config, json.loads(far.stdout), {})
    policy = (tmp_path / "run/federation/node-0/policy.toml").read_text()
    assert "max_patient_epsilon" in policy and 'secure_aggregation = "required"' in policy
    wait_until_gone(tmp_path)


@pytest.mark.slow
def test_forty_rounds_with_a_hospital_that_was_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One node's process is killed without warning and started again: it misses a round, and nothing else differs."""
    monkeypatch.setenv(TEST_SEED, str(SEED))
    config = config_of(tmp_path, run__rounds=40, sampler__max_dropouts=1)
    folder = tmp_path / "run"
    with started([*COMMAND, "federate", str(config), "--out", "run", "--json"], tmp_path) as running:
        wait_for_rounds(folder, 12)
        kill("laconic.federation.trial.node", str(folder / "federation/node-2"))
        out, told = running.communicate(timeout=1500)
    assert running.returncode == 0, told
    assert "node 2 ended (signal 9) and is started again" in told
    history = rounds(folder)
    assert len(history) == 40 and not any("discarded" in row for row in history)
    short = [row["round"] for row in history if row["messages_up"] < HOSPITALS]
    assert 1 <= len(short) <= 2 and min(short) > 12
    compared(folder, config, json.loads(out), {round: [2] for round in short})
    wait_until_gone(tmp_path)
