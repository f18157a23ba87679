"""`laconic node serve`: the node as a process of its owner's; `laconic node courier` brings it messages."""

from __future__ import annotations

import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from laconic.cli.keys import secret_for, secret_options

if TYPE_CHECKING:
    from laconic.federation.node.kept import KeptRecords
    from laconic.guard.keys.secret import Secret


_F = TypeVar("_F", bound=Callable[..., Any])
_OPTIONS = (
    click.option("--target", metavar="COLUMN", help="The column that is predicted, without a schema.  [target]"),
    click.option(
        "--patient-column",
        metavar="COLUMN",
        help="The column, or array, that says whose each record is. It is not learnt from.",
    ),
    click.option("--schema", metavar="FILE", help="A schema that fixes everything, as all nodes have it."),
    click.option("--text-column", metavar="COLUMN", help="The column with texts; see --vocabulary, --max-length."),
    click.option("--vocabulary", metavar="hash:N|FILE", help="How words are numbered, alike on all nodes."),
    click.option("--max-length", type=int, help="Words of a text."),
    click.option("--classes", metavar="A,B,…", help="The names of all classes in the order of the run, for pictures."),
    click.option("--image-size", metavar="HEIGHTxWIDTH", help="To which pictures are resized, alike on all nodes."),
    click.option("--channels", type=int, help="Of pictures: 3 is colour, 1 is grey.  [3]"),
    click.option("--model", metavar="MODULE:FACTORY", help="Your own model, if the run's is none of laconic's."),
    click.option(
        "--front-end-module",
        metavar="MODULE:FACTORY",
        help="Your own frozen module, if the run's front end uses one. No server's name is imported.",
    ),
)


def record_options(command: _F) -> _F:
    """All of them, in this order."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


@click.command()
@click.argument("folder", type=click.Path(path_type=Path))
@click.option(
    "--policy",
    type=click.Path(path_type=Path),
    required=True,
    help="The file that says what this node allows.",
)
@click.option("--data", metavar="PATH", help="This node's records: a table, an .npz file, or a folder of pictures.")
@record_options
@click.option(
    "--records", metavar="MODULE:FUNCTION", help="Your own function: (inputs, targets), or whose each is as well."
)
@click.option(
    "--front-end",
    type=click.Path(path_type=Path),
    help="A copy of the server's front_end.safetensors, for a front end that no node can make from a seed.",
)
@click.option("--socket", type=click.Path(path_type=Path), help="Where couriers come to.  [FOLDER/node.socket]")
@click.option("--group", help="A group that may open the socket, for a SuperNode that runs as another user.")
@click.option(
    "--held-out",
    type=click.FloatRange(min=0, max=1, max_open=True),
    help="In runs with evaluations: the fraction of your records to measure on and never train on.  [0.2]",
)
@click.option("--keep-weights", is_flag=True, help="Keep the newest weights of each run, for laconic node predict.")
@click.option("--threads", type=click.IntRange(min=1), help="Threads for training.  [all cores]")
@secret_options
@click.option("--log-file", type=click.Path(path_type=Path), help="Where events go, as JSON lines.  [stderr]")
@click.option(
    "--metrics-port",
    type=click.IntRange(1, 65535),
    help="A port of 127.0.0.1 with figures for Prometheus. They show when this node took part: for its owner only.",
)
@click.option(
    "--metrics-token-file",
    type=click.Path(path_type=Path),
    help="A file whose first line a scrape must bring as its bearer token; else every user here can read them.",
)
def serve(
    folder: Path,
    policy: Path,
    records: str | None,
    model: str | None,
    front_end: Path | None,
    front_end_module: str | None,
    socket: Path | None,
    group: str | None,
    threads: int | None,
    held_out: float | None,
    keep_weights: bool,
    key_file: Path | None,
    passphrase_file: Path | None,
    log_file: Path | None,
    metrics_port: int | None,
    metrics_token_file: Path | None,
    **own: Any,
) -> None:
    """Serve the node in FOLDER until it is stopped: answer what its policy allows, and refuse the rest.

    \b
    laconic node serve /srv/laconic --policy /srv/policy.toml --data /srv/admissions.csv --schema schema.toml
    laconic node serve /srv/laconic --policy /srv/policy.toml --data /srv/scans --classes benign,malignant \\
      --image-size 64x64 --socket /run/laconic/node.socket --group flower

    Everything that must outlast the process is in FOLDER: it can be stopped, or killed, at any time. `laconic node
    status FOLDER` says what it did. Records are read when it starts, and again when a run begins after they changed.
    """
    from laconic.features.module import find_factory
    from laconic.federation.front_ends import read_front_end
    from laconic.federation.node.own_model import own_model
    from laconic.federation.node.own_records import own_meaning
    from laconic.federation.node.serve.served_node import Serving
    from laconic.federation.node.serve.served_node import serve as serve_node
    from laconic.federation.offer import UNCHECKED
    from laconic.models.registry import find_model

    _check_made(folder.expanduser())
    if model is not None:
        find_model(model)  # what cannot be imported is said now
    if front_end_module is not None:
        find_factory(front_end_module)
    if front_end is not None:
        read_front_end(front_end, front_end_module)
    settings = Serving(
        folder=folder.expanduser(),
        policy=policy,
        socket=socket,
        group=group,
        threads=threads,
        held_out=held_out,
        keep_weights=keep_weights,
        secret=secret_for(folder.expanduser(), key_file, passphrase_file),
        log=None if log_file is None else log_file.expanduser(),
        metrics_port=metrics_port,
        metrics_token=_token(metrics_port, metrics_token_file),
        front_end=front_end,
        front_end_module=front_end_module,
    )
    given = {name.replace("_", "-"): value for name, value in own.items() if value is not None}
    kept, meaning = _records(records, given), UNCHECKED if records is not None else own_meaning(given)
    serve_node(settings, kept, lambda offer: own_model(offer, model), meaning=meaning, on_ready=_say_ready)


def _token(port: int | None, file: Path | None) -> Secret | None:
    from laconic.errors import ConfigError
    from laconic.guard.keys.secret import read_passphrase_file

    if file is None:
        return None
    if port is None:
        raise ConfigError("--metrics-token-file means nothing without --metrics-port")
    return read_passphrase_file(file.expanduser())


def _check_made(folder: Path) -> None:
    """Refuse a folder that was not made before. A slip in its name, or a disk that is not mounted, would begin a node
    that knows nothing of what its records have spent."""
    from laconic.errors import RunFolderError

    try:
        made = (folder / "identity.key").exists()
    except OSError as error:
        raise RunFolderError(f"cannot read {folder}: {error.strerror}") from None
    if not made:
        raise RunFolderError(
            f"{folder} is no folder of a node: mind its name, and whether its disk is mounted; laconic node identity"
            f" {folder} makes a new node, which has spent nothing"
        )


def _say_ready(path: Path) -> None:
    click.echo(f"ready: answering on {path}", err=True)


def _records(function: str | None, own: dict[str, Any]) -> KeptRecords:
    """Where this node's records come from."""
    from laconic.errors import ConfigError, DataError
    from laconic.federation.node.kept import KeptRecords
    from laconic.federation.node.own_records import own_meaning, own_records, tells_patients
    from laconic.federation.populations import Held
    from laconic.own_code import imported

    if function is None:
        if "data" not in own:
            raise ConfigError("this node has no records: name them with --data, or a function of yours with --records")
        meant = own_meaning(own)

        def read_own() -> Held:
            if own_meaning(own) != meant:
                raise DataError(
                    "the schema or vocabulary was changed since this process has started: start it again, so that what"
                    " the records mean is compared with every offer"
                )
            return own_records(own)

        return KeptRecords(read_own, Path(own["data"]).expanduser(), of_patients=tells_patients(own))
    if own:
        raise ConfigError(f"--records reads the data by itself: leave out --{', --'.join(own)}")
    load = imported("records", function)

    return KeptRecords(lambda: Held.given(load(), "this node's records"), None)


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
