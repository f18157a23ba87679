"""Where the peers' interpreters are, and which versions they have."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

from benchmarks.contest import Unavailable

HERE = Path(__file__).parent
DEFAULT = HERE / ".venvs"
# By our name for the peer: (distribution, module).
PACKAGES = {
    "pfl": ("pfl", "pfl"),
    "flower": ("flwr", "flwr"),
    "pylbfgs": ("PyLBFGS", "lbfgs"),
    "pylops": ("pylops", "pylops"),
    "opendp": ("opendp", "opendp"),
    "byzfl": ("byzfl", "byzfl"),
}


def python_of(peer: str, environments: Path | None) -> str:
    """The peer's own interpreter; ours, if it has the package; else `Unavailable`."""
    if environments is None:
        raise Unavailable("peers were not asked for")
    own = environments.absolute() / peer / "bin" / "python"
    if own.exists():
        return str(own)
    if importlib.util.find_spec(PACKAGES[peer][1]):
        return sys.executable
    raise Unavailable(f"not installed: python -m benchmarks.peers.setup {peer}")


def versions(environments: Path | None) -> dict[str, str]:
    """The installed version of every peer that is there."""
    found = {}
    for peer, (distribution, _) in PACKAGES.items():
        try:
            python = python_of(peer, environments)
        except Unavailable:
            continue
        ask = f"import importlib.metadata as m; print(m.version({distribution!r}))"
        answer = subprocess.run([python, "-c", ask], capture_output=True, text=True)
        if answer.returncode == 0:
            found[distribution] = answer.stdout.strip()
    return found
