"""Batches, for any clients."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from laconic.train.batches import batch_schedule
from laconic.train.local import LocalSGD

sizes = st.lists(st.integers(1, 23), min_size=1, max_size=6)


@given(sizes, st.integers(1, 30) | st.none(), st.integers(1, 4))
def test_an_epoch_visits_every_record_once(client_sizes: list[int], batch: int | None, epochs: int) -> None:
    train = LocalSGD(local_lr=0.1, epochs=epochs, batch_size=batch)
    many = np.array(client_sizes)
    schedule = batch_schedule(train, many, np.arange(len(many), dtype=np.uint64))
    for row, size in enumerate(client_sizes):
        per_epoch = int(schedule.steps[row]) // epochs
        assert per_epoch == -(-size // min(batch or size, size))
        for epoch in range(epochs):
            seen = [
                schedule.indices[row, step, : schedule.counts[row, step]]
                for step in range(epoch * per_epoch, (epoch + 1) * per_epoch)
            ]
            assert sorted(np.concatenate(seen)) == list(range(size))
        assert not schedule.counts[row, schedule.steps[row] :].any()


@given(sizes, st.integers(1, 9), st.integers(1, 12))
def test_steps_are_as_many_as_asked(client_sizes: list[int], batch: int, steps: int) -> None:
    train = LocalSGD(local_lr=0.1, local_steps=steps, batch_size=batch)
    many = np.array(client_sizes)
    schedule = batch_schedule(train, many, np.arange(len(many), dtype=np.uint64))
    assert schedule.indices.shape[:2] == (len(many), steps)
    assert (schedule.counts > 0).all()
    assert (schedule.indices < many[:, None, None]).all()


@given(sizes, st.integers(1, 9))
def test_a_client_alone_draws_the_same_batches(client_sizes: list[int], batch: int) -> None:
    train = LocalSGD(local_lr=0.1, local_steps=5, batch_size=batch)
    many, keys = np.array(client_sizes), np.arange(7, 7 + len(client_sizes), dtype=np.uint64)
    together = batch_schedule(train, many, keys)
    for row in range(len(many)):
        alone = batch_schedule(train, many[row : row + 1], keys[row : row + 1])
        for step in range(5):
            count = alone.counts[0, step]
            assert together.counts[row, step] == count
            assert np.array_equal(alone.indices[0, step, :count], together.indices[row, step, :count])


def test_epochs_and_clients_are_shuffled_differently() -> None:
    train = LocalSGD(local_lr=0.1, epochs=2, batch_size=1)
    schedule = batch_schedule(train, np.array([50, 50]), np.array([1, 2], dtype=np.uint64))
    first, second = schedule.indices[0, :50, 0], schedule.indices[0, 50:, 0]
    assert not np.array_equal(first, second)
    assert not np.array_equal(first, schedule.indices[1, :50, 0])
    assert not np.array_equal(first, np.arange(50))
