"""Balanced batches hold both classes in equal parts, whoever else is in the cohort."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from laconic.errors import ConfigError
from laconic.train.batches import Schedule, balanced, batch_schedule
from laconic.train.local import LocalSGD

sizes = st.lists(st.integers(1, 30), min_size=1, max_size=5)
trains = st.one_of(
    st.builds(LocalSGD, local_lr=st.just(0.1), local_steps=st.integers(1, 6), batch_size=st.integers(1, 12)),
    st.builds(LocalSGD, local_lr=st.just(0.1), epochs=st.integers(1, 3), batch_size=st.integers(1, 12)),
    st.builds(LocalSGD, local_lr=st.just(0.1), local_steps=st.integers(1, 4)),
)


def drawn(train: LocalSGD, many: np.ndarray, seed: int, how: str) -> tuple[Schedule, Schedule, np.ndarray]:
    """(the plain schedule, the balanced one, labels)."""
    keys = np.arange(len(many), dtype=np.uint64) + np.uint64(seed)
    labels = (np.random.default_rng(seed).random((len(many), int(many.max()))) < 0.25).astype(np.int64)
    plain = batch_schedule(train, many, keys)
    return plain, balanced(plain, how, labels, many, keys), labels


def batches(schedule: Schedule, client: int) -> list[list[int]]:
    steps = zip(schedule.indices[client], schedule.counts[client], strict=True)
    return [index[:count].tolist() for index, count in steps]


@given(train=trains, many=sizes, seed=st.integers(0, 1000))
def test_downsampling_keeps_as_many_of_each_class_as_the_rarer_has(train: LocalSGD, many: list[int], seed: int) -> None:
    plain, found, labels = drawn(train, np.array(many), seed, "downsample")
    assert found.indices.shape[-1] == max(1, found.counts.max())
    for client, label in enumerate(labels):
        expected = []
        for batch in batches(plain, client):
            ones = int(label[batch].sum())
            least = min(ones, len(batch) - ones)
            if least:
                expected.append((batch, least))
        got = [batch for batch in batches(found, client) if batch]
        assert len(got) == len(expected) == found.steps[client]
        assert not any(batches(found, client)[len(got) :])  # empty ones are last
        for batch, (whole, least) in zip(got, expected, strict=True):
            assert len(set(batch)) == len(batch) == 2 * least and set(batch) <= set(whole)
            assert label[batch].sum() == least


@given(train=trains, many=sizes, seed=st.integers(0, 1000))
def test_oversampling_repeats_the_rarer_class(train: LocalSGD, many: list[int], seed: int) -> None:
    plain, found, labels = drawn(train, np.array(many), seed, "oversample")
    for client, label in enumerate(labels):
        whole = [batch for batch in batches(plain, client) if batch]
        got = [batch for batch in batches(found, client) if batch]
        assert len(got) == len(whole)
        for batch, before in zip(got, whole, strict=True):
            ones = int(label[before].sum())
            assert batch[: len(before)] == before and set(batch) == set(before)
            if 0 < ones < len(before):
                assert 2 * label[batch].sum() == len(batch) == 2 * max(ones, len(before) - ones)
            else:
                assert batch == before


@given(train=trains, many=sizes, seed=st.integers(0, 1000))
def test_class_weights_are_those_of_scikit_learn(train: LocalSGD, many: list[int], seed: int) -> None:
    from sklearn.utils.class_weight import compute_sample_weight

    plain, found, labels = drawn(train, np.array(many), seed, "weights")
    assert found.shares is not None and np.array_equal(found.indices, plain.indices)
    for client, size in enumerate(many):
        weights = compute_sample_weight("balanced", labels[client, :size])
        for step, batch in enumerate(batches(plain, client)):
            shares = found.shares[client, step]
            assert np.allclose(shares[: len(batch)], weights[batch] / max(1, len(batch)), atol=1e-6)
            assert not shares[len(batch) :].any()


@given(
    train=trains, many=sizes, seed=st.integers(0, 1000), how=st.sampled_from(["downsample", "oversample", "weights"])
)
def test_a_client_is_balanced_alike_whoever_else_is_there(
    train: LocalSGD, many: list[int], seed: int, how: str
) -> None:
    array = np.array(many)
    _, together, labels = drawn(train, array, seed, how)
    keys = np.arange(len(many), dtype=np.uint64) + np.uint64(seed)
    for client in range(len(many)):
        one = slice(client, client + 1)
        plain = batch_schedule(train, array[one], keys[one])
        alone = balanced(plain, how, labels[one, : many[client]], array[one], keys[one])
        mine = batches(together, client)
        assert batches(alone, 0)[: alone.steps[0]] == mine[: together.steps[client]]
        assert alone.steps[0] == together.steps[client]


def test_steps_draw_other_records_of_the_common_class() -> None:
    train = LocalSGD(local_lr=0.1, local_steps=6)
    labels = np.array([[1, 1] + [0] * 40])
    keys = np.array([9], dtype=np.uint64)
    plain = batch_schedule(train, np.array([42]), keys)
    found = balanced(plain, "downsample", labels, np.array([42]), keys)
    assert found.counts.tolist() == [[4] * 6] and found.indices.shape == (1, 6, 4)
    common = {tuple(sorted(set(batch) - {0, 1})) for batch in batches(found, 0)}
    assert len(common) == 6


@pytest.mark.parametrize("labels", [np.array([[0, 2]]), np.array([[0.5, 1.0]]), np.zeros((1, 2, 3), dtype=np.int64)])
def test_other_targets_are_refused(labels: np.ndarray) -> None:
    train, many, keys = LocalSGD(local_lr=0.1, local_steps=1), np.array([2]), np.zeros(1, dtype=np.uint64)
    plain = batch_schedule(train, many, keys)
    with pytest.raises(ConfigError, match="--balance needs targets of two classes"):
        balanced(plain, "downsample", labels, many, keys)
