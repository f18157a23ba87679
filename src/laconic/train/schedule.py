"""Which records a client trains on in which step, for a whole cohort at once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

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
    whole = per_epoch == 1  # whole-set batches stay in their own order, whoever else is in the cohort
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
