"""What an ε is about, in words: whose data it protects, from whom, and what has to be done for it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Promise:
    """The words of a statement, for everyone. `one` is the unit in one word; the others are (parts of) sentences."""

    one: str
    unit: str
    relation: str
    meaning: str
    released: str
    participant: str
    duties: tuple[str, ...] = ()
    caveats: tuple[str, ...] = ()
    covers_server: bool = True
    """Whether there is an ε against the server at all."""


_ADJACENCY = {
    "zero-out": "one client's data contributes nothing (its code is 0); the client stays and adds its noise share",
    "replace-one": "one client's data is replaced by any other data; sums differ by at most 2·clip_norm",
}


def client_promise(adjacency: str, caveat: str) -> Promise:
    """Client level: all records of one client together."""
    return Promise(
        one="client",
        unit="one client with all its records",
        relation=adjacency,
        meaning=_ADJACENCY[adjacency],
        released="sees every released sum and every model, but not who took part in which round, nor how many",
        participant="also knows who took part in which round, as the server, the clients of a cohort and colluders do",
        duties=(
            "for the outsider's ε the server keeps cohorts and their sizes to itself (so also the run folder)",
            "for the outsider's ε the server tops up the noise of every release to the same variance, whoever came",
        ),
        caveats=(caveat,) if caveat else (),
    )


def central_promise(adjacency: str, bands: int) -> Promise:
    """Client level, with noise that the server adds: it holds for all but the server."""
    kept = f", and so does its checkpoint, which holds those of the last {bands - 1} rounds" if bands > 1 else ""
    return Promise(
        one="client",
        unit="one client with all its records",
        relation=adjacency,
        meaning="one client's data contributes nothing (its code is 0); the client stays",
        released="sees every released sum and every model, and may know who took part in which round",
        participant="is the server: it is NOT covered, as it adds the noise itself and sees every sum without it",
        duties=(
            "the server is trusted (central noise): it adds the noise before it releases anything, and the sums without"
            f" noise stay secret{kept}",
        ),
        caveats=("no ε holds against the server itself, nor against whoever sees its memory or its checkpoints",),
        covers_server=False,
    )


def inside_promise(one: str, *, coins: float, max_owners: int, everybody: bool) -> Promise:
    """A record, or a patient with all its records, inside the masked sum of its owners, who add the noise in shares."""
    where = "one client" if max_owners == 1 else f"up to {max_owners} clients"
    unit = f"one record of {where}" if one == "record" else f"one patient with all records at {where}"
    drawn = "" if coins == 1 else f", but not which {one}s a client drew"
    duties = [f"which {one}s a client draws is decided by coins that only the client knows"] if coins < 1 else []
    most = where.removeprefix("up to ")
    duties.append(f"no {one} is at more than {most}: this is assumed and cannot be checked")
    same = "; as all clients take part in every round, its ε is that of an outsider" if everybody else ""
    caveats = ["a whole client has nothing: no ε holds for all its data together"]
    if one == "record":
        caveats.append("a person with k records is protected k times less: each is protected by itself")
    return Promise(
        one=one,
        unit=unit,
        relation="zero-out",
        meaning=(
            f"one {one} contributes nothing to any sum; nothing else depends on it, also not the number by which sums"
            " are divided"
        ),
        released=f"sees every released sum and every model, and may see who took part{drawn}",
        participant=f"knows who took part in which round, as the server, other clients and colluders do{drawn}{same}",
        duties=tuple(duties),
        caveats=tuple(caveats),
    )


def record_promise(*, as_published: bool, caveats: tuple[str, ...]) -> Promise:
    """Record level: single records of any client, which clients protect themselves."""
    released = "sees every model, and may see in them who took part; asked before the cohorts are drawn"
    if as_published:
        released = "sees every model, but cannot tell from them who took part (CHIL'21, Theorem 3.1)"
    return Promise(
        one="record",
        unit="one record of one client, not a client and not a person: whoever has k records is protected k times less",
        relation="add-or-remove",
        meaning="one client has one record more or less; everything else stays",
        released=released,
        participant="sees every client's message in the clear, as the server does, and knows who took part when",
        duties=("which of its records a client drew in a step stays with the client",),
        caveats=caveats,
    )
