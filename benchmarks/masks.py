"""What secure aggregation costs a client and the server, in milliseconds of processor time and in bytes, on one core.

    python -m benchmarks --only masks

Every row is a federation in this process that really runs the protocol, once for each dropout rate. Clients vanish
before their upload, which costs the server most. In rows that would take too long, only some clients really
mask their vectors; the server's work is the same, but the opened sum is then not compared with the plain one.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any
from unittest.mock import patch

import cryptography
import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from benchmarks.contest import note
from benchmarks.settings import Settings
from laconic.secagg import messages
from laconic.secagg.client import SecAggClient
from laconic.secagg.crypto.keys import ENTRY_BYTES, _are_signed
from laconic.secagg.crypto.masks import add_masks
from laconic.secagg.server import SecAggServer, ServerRound
from laconic.secagg.shares import deal
from laconic.secagg.terms import NO_OFFER, SumPlan, Terms

BITS = {8_317: 13, 83_169: 13, 1_663_370: 32}
RATES = (0.0, 0.1, 0.3)


@dataclass
class Row:
    """Milliseconds and bytes for one client of a cohort, and for the server."""

    cohort: int
    size: int
    bits: int
    neighbours: int
    committee: int
    threshold: int
    contacts_ms: float
    """A client's first meeting with all it needs to know: signatures, X25519. Once per run for each."""
    masking_ms: float
    sharing_ms: float
    reveal_ms: float
    """A member's answer at the highest dropout rate."""
    accept_ms: float
    """The server, for each upload."""
    unmask_ms: dict[str, float]
    """The server, from the answers to the sum, by dropout rate."""
    payload_bytes: int
    shares_bytes: int
    plan_bytes: int
    contacts_bytes: int
    request_bytes: int
    reveal_bytes: dict[str, int]
    """A member's answer, by dropout rate."""
    checked: bool


def milliseconds(work: Callable[[], object], repeats: int = 5) -> float:
    """The median of some repeats, after one that warms up."""
    work()
    times = []
    for _ in range(repeats):
        started = time.process_time()
        work()
        times.append(time.process_time() - started)
    return 1e3 * float(np.median(times))


def once(work: Callable[[], object]) -> float:
    started = time.process_time()
    work()
    return 1e3 * (time.process_time() - started)


def first_meeting(client: SecAggClient, round: ServerRound) -> float:
    _are_signed.cache_clear()  # other clients of this process have verified the same keys
    message = round.plan_for(client.client)
    return once(lambda: client.begin(message))


def masking(client: SecAggClient, plan: SumPlan, vector: np.ndarray) -> float:
    """Deriving the seeds, adding all masks, packing: what `upload` does before it shares."""

    def work() -> bytes:
        words = plan.ring.words(vector)
        seeds = [client._pair_seed(plan, other) for other in plan.neighbours(client.client)]
        add_masks(words, plus=[os.urandom(32), *seeds])
        return plan.ring.pack(words)

    return milliseconds(work)


def sharing(client: SecAggClient, plan: SumPlan) -> float:
    seeds = [os.urandom(32) for _ in range(plan.degree + 1)]
    return milliseconds(
        lambda: deal(plan, seeds, [client._share_key(client.client, member) for member in plan.committee])
    )


def attempt(
    server: SecAggServer, clients: dict[int, SecAggClient], plan: SumPlan, rate: float, *, check: bool
) -> dict[str, float]:
    """One attempt with so many dropouts; what it took."""
    round = server.begin(plan)
    rng = np.random.default_rng(plan.attempt)
    gone = set(rng.choice(plan.cohort, int(rate * len(plan.cohort)), replace=False).tolist())
    value = rng.integers(-1000, 1000, plan.size)
    accept = []
    with patch("laconic.secagg.client.add_masks", add_masks if check else lambda words, **seeds: None):
        for client in plan.cohort:
            clients[client].begin(round.plan_for(client))
            if client not in gone:
                upload = clients[client].upload(value + client)
                accept.append(once(lambda upload=upload: round.accept_upload(upload)))
    round.close_uploads()
    request = round.unmask_request()
    present = [member for member in plan.committee if member not in gone]
    times, sizes = [], []
    for member in present:
        started = time.process_time()
        reveal = clients[member].reveal(request)
        times.append(time.process_time() - started)
        sizes.append(len(reveal))
        round.accept_reveal(reveal)
    started = time.process_time()
    opened = round.open()
    unmask = 1e3 * (time.process_time() - started)
    if check:
        survivors = [client for client in plan.cohort if client not in gone]
        expected = (value * len(survivors) + sum(survivors)).astype(np.uint64) & np.uint64(2**plan.bits - 1)
        assert np.array_equal(opened.total, expected)
    return {
        "accept": float(np.median(accept)),
        "unmask": unmask,
        "reveal": 1e3 * float(np.median(times)),
        "reveal bytes": sizes[0],
        "request bytes": len(request),
    }


def measure(cohort: int, size: int, *, complete: bool, budget: float) -> Row:
    terms = Terms(
        run=os.urandom(16),
        offer=NO_OFFER,
        fingerprint="00" * 16,
        beacon=os.urandom(32),
        max_dropouts=int(max(RATES) * cohort),
        small_cohort=2**16 if complete else 32,
    )
    server = SecAggServer(terms)
    clients = {i: SecAggClient(i, terms, identity=Ed25519PrivateKey.generate()) for i in range(cohort)}
    for client in clients.values():
        server.register(client.announce())

    def plan(attempt: int) -> SumPlan:
        bits = BITS.get(size, 32)
        bare = SumPlan(terms=terms, round=1, attempt=attempt, bits=bits, size=size, cohort=tuple(range(cohort)))
        return bare.with_nonces({i: client.nonce for i, client in clients.items()})

    first = plan(0)
    round = server.begin(first)
    one = clients[next((c for c in first.cohort if c not in first.point), 0)]
    contacts_ms = first_meeting(one, round)
    contacts_bytes = ENTRY_BYTES * (len(first.contacts(one.client)) - 1)
    masking_ms = masking(one, first, np.arange(size))
    sharing_ms = sharing(one, first)
    check = cohort * len(RATES) * masking_ms < 1e3 * budget
    results = {rate: attempt(server, clients, plan(1 + i), rate, check=check) for i, rate in enumerate(RATES)}
    return Row(
        cohort=cohort,
        size=size,
        bits=first.bits,
        neighbours=first.degree,
        committee=len(first.committee),
        threshold=first.threshold,
        contacts_ms=contacts_ms,
        masking_ms=masking_ms,
        sharing_ms=sharing_ms,
        reveal_ms=results[max(RATES)]["reveal"],
        accept_ms=results[0.0]["accept"],
        unmask_ms={f"{rate:.0%}": result["unmask"] for rate, result in results.items()},
        payload_bytes=first.ring.packed_size(size),
        shares_bytes=messages.share_bytes(first) + messages.HEADER_BYTES + 64,
        plan_bytes=messages.plan_bytes(first),
        contacts_bytes=contacts_bytes,
        request_bytes=int(results[0.0]["request bytes"]),
        reveal_bytes={f"{rate:.0%}": int(result["reveal bytes"]) for rate, result in results.items()},
        checked=check,
    )


def run(settings: Settings) -> dict[str, Any]:
    """The part of `python -m benchmarks`: rings and committees at every cohort, and at 100 everyone with everyone."""
    cohorts, sizes = ([5, 40], [100]) if settings.quick else ([10, 100, 1000], list(BITS))
    wanted = [(cohort, size, False) for cohort in cohorts for size in sizes]
    wanted += [(cohort, size, True) for cohort in (cohorts[:1] if settings.quick else [100]) for size in sizes]
    rows = []
    for cohort, size, complete in wanted:
        rows.append(measure(cohort, size, complete=complete, budget=60.0))
        note(f"{cohort:,} clients, {size:,} values: masks {rows[-1].masking_ms:.2f} ms")
    return {
        "title": "Masks: what secure aggregation costs",
        "about": "Milliseconds of processor time on one core, for one client's upload (masks, shares), a member's"
        f" answer at {max(RATES):.0%} dropouts (reveal), the server's work for one upload (accept), and all from the"
        f" answers to the sum (open), by dropouts. Committees are sized for {max(RATES):.0%} dropouts; the last rows"
        " have everyone as neighbour and member. k, c, t: neighbours, committee, threshold. Rows with a star did not"
        " compare the opened sum with the plain one, since only the measured client really masked."
        f" cryptography {cryptography.__version__}.",
        "rows": [asdict(row) for row in rows],
        "tables": [_time_table(rows), _byte_table(rows)],
    }


def _time_table(rows: list[Row]) -> dict[str, Any]:
    headings = ["clients", "values", "bits", "k, c, t", "meet, once", "masks", "shares", "reveal", "accept"]
    return {
        "caption": "Milliseconds:",
        "headings": [*headings, *(f"open {rate:.0%}" for rate in RATES)],
        "rows": [
            [
                f"{row.cohort:,}{'' if row.checked else ' *'}",
                f"{row.size:,}",
                str(row.bits),
                f"{row.neighbours}, {row.committee}, {row.threshold}",
                *(_short(v) for v in (row.contacts_ms, row.masking_ms, row.sharing_ms, row.reveal_ms, row.accept_ms)),
                *(_short(value) for value in row.unmask_ms.values()),
            ]
            for row in rows
        ],
    }


def _byte_table(rows: list[Row]) -> dict[str, Any]:
    headings = ["clients", "values", "k, c, t", "masked vector", "rest of an upload", "plan", "keys, once", "request"]
    return {
        "caption": "Bytes for one client:",
        "headings": [*headings, *(f"reveal {rate:.0%}" for rate in RATES)],
        "rows": [
            [
                f"{row.cohort:,}",
                f"{row.size:,}",
                f"{row.neighbours}, {row.committee}, {row.threshold}",
                *(
                    f"{size:,}"
                    for size in (
                        row.payload_bytes,
                        row.shares_bytes,
                        row.plan_bytes,
                        row.contacts_bytes,
                        row.request_bytes,
                        *row.reveal_bytes.values(),
                    )
                ),
            ]
            for row in rows
        ],
    }


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:#.3g}".rstrip(".")
