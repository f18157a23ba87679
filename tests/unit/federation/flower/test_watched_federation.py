"""A federation that is watched: logs without data in them, and figures that are those of the run."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scrapes import read_scrape

pytest.importorskip("flwr", reason="flwr is not installed: pip install '.[flower]'")

from flower_tools import PRIVATE, SIZES, LocalFederation, config_for

from laconic.data.population import Records
from laconic.errors import DataError
from laconic.federation.entropy import TEST_SEED
from laconic.federation.node.node import Node
from laconic.federation.node.serve.watched import NodeFigures, WatchedNode
from laconic.federation.trial.processes import free_port
from laconic.guard.policy import Policy
from laconic.operations import EventLog

PATIENT = "MRN-4711-77"
MARKS = ("731.9137", "7319137", "0.21474", PATIENT, "4711", "hypertension")
"""Of records, labels and identifiers; as floats of 32 bits print them, and as texts."""


class Marked:
    """Records that can be recognised; node 2 cannot read its own in the second round, and the reason quotes one."""

    def __init__(self) -> None:
        self.reads = 0

    def records(self, client: int) -> Records:
        if client == 2:
            self.reads += 1
            if self.reads > 1:
                raise DataError(f"row 17: patient {PATIENT} has label hypertension, value 731.9137")
        inputs = torch.full((SIZES[client], 6), 0.21474)
        inputs[0] = 731.9137
        return Records(inputs, torch.from_numpy(np.arange(SIZES[client]) % 3))


def run_watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Three rounds, every message of every node through `WatchedNode`, and a scrape after each round."""
    monkeypatch.setenv(TEST_SEED, "3")
    events, counted, answer = EventLog(tmp_path / "nodes.log"), dict[Path, WatchedNode](), Node.answer

    class Plain:
        def __init__(self, node: Node) -> None:
            self.node = node

        def answer(self, kind: str, fields: Any) -> Any:
            return answer(self.node, kind, fields)

    def through(node: Node, kind: str, fields: Any) -> Any:
        one = counted.setdefault(node._folder.path, WatchedNode(Plain(node), events))
        one._node = Plain(node)
        return one.answer(kind, fields)

    monkeypatch.setattr(Node, "answer", through)
    port = free_port()
    config = config_for(
        "fl-std-dp",
        **{name.replace(".", "__"): value for name, value in PRIVATE.items()},
        run__rounds=3,
        sampler__max_dropouts=2,
        federation__metrics_port=port,
        federation__log_file=str(tmp_path / "server.log"),
    )
    federation = LocalFederation(tmp_path / "federation", config)
    federation.population = Marked()  # type: ignore[assignment]
    scrapes: list[str] = []
    monkeypatch.setattr(
        "laconic.federation.flower.server_app._show",
        lambda row: scrapes.append(urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics").read().decode()),
    )
    result = federation.run()
    events.close()
    return {"federation": federation, "result": result, "scrapes": scrapes, "counted": counted}


def test_a_watched_federation_says_what_happened_and_nothing_about_records(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    watched, path = run_watched(tmp_path, monkeypatch), tmp_path
    printed = capsys.readouterr()
    logs = {
        "nodes": (path / "nodes.log").read_text(),
        "server": (path / "server.log").read_text(),
        "printed": printed.out + printed.err + caplog.text,
        "figures": "".join(watched["scrapes"]),
    }
    for name, text in logs.items():
        assert not [mark for mark in MARKS if mark in text], name
    nodes = [json.loads(line) for line in logs["nodes"].splitlines()]
    server = [json.loads(line) for line in logs["server"].splitlines()]
    assert {row["event"] for row in nodes} == {"answered"}, "noise alone is an answer as any other"
    assert {row["message"] for row in nodes} >= {"keys", "upload"}
    assert not (path / "federation/run/notices.jsonl").exists()
    assert [row["event"] for row in server if row["event"] != "node failed"] == [
        "run started",
        *["round finished"] * 3,
        "run ended",
    ]
    assert not [row for row in server if row["event"] == "node failed"]
    # The owner's own file has the reason, so there was something to find.
    assert PATIENT in (path / "federation/node-2/records.txt").read_text()

    figures = [read_scrape(text) for text in watched["scrapes"]]
    row = watched["result"].history[-1]
    last = figures[-1]
    assert [scrape["laconic_round", ""] for scrape in figures] == [0, 1, 2]  # the display is told first
    assert last["laconic_cohort", ""] == len(SIZES)
    assert last["laconic_refusals_total", ""] == 0
    assert last["laconic_epsilon", 'against="outsider"'] <= row["epsilon"]
    assert last["laconic_payload_bytes_total", 'direction="up"'] > 0
    assert last["laconic_stage_seconds_total", 'stage="upload"'] > 0
    assert last["laconic_stage_seconds_total", 'stage="unmask"'] > 0
    assert last["laconic_run_status", 'status="running"'] == 1

    folder = watched["federation"].node(0)
    node = read_scrape(NodeFigures(folder, Policy(), watched["counted"][folder.path]).text())
    assert node["laconic_node_participations_total", ""] == 3
    assert node["laconic_node_round", ""] == 3
    assert node["laconic_node_cohort", ""] == len(SIZES)
    assert node["laconic_node_needs_attention", ""] == 0
    said = folder.log.rows()[-1]
    assert said["what"] == "revealed"
    uploaded = [row for row in folder.log.rows() if row["what"] == "uploaded"][-1]
    assert node["laconic_node_epsilon", 'against="server",over="run"'] == pytest.approx(
        uploaded["participant_epsilon"], rel=1e-3
    )
    assert node["laconic_node_messages_total", 'message="upload",answer="given"'] == 3
    failed = watched["federation"].node(2)
    node = read_scrape(NodeFigures(failed, Policy()).text())
    assert node["laconic_node_needs_attention", ""] == 1
    assert node["laconic_node_refusals_total", ""] == 0


def test_a_taken_port_is_said_before_a_node_is_asked(tmp_path: Path) -> None:
    import socket

    from laconic.errors import ConfigError

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        config = config_for("fl-std", federation__metrics_port=taken.getsockname()[1])
        federation = LocalFederation(tmp_path, config)
        with pytest.raises(ConfigError, match="choose another port"):
            federation.run()
    assert not federation.grid.sent
