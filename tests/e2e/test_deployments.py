"""examples/compose and examples/systemd: files that agree with the command line, with each other, and with systemd."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from compose_tools import FOLDER, Host, compose, mounts, words

from laconic.cli.main import cli
from laconic.guard.policy import read_policy

pytest.importorskip("flwr", reason="flwr is not installed: pip install '.[flower]'")

from laconic.federation.trial.processes import free_port

UNITS = FOLDER.parent / "systemd"
FLOWER = Path(str(importlib.util.find_spec("flwr").origin)).parent  # type: ignore[union-attr]
SOURCES = {
    "flower-supernode": ("supernode/cli/flower_supernode.py", "supercore/auth/superexec_secret.py"),
    "flower-superlink": ("superlink/cli/flower_superlink.py", "common/args.py"),
}
"""Where Flower declares the options of its programs."""


def unknown_options(line: list[str]) -> set[str]:
    """Options that the program does not have."""
    program, *rest = line
    named = {word.partition("=")[0] for word in rest if word.startswith("--")}
    program = Path(program).name
    if program == "laconic":
        context, command = click.Context(cli), cli
        while isinstance(command, click.Group):
            command, rest = command.get_command(context, rest[0]), rest[1:]  # type: ignore[assignment]
            assert command is not None, line
        return named - {option for parameter in command.get_params(context) for option in parameter.opts}
    text = "".join((FLOWER / path).read_text(encoding="utf-8") for path in SOURCES[program])
    return {option for option in named if f'"{option}"' not in text}


def unit(name: str) -> dict[str, list[str]]:
    """The settings of a unit's service, each with all its values."""
    found: dict[str, list[str]] = {}
    for line in (UNITS / name).read_text(encoding="utf-8").replace("\\\n", " ").splitlines():
        key, equals, value = line.partition("=")
        if equals and not line.startswith("#"):
            found.setdefault(key, []).append(value)
    return found


def test_every_command_of_the_compose_file_exists() -> None:
    services = compose()["services"]
    assert len(services) == 3 + 3 * 3
    seen = 0
    for name, service in services.items():
        line = words(service)
        if Path(line[0]).name in ("laconic", *SOURCES):
            assert not unknown_options(line), name
            seen += 1
        if "healthcheck" in service:
            assert not unknown_options(service["healthcheck"]["test"][1:])
    assert seen == 10


def test_a_misspelt_option_is_noticed() -> None:
    """Guards the test above."""
    assert unknown_options(["laconic", "node", "serve", "/x", "--polizy=y"]) == {"--polizy"}
    assert unknown_options(["flower-supernode", "--super-link=x"]) == {"--super-link"}


def test_every_path_in_a_container_is_mounted_and_the_parties_are_apart() -> None:
    everything = compose()
    site = Path("/site")
    for name, service in everything["services"].items():
        mapped = mounts(name, everything, site)
        text = " ".join([*words(service), *map(str, service["environment"].values())])
        for path in re.findall(r"(?<![\w.])/(?:etc|var|srv|run|app)[\w/.-]*", text):
            if name != "start" or not path.startswith(("/srv", "/var/lib/server")):  # paths of the server's container
                assert any(path == inside or path.startswith(f"{inside}/") for inside in mapped), (name, path)
        party = name.rpartition("-")[0] if name.startswith("hospital") else "server"
        assert all(f"/site/{party}/" in str(host) or "hospitals" in str(host) for host in mapped.values()), name
        if name.endswith(("supernode", "courier")):  # the records, the keys and the policy are not even there
            assert not [
                host
                for host in mapped.values()
                if re.search(r"/(node|data|etc|secret)$", str(host)) and "flower" not in str(host)
            ]
        if name.endswith("-node"):
            assert service["network_mode"] == "none"
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]


def test_users_of_the_compose_file_are_those_that_prepare_gives_the_files_to() -> None:
    script = (FOLDER / "prepare.sh").read_text(encoding="utf-8")
    users = {name.rpartition("-")[2]: service["user"] for name, service in compose()["services"].items()}
    assert users["node"] in script
    assert users["supernode"] == users["courier"] in script
    assert users["superlink"] == users["start"] in script
    node = compose()["services"]["hospital-a-node"]
    assert f"chown 1001:{node['group_add'][0]}" in script
    assert f"--group={node['group_add'][0]}" in node["command"]


def test_the_policy_of_the_compose_file_is_one(tmp_path: Path) -> None:
    (tmp_path / "policy.toml").write_text(
        (FOLDER / "policy.toml").read_text(encoding="utf-8").replace("SERVER", "ab" * 32)
    )
    assert read_policy(tmp_path / "policy.toml").servers == ("ab" * 32,)


@pytest.mark.parametrize("name", ["laconic-node.service", "laconic-supernode.service", "laconic-courier.service"])
def test_units_name_commands_that_exist_and_are_hardened(name: str) -> None:
    found = unit(name)
    (line,) = found["ExecStart"]
    assert not unknown_options(shlex.split(line))
    for key, value in (
        ("NoNewPrivileges", "yes"),
        ("ProtectSystem", "strict"),
        ("PrivateTmp", "yes"),
        ("UMask", "0077"),
    ):
        assert found[key] == [value]
    assert found["CapabilityBoundingSet"] == [""]


def test_units_agree_with_each_other() -> None:
    node, supernode, courier = (unit(f"laconic-{name}.service") for name in ("node", "supernode", "courier"))
    assert supernode["User"] == courier["User"] != node["User"]
    assert node["SupplementaryGroups"] == courier["Group"]
    lines = {key: shlex.split(found["ExecStart"][0]) for key, found in (("n", node), ("s", supernode), ("c", courier))}

    def value(key: str, option: str) -> str:
        return lines[key][lines[key].index(option) + 1]

    assert value("n", "--socket") == value("c", "--socket")
    assert value("n", "--group") == courier["Group"][0]
    assert value("c", "--runtime") == f"{value('s', '--host')}:{value('s', '--port')}"
    assert value("n", "--socket").startswith(f"/run/{node['RuntimeDirectory'][0]}/")
    folder = lines["n"][3]
    assert folder == f"/var/lib/{node['StateDirectory'][0]}"
    for found in (supernode, courier):
        hidden = found["InaccessiblePaths"][0].replace("-/", "/").split()
        for secret in (folder, value("n", "--data"), value("n", "--policy")):
            assert any(Path(secret).is_relative_to(path) for path in hidden), secret
    people = (UNITS / "laconic.sysusers").read_text(encoding="utf-8")
    for user in (node["User"][0], courier["User"][0]):
        assert re.search(rf"^u {user} ", people, re.M)
    assert f"m {node['User'][0]} {courier['Group'][0]}" in people


def test_systemd_finds_nothing_wrong_with_the_units(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed")
    files = []
    for file in UNITS.glob("*.service"):
        copy = tmp_path / file.name
        text = file.read_text(encoding="utf-8")
        copy.write_text(re.sub(r"/opt/laconic/bin/[\w-]+", sys.executable, text))  # a program that is there
        files.append(copy)

    def said() -> list[str]:
        done = subprocess.run(
            ["systemd-analyze", "verify", *map(str, files)], capture_output=True, text=True, check=False
        )
        return [line for line in done.stderr.splitlines() if "laconic-" in line]

    assert said() == []
    files[0].write_text(files[0].read_text().replace("ProtectHome", "ProtectHoome"))
    assert len(said()) == 1  # so it would have been seen


@pytest.fixture
def apart() -> Iterator[Path]:
    """A folder that other users may pass through."""
    folder = Path(tempfile.mkdtemp(prefix="laconic-compose-"))
    folder.chmod(0o711)
    yield folder
    shutil.rmtree(folder)


@pytest.mark.slow
@pytest.mark.e2e
def test_the_compose_file_runs_a_federation(apart: Path) -> None:
    """Every service as a process here, as the user that it names. Flower's user cannot read records, keys or policy."""
    logs, site = apart / "logs", apart / "site"
    logs.mkdir()
    environment = os.environ | {"PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])}
    subprocess.run([str(FOLDER / "prepare.sh"), str(site)], check=True, env=environment, timeout=200)
    if os.geteuid() == 0:
        for path in ("node/identity.key", "etc/policy.toml", "data/admissions.csv", "secret"):
            tried = subprocess.run(["cat", str(site / "hospital-a" / path)], user=1002, group=1002, check=False)
            assert tried.returncode != 0, path
    names = ("hospital-a", "hospital-b", "hospital-c")
    host = Host(site, free_port(), {name: free_port() for name in names}, logs)
    config = site / "server/state/flwr/config.toml"
    config.write_text(
        config.read_text()
        .replace("superlink:8000", f"127.0.0.1:{host.port}")
        .replace("/etc/laconic/tls", str(site / "server/tls"))
    )
    started = [host.start("superlink")]
    try:
        _wait_for(lambda: b"HTTP" in (logs / "superlink.txt").read_bytes() or _answers(host.port), 60)
        registered = host.start("register")
        assert registered.wait(120) == 0, (logs / "register.txt").read_text()
        for name in names:
            started += [host.start(f"{name}-{part}") for part in ("node", "supernode", "courier")]
        run = host.start("start")
        started.append(run)
        summary = site / "server/state/runs/hospitals/summary.json"
        _wait_for(lambda: summary.exists() or summary.with_name("failure.json").exists(), 400)
        assert summary.exists(), "".join(path.read_text()[-1500:] for path in logs.glob("*.txt"))
        assert json.loads(summary.read_text())["rounds"] == 5
        folder = site / "hospital-a/node"
        given, variables = host.command("hospital-a-node")
        check = subprocess.run(
            [*given[:3], "node", "status", str(folder)], env=variables, capture_output=True, text=True
        )
        assert "fl-std-dp: 5 participations" in check.stdout, check.stderr
        _nothing_in_the_logs(site, logs)
    finally:
        for process in started:
            os.killpg(process.pid, signal.SIGTERM)
        for process in started:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def _nothing_in_the_logs(site: Path, logs: Path) -> None:
    """No patient and no secret is in what any of the processes has printed."""
    printed = b"".join(path.read_bytes() for path in logs.glob("*.txt"))
    assert b'"event": "answered"' in printed
    for file in site.glob("hospital-*/data/admissions.csv"):
        rows = [line.split(",") for line in file.read_text().splitlines()[1:]]
        marks = [row[0] for row in rows] + [row[7] for row in rows if ";" in row[7]]  # patients, and their diagnoses
        assert len(marks) > 50
        assert not [mark for mark in marks if mark.encode() in printed]
    for file in [*site.rglob("secret"), *site.rglob("courier-secret")]:
        secret = file.read_bytes()
        assert secret not in printed
        assert secret.hex().encode() not in printed


def _answers(port: int) -> bool:
    import socket

    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _wait_for(there: object, seconds: float) -> None:
    end = time.monotonic() + seconds
    while not there():  # type: ignore[operator]
        assert time.monotonic() < end, "it takes too long"
        time.sleep(0.5)
