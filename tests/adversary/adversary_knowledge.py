"""What server and colluders can compute from all that they have seen.

`Watch` notes which masks a client really added to which vector, without changing what it does. `Knowledge` opens every
seed for which there are enough shares, and finds every combination of uploads whose masks cancel or are known.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from adversary_world import Attempt, World, node_of

from laconic.guard import protect
from laconic.guard.contract import PARTS, Release
from laconic.guard.noise import MEAN_BITS
from laconic.secagg import client as client_module
from laconic.secagg import messages
from laconic.secagg.client import SecAggClient
from laconic.secagg.crypto.keys import PublicKeys, RunKey, share_key
from laconic.secagg.crypto.shamir import PRIME, from_limbs, reconstruct
from laconic.secagg.shares import num_secrets, pads, secrets_to_open
from laconic.secagg.terms import SumPlan, Terms


@dataclass
class Masked:
    """One upload of an honest client: its vector, its masks (seed → +1 or −1), and what it sent."""

    node: int
    client: int
    """The number that the node has in the run."""
    plan: SumPlan
    vector: np.ndarray
    masks: dict[bytes, int]
    data: bytes

    @property
    def residues(self) -> np.ndarray:
        return self.vector.astype(np.uint64) & np.uint64(2**self.plan.bits - 1)


class Watch:
    """Notes every upload that leaves a `SecAggClient`, with the masks that were added to it."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.uploads: list[Masked] = []
        mask, add_masks = SecAggClient.mask, client_module.add_masks
        masks: dict[bytes, int] = {}

        def noted_masks(words: np.ndarray, *, plus: Iterable[bytes] = (), minus: Iterable[bytes] = ()) -> None:
            for sign, seeds in ((1, plus), (-1, minus)):
                for seed in seeds:
                    masks[seed] = masks.get(seed, 0) + sign
            add_masks(words, plus=plus, minus=minus)

        def noted_upload(client: SecAggClient, vector: np.ndarray) -> bytes:
            plan = client._current()
            masks.clear()
            data = mask(client, vector)
            self.uploads.append(
                Masked(node_of(client._identity), client.client, plan, vector.copy(), dict(masks), data)
            )
            return data

        self.norms: list[float] = []
        """Of every code around which noise was drawn: its norm in units of the bound S."""
        drawn, residues = protect.noisy_residues, protect.residues
        bounds: list[float] = []

        def noted_release(release: Release, vector: Any, **options: Any) -> Any:
            bounds.append(math.inf if release.clip == PARTS else release.units * release.sensitivity)
            return residues(release, vector, **options)

        def noted_noise(fixed: np.ndarray, scale: float, bits: int, source: Any, *, whole: bool) -> Any:
            point = fixed.astype(np.float64) / (1 if whole else 1 << MEAN_BITS)
            self.norms.append(float(np.linalg.norm(point)) / bounds[-1])
            return drawn(fixed, scale, bits, source, whole=whole)

        patch.setattr(protect, "residues", noted_release)
        patch.setattr(protect, "noisy_residues", noted_noise)
        patch.setattr(client_module, "add_masks", noted_masks)
        patch.setattr(SecAggClient, "mask", noted_upload)


@dataclass
class Opening:
    """A combination of honest uploads in which every mask cancels or is known: its sum is bare."""

    terms: list[tuple[int, Masked]]
    """(coefficient, upload)"""

    @property
    def nodes(self) -> set[int]:
        return {upload.node for _, upload in self.terms}

    def total(self) -> np.ndarray:
        """The sum of the vectors behind the masks."""
        bits = self.terms[0][1].plan.bits
        total = sum(c * upload.residues.astype(object) for c, upload in self.terms)
        return np.array([int(value) % 2**bits for value in total])


class Knowledge:
    """All that server and colluders can compute from what they have."""

    def __init__(self, world: World, watch: Watch) -> None:
        self.world, self.watch = world, watch

    def seeds(self) -> set[bytes]:
        """Every seed that they can compute."""
        known: set[bytes] = set()
        for attempt in self.world.attempts:
            if not attempt.uploads:
                continue
            own = self._own_clients(attempt)
            known |= self._pair_seeds(attempt, own)
            known |= self._opened(attempt, own)
        return known

    def openings(self) -> list[Opening]:
        """A basis of what can be opened: combinations of uploads without a mask that is not known."""
        known = self.seeds()
        hidden = [{seed: sign for seed, sign in upload.masks.items() if seed not in known} for upload in self._seen()]
        return [
            Opening([(coefficient, self._seen()[i]) for i, coefficient in enumerate(row) if coefficient])
            for row in left_null_space(hidden)
        ]

    def _seen(self) -> list[Masked]:
        received = {data for attempt in self.world.attempts for data in attempt.uploads.values()}
        return [upload for upload in self.watch.uploads if upload.data in received]

    def _own_clients(self, attempt: Attempt) -> dict[int, SecAggClient]:
        """The colluders of the attempt's roster, as far as the adversary has their keys."""
        roster = [entry.keys for entry in attempt.told.entries]
        return {
            entry.keys.client: _Insider(entry.keys.client, attempt.plan.terms, entry.private, roster)
            for entry in attempt.told.entries
            if entry.private is not None and entry.keys.client in attempt.plan.position
        }  # type: ignore[return-value]

    def _pair_seeds(self, attempt: Attempt, own: Mapping[int, Any]) -> set[bytes]:
        plan = attempt.plan
        return {
            insider.pair_seed(plan, other)
            for insider in own.values()
            for other in insider.known & set(plan.neighbours(insider.client))
        }

    def _opened(self, attempt: Attempt, own: Mapping[int, Any]) -> set[bytes]:
        plan = attempt.plan
        dealings = {}
        for data in attempt.uploads.values():
            message, _, dealing = messages.read_upload(data, plan)
            dealings[message.sender] = dealing
        points: dict[tuple[int, int], dict[int, np.ndarray]] = defaultdict(dict)
        for survivors, data in attempt.reveals:
            wanted = [(j, place) for j, places in secrets_to_open(plan, survivors).items() for place in places]
            message, opened = messages.read_reveal(data, plan, len(wanted))
            for secret, pad in zip(wanted, opened, strict=True):
                points[secret][plan.point[message.sender]] = pad
        for member in own.keys() & plan.point.keys():
            for dealer in dealings:
                for place, pad in enumerate(own[member].pads_of(plan, dealer)):
                    points[dealer, place][plan.point[member]] = pad
        seeds = set()
        for (dealer, place), some in points.items():
            if dealer not in dealings or len(some) < plan.threshold:
                continue
            corrections = dealings[dealer].corrections(plan)[:, place]
            chosen = list(some.items())[: plan.threshold]
            shares = [
                (pad + corrections[point - plan.threshold]) % PRIME if point >= plan.threshold else pad
                for point, pad in chosen
            ]
            (seed,) = from_limbs(reconstruct(tuple(point for point, _ in chosen), np.stack(shares))[None])
            if seed is not None:
                seeds.add(seed)
        return seeds


class _Insider:
    """What a colluder can derive with its key."""

    def __init__(self, client: int, terms: Terms, private: RunKey, roster: list[PublicKeys]) -> None:
        from laconic.secagg.crypto.keys import KeyBook, PairSecrets

        book = KeyBook(terms.context)
        book._known = {entry.client: entry for entry in roster}  # the adversary need not check anything
        self.known = set(book._known)
        self.client, self._pairs = client, PairSecrets(terms.context, client, private, book)

    def pair_seed(self, plan: SumPlan, other: int) -> bytes:
        return client_module.pair_seed(self._pairs[other], plan.hash, self.client, other)

    def pads_of(self, plan: SumPlan, dealer: int) -> np.ndarray:
        key = share_key(self._pairs[dealer], plan.hash, dealer, self.client)
        some: np.ndarray = pads([key], num_secrets(plan))[0]
        return some


def left_null_space(rows: Sequence[Mapping[bytes, int]]) -> list[list[int]]:
    """A basis of the combinations of the rows that are zero in every column, in reduced form, over a prime field.

    In reduced form the supports are as small as they can be, so a small opening is not hidden behind a large one.
    """
    prime = 2**31 - 1
    columns = {seed: number for number, seed in enumerate({seed for row in rows for seed in row})}
    matrix = [[0] * len(columns) + [int(i == j) for j in range(len(rows))] for i in range(len(rows))]
    for values, row in zip(matrix, rows, strict=True):
        for seed, sign in row.items():
            values[columns[seed]] = sign % prime
    reduced = _reduce(matrix, range(len(columns)), prime)
    null = [row[len(columns) :] for row in reduced if not any(row[: len(columns)])]
    basis = _reduce(null, range(len(rows)), prime)
    return [[value if value <= prime // 2 else value - prime for value in row] for row in basis if any(row)]


def _reduce(matrix: list[list[int]], columns: Iterable[int], prime: int) -> list[list[int]]:
    """Gauss and Jordan."""
    done = 0
    for column in columns:
        pivot = next((i for i in range(done, len(matrix)) if matrix[i][column]), None)
        if pivot is None:
            continue
        matrix[done], matrix[pivot] = matrix[pivot], matrix[done]
        inverse = pow(matrix[done][column], -1, prime)
        matrix[done] = [value * inverse % prime for value in matrix[done]]
        for i, row in enumerate(matrix):
            if i != done and row[column]:
                factor = row[column]
                matrix[i] = [(a - factor * b) % prime for a, b in zip(row, matrix[done], strict=True)]
        done += 1
    return matrix
