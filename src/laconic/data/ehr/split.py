"""Who holds which admissions, and which are set aside. The records of one patient always stay together."""

from __future__ import annotations

import numpy as np

from laconic.errors import ConfigError, DataError


def split_patients(
    rows: np.ndarray, patients: np.ndarray, fraction: float, rng: np.random.Generator, what: str
) -> tuple[np.ndarray, np.ndarray]:
    """(kept rows, rows set aside): the records of a random fraction of the patients."""
    everyone, whose = np.unique(patients[rows], return_inverse=True)
    count = round(len(everyone) * fraction)
    if fraction > 0 and not 0 < count < len(everyone):
        raise ConfigError(f"{what} {fraction:g} of {len(everyone)} patients leaves nobody on one side")
    return _aside(rows, whose, rng.permutation(len(everyone))[:count])


def set_aside(
    rows: np.ndarray, patients: np.ndarray, count: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """(kept rows, rows set aside): the records of random patients, `count` of them or just above."""
    everyone, whose = np.unique(patients[rows], return_inverse=True)
    order = rng.permutation(len(everyone))
    held = np.cumsum(np.bincount(whose, minlength=len(everyone))[order])
    needed = int(np.searchsorted(held, count)) + 1
    if not 0 < count < len(rows) or needed >= len(everyone):
        raise ConfigError(f"⟨public-records⟩ {count} must leave some of the {len(rows)} records")
    return _aside(rows, whose, order[:needed])


def virtual_hospitals(
    rows: np.ndarray, patients: np.ndarray, labels: np.ndarray, num_hospitals: int, rng: np.random.Generator
) -> list[np.ndarray]:
    """The rows of N hospitals with equally many patients, at least one of whom has the outcome (EuroS&P A.1)."""
    everyone, whose = np.unique(patients[rows], return_inverse=True)
    ill = np.bincount(whose, weights=labels[rows], minlength=len(everyone)) > 0
    if ill.sum() < num_hospitals:
        raise ConfigError(
            f"{num_hospitals} virtual hospitals need as many patients with the outcome, but {ill.sum()} have it among"
            " the training records: lower ⟨num-clients⟩ (virtual_hospitals in the schema)"
        )
    first = rng.permutation(np.flatnonzero(ill))[:num_hospitals]
    owner = np.full(len(everyone), -1)
    owner[first] = np.arange(num_hospitals)
    size, larger = divmod(len(everyone), num_hospitals)
    places = np.repeat(np.arange(num_hospitals), size - 1 + (np.arange(num_hospitals) < larger))
    owner[rng.permutation(np.flatnonzero(owner < 0))] = places
    return _grouped(rows, owner[whose], num_hospitals)


def dealt_out(rows: np.ndarray, patients: np.ndarray, num_clients: int, rng: np.random.Generator) -> list[np.ndarray]:
    """The rows of N clients with equally many patients, whoever has the outcome."""
    everyone, whose = np.unique(patients[rows], return_inverse=True)
    if len(everyone) < num_clients:
        raise ConfigError(
            f"⟨num-clients⟩ {num_clients} (virtual_hospitals in the schema) is more than the {len(everyone)} patients"
            " or rows to train on: lower it"
        )
    return _grouped(rows, (rng.permutation(len(everyone)) % num_clients)[whose], num_clients)


def hospitals(
    rows: np.ndarray, patients: np.ndarray, clients: np.ndarray, min_records: int, max_owners: int = 1
) -> tuple[list[np.ndarray], np.ndarray, int]:
    """(the rows of every hospital, which hospitals they are, how many records are left out).

    A patient who was in more than `max_owners` hospitals belongs to those with most of the records, the lowest numbers
    among equals; the records elsewhere are left out. So are hospitals with fewer than `min_records`.
    """
    whose, where = patients[rows], clients[rows]
    visits, visit, counts = np.unique(np.stack([whose, where]), axis=1, return_inverse=True, return_counts=True)
    order = np.lexsort((visits[1], -counts, visits[0]))
    first = np.flatnonzero(np.concatenate([[True], np.diff(visits[0][order]) > 0]))  # where each patient begins
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(len(order)) - np.repeat(first, np.diff(first, append=len(order)))
    kept = (rank < max_owners)[visit.reshape(-1)]
    sizes = np.bincount(where[kept])
    large = np.flatnonzero(sizes >= min_records)
    if len(large) == 0:
        raise DataError(f"no client has {min_records} or more records: lower min_client_records")
    number = np.full(len(sizes), -1)
    number[large] = np.arange(len(large))
    kept[kept] = number[where[kept]] >= 0
    return _grouped(rows[kept], number[where[kept]], len(large)), large, int((~kept).sum())


def _aside(rows: np.ndarray, whose: np.ndarray, chosen: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    picked = np.zeros(int(whose.max()) + 1, dtype=bool)
    picked[chosen] = True
    return rows[~picked[whose]], rows[picked[whose]]


def _grouped(rows: np.ndarray, owner: np.ndarray, num_owners: int) -> list[np.ndarray]:
    ends = np.cumsum(np.bincount(owner, minlength=num_owners))
    return np.split(rows[np.argsort(owner, kind="stable")], ends[:-1])
