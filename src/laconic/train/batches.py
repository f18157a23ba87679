"""Which records a client trains on in which step, for a whole cohort at once.

For rare outcomes the batches are balanced: both classes in equal parts, or a loss that counts them alike. Client-level
privacy does not depend on any of this: the update is clipped and noised, however it was trained.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from laconic.errors import ConfigError
from laconic.streams import hashed
from laconic.train.local import LocalSGD


@dataclass(frozen=True)
class Schedule:
    """Record numbers (clients, steps, batch), how many of a batch are real (clients, steps), and steps per client.

    `shares` (clients, steps, batch) say how much of a batch's loss each record is; None: all real ones alike.
    """

    indices: np.ndarray
    counts: np.ndarray
    steps: np.ndarray
    shares: np.ndarray | None = None


def batch_schedule(train: LocalSGD, sizes: np.ndarray, keys: np.ndarray) -> Schedule:
    """Batches drawn without replacement within an epoch; the last batch of an epoch holds what is left.

    `keys` names one stream per client, so a client's batches do not depend on who else is in the cohort. Padding
    repeats record 0 with a count that leaves it out; a client that has finished has count 0.
    """
    batch, steps = train.batch_of(sizes), train.steps_of(sizes)
    per_epoch = -(-sizes // batch)
    num_steps, widest = int(steps.max()), int(batch.max())

    step = np.arange(num_steps)
    epoch, place = step // per_epoch[:, None], step % per_epoch[:, None]  # (clients, steps)
    position = place[:, :, None] * batch[:, None, None] + np.arange(widest)  # (clients, steps, batch)
    last = np.minimum((place + 1) * batch[:, None], sizes[:, None])
    real = (position < last[:, :, None]) & (step < steps[:, None])[:, :, None]

    order = position
    whole = per_epoch == 1  # whole-set batches stay in their own order, so they do not depend on the cohort
    if not whole.all():
        shuffles = _shuffles(sizes, keys, int(epoch.max()) + 1)
        rows = np.arange(len(sizes))[:, None, None]
        shuffled = shuffles[rows, epoch[:, :, None], np.minimum(position, sizes[:, None, None] - 1)]
        order = np.where(whole[:, None, None], position, shuffled)
    return Schedule(np.where(real, order, 0), real.sum(-1), steps)


def _shuffles(sizes: np.ndarray, keys: np.ndarray, num_epochs: int) -> np.ndarray:
    """(clients, epochs, most records): a permutation of 0..size−1 per client and epoch, padding last."""
    records, epochs = np.arange(int(sizes.max()), dtype=np.uint64), np.arange(num_epochs, dtype=np.uint64)
    with np.errstate(over="ignore"):
        per_epoch = hashed(keys.astype(np.uint64)[:, None] + hashed(epochs))
        marks = hashed(per_epoch[:, :, None] + records)
    marks[np.broadcast_to(records >= sizes[:, None, None].astype(np.uint64), marks.shape)] = np.iinfo(np.uint64).max
    return np.argsort(marks, axis=-1, kind="stable")


_DRAWS, _EXTRAS = np.uint64(0x5EED), np.uint64(0xE57A)


def balanced(schedule: Schedule, how: str, labels: np.ndarray, sizes: np.ndarray, keys: np.ndarray) -> Schedule:
    """The schedule with its batches balanced; `labels` (clients, most records) are 0 or 1, padded at will.

    'downsample' keeps as many records of each class as the rarer one has in the batch, chosen at random (CHIL'21
    Alg. 7); a batch with one class only is left out, and the client takes fewer steps. 'oversample' repeats random
    records of the rarer class until both have equally many. 'weights' multiplies a record's loss by n / (2·n_c), where
    n_c of the client's n records are of its class (1 where it has one class only).
    """
    if how == "none":
        return schedule
    _check_labels(labels, sizes)
    if how == "weights":
        return replace(schedule, shares=_shares(schedule, labels, sizes))
    found = _Classes(schedule, labels, keys)
    return _without_gaps(found.downsampled() if how == "downsample" else found.oversampled())


def _check_labels(labels: np.ndarray, sizes: np.ndarray) -> None:
    held = np.arange(labels.shape[1] if labels.ndim == 2 else 0) < sizes[:, None]
    if labels.ndim != 2 or labels.dtype.kind != "i" or not np.isin(labels[held], (0, 1)).all():
        raise ConfigError("⟨balance⟩ needs targets of two classes, 0 and 1: use ⟨balance⟩ none")


class _Classes:
    """Every batch's records by class, in a random order that depends on client, step and place alone."""

    def __init__(self, schedule: Schedule, labels: np.ndarray, keys: np.ndarray) -> None:
        self._schedule, self._keys = schedule, keys
        clients, steps, width = schedule.indices.shape
        self._real = np.arange(width) < schedule.counts[:, :, None]
        label = labels[np.arange(clients)[:, None, None], schedule.indices]
        members = [self._real & (label == c) for c in (0, 1)]
        marks = self._marks(_DRAWS, steps, width)
        last = np.iinfo(np.uint64).max
        self._orders = [np.argsort(np.where(m, marks, last), axis=-1, kind="stable") for m in members]
        self._members, self._sizes = members, np.stack([m.sum(-1) for m in members])

    def downsampled(self) -> Schedule:
        least = self._sizes.min(0)
        keep = np.zeros_like(self._real)
        for order, members in zip(self._orders, self._members, strict=True):
            rank = np.argsort(order, axis=-1, kind="stable")
            keep |= members & (rank < least[:, :, None])
        return _compressed(self._schedule, self._schedule.indices, keep)

    def oversampled(self) -> Schedule:
        rarer = np.where(self._sizes[1] < self._sizes[0], 1, 0)
        least, most = self._sizes.min(0), self._sizes.max(0)
        _, steps, width = self._real.shape
        wanted = np.where(least > 0, most - least, 0)[:, :, None]
        drawn = self._marks(_EXTRAS, steps, width) % np.maximum(least, 1).astype(np.uint64)[:, :, None]
        order = np.where(rarer[:, :, None] == 1, self._orders[1], self._orders[0])
        places = np.take_along_axis(order, drawn.astype(np.int64), axis=-1)
        extras = np.take_along_axis(self._schedule.indices, places, axis=-1)
        indices = np.concatenate([self._schedule.indices, extras], axis=-1)
        keep = np.concatenate([self._real, np.arange(width) < wanted], axis=-1)
        return _compressed(self._schedule, indices, keep)

    def _marks(self, purpose: np.uint64, steps: int, width: int) -> np.ndarray:
        """A random word for every client, step and place."""
        with np.errstate(over="ignore"):
            per_step = hashed(
                hashed(self._keys.astype(np.uint64) + purpose)[:, None] + np.arange(steps, dtype=np.uint64)
            )
            return hashed(per_step[:, :, None] + np.arange(width, dtype=np.uint64)) >> np.uint64(1)


def _compressed(schedule: Schedule, indices: np.ndarray, keep: np.ndarray) -> Schedule:
    """Only what is kept, in its order, and no wider than the widest batch."""
    counts = keep.sum(-1)
    order = np.argsort(~keep, axis=-1, kind="stable")[:, :, : max(1, int(counts.max(initial=1)))]
    chosen = np.take_along_axis(indices, order, axis=-1)
    real = np.arange(order.shape[-1]) < counts[:, :, None]
    return Schedule(np.where(real, chosen, 0), counts, schedule.steps)


def _without_gaps(schedule: Schedule) -> Schedule:
    """Empty batches last: every client takes its steps one after another, then it has finished."""
    order = np.argsort(schedule.counts == 0, axis=1, kind="stable")
    steps = (schedule.counts > 0).sum(1)
    order = order[:, : max(1, int(steps.max(initial=1)))]
    return Schedule(
        np.take_along_axis(schedule.indices, order[:, :, None], axis=1),
        np.take_along_axis(schedule.counts, order, axis=1),
        steps,
    )


def _shares(schedule: Schedule, labels: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """What every record of a batch counts: its class weight over the size of the batch."""
    held = np.arange(labels.shape[1]) < sizes[:, None]
    counts = np.stack([(held & (labels == c)).sum(1) for c in (0, 1)], axis=1)
    weights = sizes[:, None] / np.maximum(1, counts * (counts > 0).sum(1, keepdims=True))
    clients = np.arange(len(sizes))[:, None, None]
    of_record = weights[clients, labels[clients, schedule.indices]]
    real = np.arange(schedule.indices.shape[-1]) < schedule.counts[:, :, None]
    shares: np.ndarray = of_record * real / np.maximum(1, schedule.counts)[:, :, None]
    return shares.astype(np.float32)
