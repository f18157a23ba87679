"""A node's side of the masked sum, from what its folder holds. It needs no torch, so opening a sum starts quickly."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict

from laconic.errors import WireError
from laconic.federation.node.withheld import on_own_keys
from laconic.guard.folder import NodeFolder
from laconic.guard.roster import read_roster
from laconic.secagg import AttemptsOnDisk, Nonces, SecAggClient, Terms


def keep_terms(folder: NodeFolder, client: int, terms: Terms) -> None:
    """Write down what was agreed on, and this node's number."""
    fields = {name: value.hex() if isinstance(value, bytes) else value for name, value in asdict(terms).items()}
    folder.keep(terms.run, "terms", json.dumps({"client": client} | fields).encode())


@contextmanager
def masking(folder: NodeFolder, run: bytes, nonces: Nonces) -> Iterator[SecAggClient]:
    """The client of the run, with its keys, the roster and the attempts that it has used. One process at a time."""
    terms, roster = folder.kept(run, "terms"), folder.kept(run, "roster")
    if terms is None or roster is None:
        raise WireError("this node was not told the roster of the run")
    fields = json.loads(terms)
    client = fields.pop("client")
    fields |= {name: bytes.fromhex(fields[name]) for name in ("run", "offer", "beacon")}
    entries = read_roster(roster)
    with on_own_keys():
        identity, agreement = folder.identity(), folder.agreement(run)
    with AttemptsOnDisk(folder.attempts) as attempts:
        yield SecAggClient(
            client,
            Terms(**fields),
            identity=identity,
            identities={entry.client: entry.identity for entry in entries},
            attempts=attempts,
            agreement=agreement,
            roster=entries,
            nonces=nonces,
        )
