"""The commands of docs/federation.md, executed in the order of the page."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
from pathlib import Path

import pytest
from e2e_tools import call
from key_tools import cheap_scrypt

from laconic.cli.node import serve
from laconic.federation.trial.processes import free_port

pytestmark = pytest.mark.usefixtures("cheap_scrypt")
__all__ = ["cheap_scrypt"]
PAGE = Path(__file__).parents[3] / "docs" / "federation.md"


def lines() -> list[str]:
    """The command lines of the fenced blocks on operation: from services on to metrics."""
    page = PAGE.read_text(encoding="utf-8").partition("## A node as a service")[2].partition("## Bytes")[0]
    blocks = re.findall(r"^ *```\n(.*?)^ *```$", page, re.MULTILINE | re.DOTALL)
    return [
        line.strip()
        for block in blocks
        for line in re.sub(r"\\\n *", "", block).splitlines()
        if re.match(r" *(laconic [a-z]|head|chmod)", line)
    ]


def test_every_command_of_the_page_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in ("etc", "mnt"):
        (tmp_path / folder).mkdir()
    (tmp_path / "admissions.csv").write_text("age,target\n50,0\n60,1\n")
    (tmp_path / "policy.toml").write_text("max_nodes = 10\n")
    (tmp_path / "etc/new.secret").write_bytes(bytes(range(32)))
    (tmp_path / "etc/new.secret").chmod(0o600)
    monkeypatch.setattr(serve, "_say_ready", lambda path: os.kill(os.getpid(), signal.SIGTERM))
    ran = []
    for line in lines():
        here = line.replace("/srv/", f"{tmp_path}/").replace("/etc/laconic/", f"{tmp_path}/etc/")
        here = here.replace("/mnt/backup/", f"{tmp_path}/mnt/").replace("9465", str(free_port()))
        if here.startswith("laconic federate"):
            continue  # tests/e2e has trials
        if not here.startswith("laconic"):
            subprocess.run(here, shell=True, check=True)
            continue
        if "keys passphrase" in here:  # the page goes on with the new secret
            monkeypatch.setenv("LACONIC_KEY_FILE", str(tmp_path / "etc/new.secret"))
        ended = call(capsys, *shlex.split(here)[1:])
        assert ended.code == 0, (line, ended.err)
        ran.append(" ".join(shlex.split(line)[1:3]))
    assert ran == [
        "keys encrypt",
        "node serve",
        "keys passphrase",
        "keys rotate",
        "keys backup",
        "keys restore",
        "keys moved",
        "node identity",
        "node status",
        "node serve",
    ]
