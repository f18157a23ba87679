"""The commands of "Host by host" in docs/federation.md, as they stand there: a server and two hospitals, to the end."""

from __future__ import annotations

import os
import re
import shutil
import signal
import ssl
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from e2e_tools import rounds

pytest.importorskip("flwr", reason="flwr is not installed: pip install '.[flower]'")

from laconic.federation.trial.processes import free_port
from laconic.federation.trial.superlink import make_certificates
from laconic.guard.folder import NodeFolder
from laconic.guard.transcript import UPLOADED

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="ssh-keygen is not installed"),
]
ROOT = Path(__file__).parents[2]
SECONDS = 240.0


def blocks() -> list[str]:
    """The commands of the section, block by block."""
    page = (ROOT / "docs/federation.md").read_text()
    section = page.partition("## Host by host")[2].partition("\n## ")[0]
    return re.findall(r"```\n(.*?)```", section, flags=re.S)


class Host:
    """A folder that stands for a host: commands run in it, with its own home and its own names for things."""

    def __init__(self, path: Path, names: dict[str, str]) -> None:
        self.path, self._names = path, names
        path.mkdir()
        self._running: list[subprocess.Popen[bytes]] = []

    def text(self, block: str) -> str:
        for shown, real in self._names.items():
            block = block.replace(shown, real)
        return block

    def commands(self, block: str) -> list[str]:
        return self.text(block).replace("\\\n", " ").strip().splitlines()

    def run(self, command: str) -> str:
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=self.path,
            env=self._env,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        assert done.returncode == 0, f"{command}: {done.stdout} {done.stderr}"
        return done.stdout

    def start(self, command: str) -> None:
        with open(self.path / "log.txt", "ab") as log:
            self._running.append(
                subprocess.Popen(
                    ["bash", "-c", f"exec {command}"],
                    cwd=self.path,
                    env=self._env,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            )

    def stop(self) -> None:
        for process in self._running:
            os.killpg(process.pid, signal.SIGTERM)
        for process in self._running:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()

    @property
    def _env(self) -> dict[str, str]:
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        return os.environ | {"HOME": str(self.path), "PATH": path, "OMP_NUM_THREADS": "1"}


@contextmanager
def hosts(*some: Host) -> Iterator[None]:
    try:
        yield
    finally:
        for host in some:
            host.stop()


def until(done: Callable[[], bool], host: Host) -> None:
    end = time.monotonic() + SECONDS
    while not done():
        assert time.monotonic() < end, (host.path / "log.txt").read_text()[-3000:]
        time.sleep(0.1)


def answers(port: int, authority: Path) -> bool:
    try:
        context = ssl.create_default_context(cafile=authority)
        urllib.request.urlopen(f"https://127.0.0.1:{port}/health", context=context, timeout=5).close()
    except OSError:
        return False
    return True


def test_from_an_export_to_a_node_that_answers(tmp_path: Path) -> None:
    quiet, link, own, serve, carry, connection, begin = blocks()
    port = free_port()
    common = {"server.example.org:8000": f"127.0.0.1:{port}", "0.0.0.0 --port 8000": f"127.0.0.1 --port {port}"}
    server = Host(tmp_path / "server", common)
    hospitals = []
    for name in ("a", "b"):
        place = tmp_path / name
        names = {"/srv": str(place), "/run/laconic": str(place), "9094": str(free_port())}
        hospitals.append(Host(place, common | names | {"--group flower": f"--group {os.getgid()}"}))
    exported = tmp_path / "exported"
    subprocess.run([sys.executable, ROOT / "examples/hospitals/make_data.py", exported], check=True)
    tls = make_certificates(server.path)
    app = server.path / "app"
    shutil.copytree(ROOT / "examples/hospitals", app)
    settings = (app / "pyproject.toml").read_text()
    for written, wanted in (
        ("nodes = 5", "nodes = 2"),
        ("rounds = 5", "rounds = 1"),
        ("max_dropouts = 1", "max_dropouts = 0"),
        ("local_steps = 100", "local_steps = 2"),
        ('out = "runs/hospitals"', f'out = "{tmp_path}/run"'),
        ('server-key = "server.key"', f'server-key = "{server.path}/server-identity/identity.key"'),
    ):
        assert written in settings
        settings = settings.replace(written, wanted)
    (app / "pyproject.toml").write_text(settings)

    with hosts(server, *hospitals):
        superlink, identity = server.commands(link)
        server.start(f"env {quiet.strip().removeprefix('export ')} {superlink}")
        key = server.run(identity).strip()
        for number, host in enumerate(hospitals):
            shutil.copy(tls.authority, host.path)
            shutil.copy(ROOT / "examples/hospitals/schema.toml", host.path)
            (host.path / "data").mkdir()
            shutil.copy(exported / f"hospital-{number}.csv", host.path / "data/admissions.csv")
            policy = 'max_epsilon = 10.0\nmax_delta = 1e-5\nmin_cohort = 2\nservers = ["{}"]\n'
            (host.path / "policy.toml").write_text(policy.format(key))
            keygen, new_node, status = host.commands(own)
            host.run(keygen)
            assert len(host.run(new_node).strip()) == 64
            assert "can be read" in host.run(status)
            shutil.copy(host.path / "node-key.pub", server.path / f"node-key-of-hospital-{'ab'[number]}.pub")
            host.start(*host.commands(serve))
        until(lambda: answers(port, tls.authority), server)
        (server.path / ".flwr").mkdir(exist_ok=True)
        (server.path / ".flwr/config.toml").write_text(
            server.text(connection).replace("authority.pem", str(tls.authority))
        )
        register, run = server.commands(begin)
        for number, host in enumerate(hospitals):
            server.run(register.replace("hospital-a", f"hospital-{'ab'[number]}"))
            secret, *both = host.commands(carry)
            host.run(secret)
            for command in both:
                host.start(command)
        told = server.run(f"cd app && {run}")
        assert [row["messages_up"] for row in rounds(tmp_path / "run")] == [2], told
        for host in hospitals:
            shown = host.run("laconic node status laconic --check")
            assert "answers on" in shown and "fl-std-dp: 1 participations" in shown
            assert [
                row["round"] for row in NodeFolder(host.path / "laconic").log.rows() if row["what"] == UPLOADED
            ] == [1]
