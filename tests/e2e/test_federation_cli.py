"""`laconic federate` and `laconic node`: what they refuse before anything is started, and what a node's log says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from e2e_tools import call, process, words

pytest.importorskip("flwr", reason="flwr is not installed: pip install '.[flower]'")

from laconic.cli.federate import _checked, _dealt_to
from laconic.federation.node.lifetime import Cost
from laconic.federation.trial.data import part_of
from laconic.guard.folder import NodeFolder
from laconic.settings.config import RunConfig

PRIVATE = "fl-std-dp --dataset synthetic --sampling-rate 1 --noise-multiplier 1"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (f"{PRIVATE} --clip-norm median", "which no server of a federation sees"),
        (f"{PRIVATE} --clip-norm 1 --dropout-rate 0.1", "the nodes of a federation drop out by themselves"),
        (f"{PRIVATE} --clip-norm 1 --noise continuous", "cannot be masked"),
        ("centralized --dataset synthetic", "no federation"),
        (
            "fl-std-record-dp --dataset synthetic --noise-multiplier 1 --clip-norm 1 --record-rate 0.2 --batch-size 4"
            " --balance none",
            "add --noise integer",
        ),
        ("fl-std --dataset synthetic --nodes 5 --set federation.min_nodes=6", "more than nodes"),
        ("fl-std --dataset synthetic --num-clients 7", "5 nodes, but the data are of 7 clients: give --nodes 7"),
        (f"{PRIVATE} --clip-norm 1 --policy none.toml", "cannot read the policy none.toml"),
        ("", "name a scheme or a configuration"),
    ],
)
def test_mistakes_are_seen_before_anything_is_started(
    line: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    ended = call(capsys, "federate", *words(line), "--out", "run")
    assert ended.code == 2
    assert message in ended.err
    assert not (tmp_path / "run" / "federation").exists()


def test_a_budget_that_allows_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    ended = call(capsys, "federate", *words(f"{PRIVATE} --clip-norm 1 --epsilon 0.1 --out run"))
    assert ended.code == 3
    assert "does not allow a single round" in ended.err


def test_a_node_knows_who_it_is_and_what_it_did(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder, run = NodeFolder(tmp_path / "node"), bytes(16)
    identity = folder.identity().public_key().public_bytes_raw().hex()
    cost = Cost(4.0, {"kind": "Poisson", "sampling_rate": 1.0}, 5, False, 3, 0.0)
    folder.log.add("joined", run, client=2, scheme="fl-std-dp", server="ab", cost=cost.row())
    folder.log.add("uploaded", run, round=1, attempt=0, participations=1, participant_epsilon=1.25, cost=cost.row())
    folder.log.add("refused", run, message="upload", reason="participation 2, above max_participations 1")
    (tmp_path / "policy.toml").write_text("max_participations = 1\nlifetime_epsilon = 2\nmax_delta = 1e-6\n")
    shown = call(capsys, "node", "status", tmp_path / "node", "--policy", tmp_path / "policy.toml")
    assert shown.code == 0
    assert f"identity  {identity}" in shown.out
    assert "fl-std-dp: 1 participations, ε against the server 1.250" in shown.out
    assert "participation 2, above max_participations 1" in shown.out
    assert re.search(
        r"1 participations, ε against the servers 1\.\d+, against an outsider 1\.\d+ of 2 \(δ = 1e-06\)", shown.out
    )
    folder.call_for_attention("DataError: no such file")
    assert "no such file" in call(capsys, "node", "status", tmp_path / "node").out
    told = call(capsys, "node", "status", tmp_path / "node", "--json", "--delta", "1e-3").json
    assert told["attention"] == "DataError: no such file"
    assert told["lifetime"]["participations"] == 1
    assert told["lifetime"]["delta"] == 1e-3
    assert call(capsys, "node", "status", tmp_path / "node", "--delta", "2").code == 2
    assert told["identity"] == identity
    assert told["runs"][run.hex()]["participant_epsilon"] == 1.25


def test_a_misspelt_policy_is_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "policy.toml").write_text("max_epsilom = 1\n")
    ended = call(capsys, "node", "status", tmp_path / "node")
    assert ended.code == 5 and "laconic node identity" in ended.err
    assert not (tmp_path / "node").exists()
    assert re.fullmatch("[0-9a-f]{64}", call(capsys, "node", "identity", tmp_path / "node").out.strip())
    ended = call(capsys, "node", tmp_path / "node")
    assert ended.code == 2 and "did you mean 'laconic node status" in ended.err
    ended = call(capsys, "node", "status", tmp_path / "node", "--policy", tmp_path / "policy.toml")
    assert ended.code == 2
    assert "did you mean 'max_epsilon'" in ended.err


def write_hospitals(folder: Path) -> None:
    folder.mkdir()
    for name in ("athens", "berlin", "cairo", "test"):
        (folder / f"{name}.csv").write_text("x,z,died\n" + "".join(f"{i % 7},{i % 3},{i % 2}\n" for i in range(20)))


def test_a_folder_makes_as_many_nodes_as_it_has_hospitals(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write_hospitals(tmp_path / "hospitals")
    config = RunConfig().with_values({"data.dataset": "hospitals", "data.target": "died", "sampler.sampling_rate": 1.0})
    experiment, settled = _checked(_dealt_to(config, None))
    assert experiment.population.num_clients == 3 and settled.federation.nodes == 3
    assert [len(part_of(settled, node).records.targets) for node in range(3)] == [20, 20, 20]
    ended = call(capsys, "federate", *words("fl-std --dataset hospitals --target died --nodes 5 --out run"))
    assert ended.code == 2 and "5 nodes, but the data are of 3 clients: give --nodes 3" in ended.err
    table = config.with_values({"data.dataset": "hospitals/test.csv", "federation.nodes": 4})
    assert _checked(_dealt_to(table, 4))[0].population.num_clients == 4
    by_column = table.with_values({"data.client_column": "z", "federation.nodes": 3})
    assert _checked(_dealt_to(by_column, None))[0].population.num_clients == 3


@pytest.mark.slow
def test_hospitals_in_a_folder_train_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_hospitals(tmp_path / "hospitals")
    line = "federate fl-std --dataset hospitals --target died --sampling-rate 1 --rounds 2 --quiet --out run"
    ended = process(*words(line), cwd=tmp_path)
    assert ended.code == 0, ended.err
    assert process("predict", "run", "hospitals/test.csv", cwd=tmp_path).out.startswith("row,probability\n1,")
