"""What all tests share: small federations, and hypothesis without deadlines (CI machines are shared)."""

from __future__ import annotations

import os
from collections.abc import Iterator

import hypothesis
import numpy as np
import pytest
import torch
from torch import Tensor

from laconic.data.population import PooledPopulation, Records
from laconic.errors import on_command_line, speaking

hypothesis.settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True)
hypothesis.settings.load_profile("ci")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    wanting = {
        "realdata": ("LACONIC_DATA", "the original data files are not at hand"),
        "slow": ("LACONIC_SLOW", "this test takes minutes"),
    }
    for marker, (variable, why) in wanting.items():
        if not os.environ.get(variable):
            skip = pytest.mark.skip(reason=f"{variable} is not set: {why}")
            for item in items:
                if marker in item.keywords:
                    item.add_marker(skip)


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def words_of_the_command_line() -> Iterator[None]:
    """Tests compare messages as the command line prints them; `test_words` has the words of the other surfaces."""
    with speaking(on_command_line):
        yield


@pytest.fixture
def noise_by_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    """All runs of a seed draw the same noise, so that the rest of what they do can be compared bit for bit."""
    monkeypatch.setattr("laconic.clients.simulated.noise_name", lambda experiment: "")


def make_records(count: int, *, features: int = 6, classes: int = 3, seed: int = 0) -> Records:
    """Records of well separated Gaussian classes."""
    rng = np.random.default_rng(seed)
    means = np.random.default_rng(99).normal(size=(classes, features)) * 2
    labels = rng.integers(0, classes, count)
    inputs = (means[labels] + rng.normal(size=(count, features))).astype(np.float32)
    return Records(torch.from_numpy(inputs), torch.from_numpy(labels))


def make_population(sizes: list[int], **options: int) -> PooledPopulation:
    """A population with clients of these sizes."""
    ends = np.cumsum(sizes)
    rows = [np.arange(end - size, end) for size, end in zip(sizes, ends, strict=True)]
    return PooledPopulation(make_records(int(ends[-1]), **options), rows)


@pytest.fixture
def population() -> PooledPopulation:
    return make_population([4, 9, 1, 12, 7, 5, 3, 8])


@pytest.fixture
def test_records() -> Records:
    return make_records(200, seed=1)


def assert_close(a: Tensor, b: Tensor, tolerance: float = 1e-5) -> None:
    assert a.shape == b.shape
    assert float((a - b).abs().max()) <= tolerance * max(1.0, float(b.abs().max()))
