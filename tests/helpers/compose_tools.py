"""examples/compose without a container engine: each service as a process of this machine, with its paths and users."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml

FOLDER = Path(__file__).parents[2] / "examples" / "compose"


def compose() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((FOLDER / "compose.yaml").read_text(encoding="utf-8"))
    return found


def words(service: dict[str, Any]) -> list[str]:
    """Entry point and command. The image's own entry point is laconic."""
    return [*service.get("entrypoint", ["laconic"]), *service["command"]]


def mounts(name: str, everything: dict[str, Any], site: Path) -> dict[str, Path]:
    """Where a path of the container lies on the host."""
    service = everything["services"][name]
    found = {}
    for volume in service.get("volumes", ()):
        host, inside, *_ = volume.replace("${SITE:-./site}", str(site)).split(":")
        found[inside] = (FOLDER / host).resolve()
    for secret in service.get("secrets", ()):
        source, target = (secret, secret) if isinstance(secret, str) else (secret["source"], secret["target"])
        file = everything["secrets"][source]["file"]
        found[f"/run/secrets/{target}"] = Path(file.replace("${SITE:-./site}", str(site)))
    return found


@lru_cache
def others_can_run_this() -> bool:
    """Whether processes can be started as other users, and those can run this Python."""
    if os.geteuid() != 0:
        return False
    try:
        tried = subprocess.run([sys.executable, "-c", "import flwr"], user=1002, group=1002, check=False)
        return tried.returncode == 0
    except PermissionError:  # it lies in a folder of root's
        return False


@dataclass
class Host:
    """This machine in place of the container engine. `ports` are those of each hospital's SuperNode."""

    site: Path
    port: int
    ports: dict[str, int]
    logs: Path

    def command(self, name: str) -> tuple[list[str], dict[str, str]]:
        """The words and the environment of a service, with paths, names and ports of this machine."""
        everything = compose()
        service = everything["services"][name]
        mapped = mounts(name, everything, self.site)
        if name == "start":  # what it says is read in the server's container
            mapped = mounts("superlink", everything, self.site) | mapped

        def here(text: str) -> str:
            for inside in sorted(mapped, key=len, reverse=True):
                text = re.sub(rf"(?<![\w/.-]){re.escape(inside)}(?![\w-])", str(mapped[inside]), text)
            for hospital, port in self.ports.items():
                if name.startswith(hospital):
                    text = text.replace("9094", str(port))
            return text.replace("superlink:8000", f"127.0.0.1:{self.port}").replace("$$", "$")

        given = [here(word) for word in words(service)]
        if name == "superlink":
            given = [w.replace("--port=8000", f"--port={self.port}").replace("0.0.0.0", "127.0.0.1") for w in given]
        if given[0] == "laconic":
            given = [sys.executable, "-m", "laconic", *given[1:]]
        variables = {key: here(str(value)) for key, value in service["environment"].items()}
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        return given, {**os.environ, **variables, "PATH": path}

    def start(self, name: str) -> subprocess.Popen[bytes]:
        service = compose()["services"][name]
        given, environment = self.command(name)
        as_user: dict[str, Any] = {}
        if others_can_run_this():
            user, group = map(int, service["user"].split(":"))
            as_user = {"user": user, "group": group, "extra_groups": [int(g) for g in service.get("group_add", ())]}
        where = mounts(name, compose(), self.site).get(service.get("working_dir", ""), Path("/"))
        with open(self.logs / f"{name}.txt", "ab") as log:
            log.write(f"$ {shlex.join(given)}\n".encode())
            log.flush()
            return subprocess.Popen(
                given,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
                cwd=where,
                start_new_session=True,
                umask=0o077,
                **as_user,
            )
