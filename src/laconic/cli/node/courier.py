"""`laconic node courier`: carries messages between a SuperNode and the node's process."""

from __future__ import annotations

import signal
from functools import partial
from pathlib import Path

import click


@click.command()
@click.option(
    "--socket", type=click.Path(path_type=Path), required=True, help="The node's socket: see laconic node serve."
)
@click.option(
    "--runtime",
    metavar="HOST:PORT",
    default="127.0.0.1:9094",
    show_default=True,
    help="The SuperNode's runtime API: its --host and --port.",
)
@click.option(
    "--authority",
    type=click.Path(path_type=Path),
    help="Certificate authority of the runtime API (the SuperNode's --ssl-ca-certfile), if it has TLS.",
)
@click.option(
    "--secret-file",
    type=click.Path(path_type=Path),
    help="Shared with the SuperNode's --superexec-auth-secret-file, so that no other user here takes its messages.",
)
def courier(socket: Path, runtime: str, authority: Path | None, secret_file: Path | None) -> None:
    """Carry messages between Flower's SuperNode and the node's own process, until it is stopped.

    \b
    flower-supernode --isolation process --superlink server.example.org:8000 …
    laconic node courier --socket /run/laconic/node.socket

    Run it as the SuperNode's user. It reads no data and no key. The app that a server ships with a run is not run.
    """
    from laconic.errors import ConfigError, how_to_install

    try:
        from laconic.federation.flower.resident import Resident
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "flwr":
            raise
        raise ConfigError(f"laconic node courier needs Flower: {how_to_install('flower')}") from None
    from laconic.federation.node.serve.hand_over import hand_over

    carrier = Resident(
        runtime,
        partial(hand_over, socket),
        authority=_read("--authority", authority),
        secret=_read("--secret-file", secret_file),
    )
    for kind in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(kind, lambda number, frame: carrier.stop())
    carrier.run()


def _read(option: str, path: Path | None) -> bytes | None:
    from laconic.errors import ConfigError

    if path is None:
        return None
    try:
        data = path.expanduser().read_bytes()
    except OSError as error:
        raise ConfigError(f"{option} {path}: {error.strerror}") from None
    if not data:
        raise ConfigError(f"{option} {path} is empty")
    return data
