"""A federation whose nodes are at the end of a bad line."""

from __future__ import annotations

from pathlib import Path

import pytest
from lossy_line import HERE, LossyLine, missing

pytest.importorskip("flwr", reason="flwr is not installed: pip install '.[flower]'")

from laconic.federation.server.members import resolve_federated
from laconic.federation.trial import processes
from laconic.federation.trial.processes import Processes
from laconic.federation.trial.trial import Supervisor, Trial, trial_policy
from laconic.settings.config import RunConfig
from laconic.store.folder import RunFolder

pytestmark = [pytest.mark.e2e, pytest.mark.slow]
NODES, ROUNDS = 3, 3
CONFIG = {
    "scheme.name": "fl-std-dp",
    "scheme.clip_norm": 0.5,
    "scheme.noise_multiplier": 1.0,
    "run.rounds": ROUNDS,
    "run.threads": 1,
    "run.device": "cpu",
    "data.dataset": "synthetic",
    "data.num_clients": NODES,
    "sampler.sampling_rate": 1.0,
    "federation.nodes": NODES,
    "federation.join_timeout": 240.0,
    "federation.round_timeout": 240.0,
    "federation.spare_rounds": 0,
}


@pytest.mark.skipif(bool(missing()), reason=missing())
def test_a_run_finishes_over_a_line_with_delay_and_loss(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The nodes are on another host: 50 ms away in each direction, with 5 % of the packets lost. No round is lost."""
    config = RunConfig().with_values(CONFIG)
    experiment = resolve_federated(config).experiment
    folder = RunFolder(tmp_path / "run")
    folder.make()
    told: list[str] = []
    with LossyLine(delay=0.05, loss=0.05) as line, Processes() as some:
        put_nodes_there(line, tmp_path, monkeypatch)
        trial = Trial(folder.path / "federation", NODES, some, host=HERE)
        trial.write_policies({}, trial_policy(experiment, trial.server_name(), spare_rounds=0))
        trial.start(config)
        summary = Supervisor(trial, folder, on_row=lambda row: None, on_notice=told.append).run(config)
    assert (summary["stop_reason"], summary["rounds"], summary["discarded"]) == ("rounds", ROUNDS, [])
    assert summary["statement"]["released"]["rounds_charged"] == ROUNDS
    assert told == []
    assert line.lost > 0.02 * line.passed > 0


def put_nodes_there(line: LossyLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever belongs to a node is started on the other host."""
    found = processes.program

    def program(name: str) -> str:
        if name == "flower-superlink" or name == "flwr":
            return found(name)
        wrapper = tmp_path / name
        wrapper.write_text(f'#!/bin/sh\nexec {" ".join(line.there(found(name)))} "$@"\n')
        wrapper.chmod(0o755)
        return str(wrapper)

    monkeypatch.setattr(processes, "program", program)
