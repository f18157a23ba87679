"""Make the environments of peers, with pinned versions.

    python -m benchmarks.peers.setup [--into FOLDER] [pfl flower pylbfgs pylops opendp byzfl]

The requirements name a torch version that has a wheel for CPUs. Where pip would take a CUDA build of it (gigabytes),
set PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import venv
from pathlib import Path

from benchmarks.peers.environments import DEFAULT, HERE, PACKAGES


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("peers", nargs="*", metavar="PEER", help=f"{', '.join(PACKAGES)}  [all of them]")
    parser.add_argument("--into", type=Path, default=DEFAULT, help="folder for the environments")
    options = parser.parse_args()
    for unknown in set(options.peers) - set(PACKAGES):
        parser.error(f"unknown peer '{unknown}': choose from {', '.join(PACKAGES)}")
    failed = [peer for peer in options.peers or PACKAGES if not make(peer, options.into / peer)]
    if failed:
        sys.exit(f"could not be set up: {', '.join(failed)}; the benchmarks leave them out")


def make(peer: str, folder: Path) -> bool:
    """Whether the environment now has all that the peer's requirements say."""
    print(f"{peer} → {folder}", flush=True)
    venv.create(folder, with_pip=True)
    requirements = HERE / "requirements" / f"{peer}.txt"
    command = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", "--requirement", str(requirements)]
    return subprocess.run(command).returncode == 0


if __name__ == "__main__":
    main()
