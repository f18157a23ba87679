"""The node's process with encrypted keys, a log and figures: what it refuses at its start, and what it says."""

from __future__ import annotations

import json
import os
import signal
import stat
import urllib.error
import urllib.request
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from key_tools import cheap_scrypt, private_file
from scrapes import read_scrape

from laconic.data.population import Records
from laconic.errors import ConfigError
from laconic.federation.node.kept import KeptRecords
from laconic.federation.node.serve.hand_over import hand_over
from laconic.federation.node.serve.served_node import Serving, read_state, serve
from laconic.federation.trial.processes import free_port
from laconic.guard.folder import NodeFolder
from laconic.guard.keys.change import encrypt_keys
from laconic.guard.keys.secret import passphrase, read_key_file

pytestmark = pytest.mark.usefixtures("cheap_scrypt")
__all__ = ["cheap_scrypt"]


def settings(path: Path, **more: Any) -> Serving:
    (path / "policy.toml").write_text("max_nodes = 10\n")
    return Serving(folder=path / "node", policy=path / "policy.toml", **more)


def serve_once(serving: Serving, while_serving: Any = lambda path: None) -> None:
    records = KeptRecords(lambda: Records(torch.zeros(3, 2), torch.zeros(3, dtype=torch.int64)), None)

    def ready(path: Path) -> None:
        while_serving(path)
        os.kill(os.getpid(), signal.SIGTERM)

    serve(serving, records, lambda offer: torch.nn.Linear(2, 2), on_ready=ready)


def test_a_node_with_encrypted_keys_says_how_it_is(tmp_path: Path) -> None:
    secret = read_key_file(private_file(tmp_path / "secret", bytes(range(32))))
    NodeFolder(tmp_path / "node").identity()
    encrypt_keys(tmp_path / "node", secret)
    port, log = free_port(), tmp_path / "events.log"
    scraped: list[str] = []

    def look(path: Path) -> None:
        assert stat.S_ISSOCK(path.stat().st_mode)
        with pytest.raises(urllib.error.HTTPError):
            urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics")
        request = urllib.request.Request(
            f"http://127.0.0.1:{port}/metrics", headers={"Authorization": "Bearer a-token"}
        )
        scraped.append(urllib.request.urlopen(request).read().decode())

    serve_once(settings(tmp_path, secret=secret, log=log, metrics_port=port, metrics_token=passphrase("a-token")), look)
    assert read_scrape(scraped[0])["laconic_node_log_in_order", ""] == 1
    assert [json.loads(line)["event"] for line in log.read_text().splitlines()] == ["node started", "node stopped"]
    with pytest.raises(OSError):
        urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda node: node.chmod(0o755), "chmod 700"),
        (lambda node: (node / "identity.key").chmod(0o644), "chmod 600"),
        (lambda node: (node / ("ab" * 16) / "agreement.key").chmod(0o640), "chmod 600"),
        (lambda node: encrypt_keys(node, read_key_file(node.parent / "secret")), "are encrypted: give --key-file"),
    ],
)
def test_what_must_not_be_served_is_said_before_the_socket_is_there(change: Any, said: str, tmp_path: Path) -> None:
    private_file(tmp_path / "secret", bytes(range(32)))
    folder = NodeFolder(tmp_path / "node")
    folder.identity()
    folder.agreement(b"\xab" * 16)
    change(tmp_path / "node")
    with pytest.raises(ConfigError, match=said):
        serve_once(settings(tmp_path))
    assert not (tmp_path / "node/node.socket").exists()
    assert "does not answer" in str(hand_over(tmp_path / "node/node.socket", "keys", {}, timeout=0.0))


def test_the_state_names_the_policy_wherever_the_process_was_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    serve_once(replace(settings(tmp_path), policy=Path("policy.toml")))
    assert read_state(tmp_path / "node")["policy"] == str(tmp_path / "policy.toml")
