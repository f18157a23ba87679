"""What must never be, whatever the adversary does: every broken promise, in words."""

from __future__ import annotations

from adversary_knowledge import Knowledge, Masked, Watch
from adversary_world import RUN, World

from laconic.guard.transcript import UPLOADED
from laconic.secagg.crypto.keys import montgomery


def complaints(world: World, watch: Watch) -> list[str]:
    """Everything that breaks a promise: what can be opened, and what honest nodes have accepted."""
    return [*leaks(world, watch), *_bad_rosters(world), *_unlogged(world, watch), *_unbounded(watch)]


def leaks(world: World, watch: Watch) -> list[str]:
    found = []
    offers = {data: attempt.told.offer for attempt in world.attempts for data in attempt.uploads.values()}
    openings = Knowledge(world, watch).openings()
    opened = [id(upload) for opening in openings for _, upload in opening.terms]
    if len(set(opened)) < len(opened):
        found.append("an upload stands in two sums that can be opened")
    plans = [opening.terms[0][1].plan.hash for opening in openings]
    if len(set(plans)) < len(plans):
        found.append("two sums of one attempt can be opened")
    for opening in openings:
        uploads = [upload for _, upload in opening.terms]
        if len({upload.plan.hash for upload in uploads}) > 1:
            found.append("uploads of different attempts can be opened together")
        least = world.policy.min_cohort
        if len(opening.nodes) < least:
            found.append(f"a sum of {sorted(opening.nodes)} can be opened, fewer than {least} honest codes")
        if len({coefficient for coefficient, _ in opening.terms}) > 1 or len(opening.nodes) < len(uploads):
            found.append("a difference of uploads can be opened, in which noise cancels or stands alone")
        joined = {_accepted(world, upload.node) for upload in uploads}
        if len(joined) > 1:
            found.append("nodes that accepted different offers have finished a sum together")
        noise = {_logged_noise(world, upload) for upload in uploads}
        offer = offers[uploads[0].data]
        promised = offer.scheme.clip.sensitivity(offer.size) * offer.scheme.noise.noise_multiplier  # type: ignore[attr-defined]
        if len(noise) != 1 or None in noise:
            found.append(f"the codes in a sum have different noise, or noise that was not logged: {noise}")
            continue
        share = next(iter(noise))[0]  # type: ignore[index]
        if len(opening.nodes) * share**2 < promised**2 * (1 - 1e-9):
            found.append(f"the noise in a sum is {len(opening.nodes)}·{share}², less than {promised}²")
    return found


def _accepted(world: World, client: int) -> bytes:
    """The offer that the node has accepted for the run."""
    from laconic.federation.offer import read_offer

    data = world.folder(client).kept(RUN, "offer")
    assert data is not None
    return read_offer(data)[1].to_bytes()


def _logged_noise(world: World, upload: Masked) -> tuple[float, float] | None:
    for row in world.folder(upload.node).log.rows(upload.plan.terms.run):
        if row["what"] == UPLOADED and (row["round"], row["attempt"]) == (upload.plan.round, upload.plan.attempt):
            return row["noise"]["share"], row["noise"]["step"]
    return None


def _bad_rosters(world: World) -> list[str]:
    """Rosters that an honest node has uploaded under, and that it had to refuse."""
    found = []
    listed = set(world.policy.identities)
    for attempt in world.attempts:
        if not attempt.uploads:
            continue
        entries = [entry.keys for entry in attempt.told.entries]
        names = [entry.identity.hex() for entry in entries]
        if len(set(names)) < len(names):
            found.append("a node has uploaded under a roster with one identity twice")
        if len({montgomery(entry.agreement) for entry in entries}) < len(entries):
            found.append("a node has uploaded under a roster with one key twice")
        if not all(entry.owned for entry in attempt.told.entries):
            found.append("a node has uploaded under a roster with a key that its announcer does not have")
        if not set(names) <= listed:
            found.append("a node has uploaded under a roster with a stranger")
        if len(entries) != attempt.told.offer.num_clients:
            found.append("a node has uploaded under a roster that is not of all nodes")
    return found


def _unbounded(watch: Watch) -> list[str]:
    """Codes that were longer than S when noise was drawn around them, or noise smaller than was logged."""
    return [f"a code of {norm:g} times its bound" for norm in watch.norms if norm > 1 + 1e-12]


def _unlogged(world: World, watch: Watch) -> list[str]:
    """Every upload is in its node's log, and none twice under one attempt."""
    found = []
    for client in world.honest:
        rows = [row for row in world.folder(client).log.rows() if row["what"] == UPLOADED]
        logged = {(row["run"], row["round"], row["attempt"]) for row in rows}
        sent = [
            (upload.plan.terms.run.hex(), upload.plan.round, upload.plan.attempt)
            for upload in watch.uploads
            if upload.node == client
        ]
        if len(set(sent)) < len(sent):
            found.append(f"node {client} has masked two vectors under one attempt")
        if not set(sent) <= logged:
            found.append(f"node {client} has uploaded without writing it down")
    return found
