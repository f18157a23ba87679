"""300 generated files of a user's: each is read right or refused in one line, never a traceback, never gigabytes."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from array_cases import array_cases
from damage_cases import damage_cases
from health_cases import health_cases
from table_cases import table_cases
from user_file_tools import ANYTHING_TAME, Case, read

from laconic.errors import LaconicError

CASES = [*array_cases(), *table_cases(), *health_cases(), *damage_cases()]
GIGABYTE = 1 << 30


@pytest.fixture(scope="module", autouse=True)
def no_gigabytes() -> Iterator[None]:
    """A reader that takes a gigabyte gets no more, and what is taken in all stays below one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    statm = Path("/proc/self/statm")
    if statm.exists():
        now = int(statm.read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (now + 2 * GIGABYTE, hard))
    yield
    resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def test_there_are_300_files_and_no_two_are_called_alike() -> None:
    assert len(CASES) >= 300
    assert len({case.name for case in CASES}) == len(CASES)


@pytest.mark.parametrize("case", [pytest.param(case, id=case.name) for case in CASES])
def test_a_file_is_read_right_or_refused_in_a_line(case: Case, tmp_path: Path) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    try:
        found = read(case, tmp_path)
    except LaconicError as error:
        assert case.expected is None or case.leeway, f"refused: {error}"
        assert_one_line(case, str(error))
    else:
        assert case.expected is not None or case.leeway, f"accepted: {found}"
        if case.leeway != ANYTHING_TAME:
            assert_alike(found, case.expected or ())
    grown = 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
    assert grown < GIGABYTE, f"took {grown >> 20} MiB"


def assert_one_line(case: Case, message: str) -> None:
    lines = message.splitlines()
    if len(lines) > 1 and lines[0].endswith("bad file"):
        lines = [f"{lines[0]} {lines[1].strip()}", *lines[2:]]  # a folder lists its bad files, each in a line
    assert len(lines) == 1 and lines[0].isprintable() and len(lines[0]) < 1000
    assert (case.culprit or next(iter(case.files))) in message
    assert case.words in message and "memory" not in message


def assert_alike(found: tuple[np.ndarray, ...], expected: tuple[np.ndarray, ...]) -> None:
    assert len(found) == len(expected)
    for ours, theirs in zip(found, expected, strict=True):
        assert ours.shape == theirs.shape
        assert ours.dtype.kind in ("O", "U", "T") or ours.dtype == theirs.dtype
        np.testing.assert_array_equal(ours, theirs)
