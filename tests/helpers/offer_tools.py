"""Offers of every kind, with what a node has to keep in each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from node_tools import make_offer
from scheme_tools import scheme

from laconic.catalogue import SCHEMES, build_scheme
from laconic.federation.offer import Offer
from laconic.privacy.accounting.sampling import FixedSize, Poisson, Sampler
from laconic.scheme import Scheme

ROUNDS = 12
VOTES = {"top_selection": "votes", "vote_rounds": 2, "vote_ratio": 0.2, "vote_block": 4}


def offered(chosen: Scheme, sampler: Sampler | None = None, **changes: Any) -> Offer:
    sampler = sampler or Poisson(sampling_rate=1.0 if chosen.downlink == "signs" else 0.5)
    return make_offer(scheme=chosen, sampler=sampler, num_clients=40, size=211, rounds=ROUNDS, **changes)


def integer(name: str, **options: Any) -> Scheme:
    record_level = SCHEMES[name].record_level
    return scheme(name, **({"noise": "integer", "noise_multiplier": 1.0} if record_level else {}) | options)


def inside(name: str = "fl-std-dp", **options: Any) -> Scheme:
    """Patients, or records, inside the nodes."""
    given = {"unit": "patient", "clip_norm": 0.7, "noise_multiplier": 2.0, "num_units": 900.0, **options}
    return build_scheme(name, **given)


def evaluated(name: str, **options: Any) -> Scheme:
    plain = scheme(name, **options)
    return replace(plain, evaluations=replace(plain.evaluations, every=3, noise_multiplier=2.5))


CASES: dict[str, Callable[[], Offer]] = {
    **{name: (lambda name=name: offered(integer(name))) for name in SCHEMES if name != "centralized"},
    "votes": lambda: offered(scheme("fl-top-dp", **VOTES, vote_noise_multiplier=1.5)),
    "votes with the same noise": lambda: offered(scheme("fl-top-dp", **VOTES)),
    "votes without noise": lambda: offered(scheme("fl-top", **VOTES)),
    "evaluations": lambda: offered(evaluated("fl-std-dp")),
    "evaluations of signs": lambda: offered(evaluated("fl-sign-dp")),
    "votes and evaluations": lambda: offered(evaluated("fl-top-dp", **VOTES)),
    "replaced clients": lambda: offered(scheme("fl-std-dp"), FixedSize(cohort_size=10)),
    "replaced clients' evaluations": lambda: offered(evaluated("fl-sign-dp"), FixedSize(cohort_size=10)),
    "dropouts": lambda: offered(scheme("fl-std-dp"), Poisson(sampling_rate=1.0), max_dropouts=4, max_colluders=3),
    "drawn dropouts": lambda: offered(scheme("fl-sign-dp"), max_dropouts=1, max_colluders=1),
    "given bits": lambda: offered(scheme("fl-std-dp", bits=24)),
    "given bits of signs": lambda: offered(scheme("fl-sign-dp", bits=20)),
    "room in the ring": lambda: offered(scheme("fl-std-dp", ring_bits=30)),
    "much noise": lambda: offered(scheme("fl-std-dp", noise_multiplier=1e6, clip_norm=1e-9)),
    "groups": lambda: offered(replace(scheme("fl-std-dp"), groups=3), Poisson(sampling_rate=1.0)),
    "a spare round": lambda: offered(scheme("fl-std-dp"), spare_rounds=3),
    "records inside": lambda: offered(inside(unit="record", unit_rate=0.3)),
    "patients inside": lambda: offered(inside(), Poisson(sampling_rate=1.0), max_dropouts=2, max_colluders=1),
    "patients of two nodes": lambda: offered(
        inside(max_owners_per_patient=2, unit_rate=0.4), Poisson(sampling_rate=1.0), spare_rounds=2
    ),
    "patients in a subset": lambda: offered(inside("fl-bas-3-dp", ratio=0.3), FixedSize(cohort_size=10)),
    "steps by class": lambda: offered(integer("fl-std-record-dp", balance="per-class", prevalence=0.2, local_steps=7)),
}
