"""A served node whose owner makes mistakes while it runs, or that somebody floods: what it says, and what it keeps."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from node_tools import SERVER, SIZES, Small, make_offer, model
from torch import Tensor, nn

from conftest import make_population
from laconic.data.population import Records
from laconic.federation.node.kept import KeptRecords, KeptWork
from laconic.federation.node.node import Node
from laconic.federation.node.serve import served_node
from laconic.federation.node.serve.served_node import ServedNode, Serving
from laconic.federation.node.serve.watched import NodeFigures
from laconic.federation.offer import sign_offer
from laconic.federation.requests import REFUSED
from laconic.guard.folder import NodeFolder
from laconic.guard.policy import Policy
from laconic.guard.transcript import MOST_REFUSALS
from laconic.guard.withheld import WITHHELD


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(served_node, "SETTLING", 0.05)


def served(path: Path, policy: str = "max_nodes = 10\n") -> ServedNode:
    (path / "policy.toml").write_text(policy)
    records = KeptRecords(lambda: make_population(SIZES).records(0), None)
    return ServedNode(
        Serving(folder=path / "node", policy=path / "policy.toml"), records, lambda offer: model(), meaning=None
    )


@pytest.mark.parametrize("garbage", ["", 'servers = "secret-name"\n', "secret_name = 1\n", "max_nodes = [", "\0\xff"])
def test_a_policy_that_became_garbage_is_the_owners_business(garbage: str, tmp_path: Path) -> None:
    node = served(tmp_path)
    before = node.most_bytes
    (tmp_path / "policy.toml").write_text(garbage)
    assert node.answer("keys", {"offer": b"x"}) == {REFUSED: WITHHELD}
    assert "policy" in node.folder.log.rows()[-1]["detail"]
    assert node.most_bytes == before  # a message is read, and refused for the right reason
    (tmp_path / "policy.toml").write_text("max_nodes = 10\n")
    assert node.answer("keys", {"offer": b"x"}) != {REFUSED: WITHHELD}


def test_half_a_policy_is_not_the_policy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody who sends messages all the time meets the instant in which the owner saves the file."""
    path = tmp_path / "policy.toml"
    path.write_text("max_nodes = 10\nmax_participations = 3\n")
    policy = served_node.SettledPolicy(path)
    assert policy.read().max_participations == 3
    saving = iter(["max_nodes = 10\nmax_partic", "max_nodes = 10\n", "max_nodes = 10\nmax_participations = 2\n"])
    path.write_text("max_nodes = 10\n")

    def meanwhile(seconds: float) -> None:
        if (text := next(saving, None)) is not None:
            path.write_text(text)

    monkeypatch.setattr(served_node.time, "sleep", meanwhile)
    assert policy.read().max_participations == 2


def test_a_policy_that_is_saved_while_it_is_read_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "policy.toml"
    path.write_text("max_nodes = 10\nmax_participations = 3\n")
    policy, read, times = served_node.SettledPolicy(path), served_node.read_policy, []

    def saved_meanwhile(name: Path) -> Policy:
        times.append(1)
        if len(times) > 1:
            return read(name)
        path.write_text("max_nodes = 10\n")
        half = read(name)
        path.write_text("max_nodes = 10\nmax_participations = 2\n")
        return half

    monkeypatch.setattr(served_node, "read_policy", saved_meanwhile)
    assert policy.read().max_participations == 2
    assert len(times) == 2


def test_what_is_wrong_with_a_nodes_own_keys_and_files_is_told_to_nobody_else(tmp_path: Path) -> None:
    small = Small(tmp_path)
    clients = small.join()
    requests = clients.requests(small.plan(clients), clients.model.initial)
    key = tmp_path / "node-0" / small.offer.run.hex() / "agreement.key"
    key.chmod(0o644)
    assert small.node(0).answer("upload", requests[0]) == {REFUSED: WITHHELD}
    assert "is open to the group" in NodeFolder(tmp_path / "node-0").log.rows()[-1]["detail"]
    key.chmod(0o600)
    (tmp_path / "node-0" / "attempts.json").write_text("nothing")
    assert small.node(0).answer("upload", requests[0]) == {REFUSED: WITHHELD}
    assert "attempts.json is damaged" in NodeFolder(tmp_path / "node-0").log.rows()[-1]["detail"]


def test_whoever_floods_a_node_with_messages_does_not_fill_its_disk(tmp_path: Path) -> None:
    node = served(tmp_path)
    for number in range(MOST_REFUSALS + 5):
        assert REFUSED in node.answer("x" * 60_000, {"run": number.to_bytes(16, "little")})
    rows = node.folder.log.rows()
    assert len(rows) == MOST_REFUSALS
    assert rows[-1]["last_logged"] is True and "last_logged" not in rows[-2]
    assert (tmp_path / "node/log.jsonl").stat().st_size < 400 * MOST_REFUSALS
    node.folder.log.add("joined", bytes(16))
    node.answer("x", {})
    assert len(node.folder.log.rows()) == MOST_REFUSALS + 2  # what counts is logged, and refusals after it


def test_a_message_makes_no_folder_that_its_offer_does_not_name(tmp_path: Path) -> None:
    node, offer = served(tmp_path), make_offer(num_clients=3)
    data = sign_offer(offer, 0, SERVER)
    for number in range(3):
        answer = node.answer("keys", {"offer": data, "run": bytes([number]) * 16})
        assert "announcement" in answer, answer
    assert [path.name for path in (tmp_path / "node").iterdir() if path.is_dir()] == [offer.run.hex()]


class Picky(nn.Linear):
    """As a table of words is, which has no row for a number that is too large."""

    def forward(self, inputs: Tensor) -> Tensor:
        if inputs.max() > 1e5:
            raise IndexError("no such row")
        return super().forward(inputs)


def picky() -> nn.Module:
    made = model()
    made.__class__ = Picky
    return made


def test_records_that_were_mended_are_read_again_in_the_same_run(tmp_path: Path) -> None:
    small = Small(tmp_path)
    clients = small.join()
    good = small.population.records(0)
    inputs = good.inputs.clone()
    inputs[2:] += 1e6  # the first ones are looked at when a run begins
    bad = Records(inputs, good.targets)
    now, kept = [bad], KeptWork(2)

    def node() -> Node:
        return Node(
            NodeFolder(tmp_path / "node-0"),
            small.policy,
            model=lambda offer: picky(),
            records=lambda offer: now[0],
            kept=kept,
            nonces=small.processes[0],
        )

    requests = clients.requests(small.plan(clients), clients.model.initial)
    assert "upload" in node().answer("upload", requests[0]), "noise alone looks like any other upload"
    assert "IndexError: no such row" in (NodeFolder(tmp_path / "node-0").bad_records or "")
    now[0] = good
    (tmp_path / "node-0" / "records.txt").unlink()
    requests = clients.requests(small.plan(clients, round=2), clients.model.initial)
    assert "upload" in node().answer("upload", requests[0])
    assert NodeFolder(tmp_path / "node-0").bad_records is None


def test_scrapes_read_the_log_beside_the_node_and_not_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A scrape that read a row while the node did would make the node take its own log for damaged."""
    asked: list[NodeFigures] = []

    class Port:
        def __init__(self, port: int, text: Callable[[], str], token: object) -> None:
            asked.append(text.__self__)  # type: ignore[attr-defined]

        def close(self) -> None:
            pass

    monkeypatch.setattr(served_node, "Endpoint", Port)
    node = served(tmp_path)
    serving = Serving(folder=tmp_path / "node", policy=tmp_path / "policy.toml", metrics_port=1)
    with served_node._watched(serving, node):
        assert asked[0]._folder.log is not node.folder.log
        node.folder.log.add("joined", bytes(16))
        assert "laconic_node_runs_joined_total 1" in asked[0].text()
