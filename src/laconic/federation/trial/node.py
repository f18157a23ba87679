"""A node of a trial as a process of its own: `python -m laconic.federation.trial.node NODE_FOLDER CONFIG NUMBER`.

It is what `laconic node serve` starts, with the NUMBER-th part of the configured data set as its records.
"""

from __future__ import annotations

import sys
from pathlib import Path

from laconic.errors import LaconicError
from laconic.federation.node.kept import KeptRecords
from laconic.federation.node.own_model import own_model
from laconic.federation.node.serve.served_node import Serving, serve
from laconic.federation.trial.data import part_of
from laconic.settings.config import RunConfig, read_toml

SOCKET = "node.socket"


def main(place: Path, config: Path, number: int) -> None:
    told = RunConfig.from_dict(read_toml(config))
    serving = Serving(
        folder=place / "folder",
        policy=place / "policy.toml",
        socket=place / SOCKET,
        threads=1,
        held_out=told.evaluation.held_out,
    )
    serve(serving, KeptRecords(lambda: part_of(told, number), config), own_model)


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
    except LaconicError as error:
        sys.exit(f"laconic: {error}")
