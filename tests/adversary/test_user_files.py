"""300 generated files of a user's: each is read right or refused in one line, never a traceback, never gigabytes."""

from __future__ import annotations

import contextlib
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
PROCESS = Path("/proc/self")


@pytest.fixture(scope="module", autouse=True)
def no_room_for_18_gigabytes() -> Iterator[None]:
    """Whoever asks for much more than a file can hold gets no memory at all."""
    if not PROCESS.exists():
        yield
        return
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    now = int((PROCESS / "statm").read_text().split()[0]) * resource.getpagesize()
    # Reserved by many threads, gigabytes are no sign of anything; those that are used are watched below.
    resource.setrlimit(resource.RLIMIT_AS, (now + 8 * GIGABYTE, hard))
    yield
    resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def most_memory(*, from_now: bool = False) -> int:
    """The most that this process has used, in bytes; 0 where the system does not tell."""
    if not PROCESS.exists():
        return 0
    if from_now:
        with contextlib.suppress(OSError):
            (PROCESS / "clear_refs").write_text("5")
    status = (PROCESS / "status").read_text().splitlines()
    return next((int(line.split()[1]) << 10 for line in status if line.startswith("VmHWM")), 0)


def test_there_are_300_files_and_no_two_are_called_alike() -> None:
    assert len(CASES) >= 300
    assert len({case.name for case in CASES}) == len(CASES)


@pytest.mark.parametrize("case", [pytest.param(case, id=case.name) for case in CASES])
def test_a_file_is_read_right_or_refused_in_a_line(
    case: Case, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    before = most_memory(from_now=True)
    try:
        found = read(case, tmp_path)
    except LaconicError as error:
        assert case.expected is None or case.leeway, f"refused: {error}"
        assert_one_line(case, str(error))
    else:
        assert case.expected is not None or case.leeway, f"accepted: {found}"
        if case.leeway != ANYTHING_TAME:
            assert_alike(found, case.expected or ())
    assert capfd.readouterr() == ("", "")  # a library may print a traceback of its own
    grown = most_memory() - before
    assert grown < GIGABYTE, f"took {grown >> 20} MiB"


def assert_one_line(case: Case, message: str) -> None:
    lines = message.splitlines()
    if len(lines) > 1 and lines[0].endswith("bad file"):
        lines = [f"{lines[0]} {lines[1].strip()}", *lines[2:]]  # a folder lists its bad files, each in a line
    if len(lines) > 1 and lines[0].endswith("to mend:"):
        lines = [" ".join(line.strip() for line in lines)]  # a table lists its bad columns, each in a line
    assert len(lines) == 1 and lines[0].isprintable() and len(lines[0]) < 1000
    assert (case.culprit or next(iter(case.files))) in message
    assert case.words in message and "memory" not in message


def assert_alike(found: tuple[np.ndarray, ...], expected: tuple[np.ndarray, ...]) -> None:
    assert len(found) == len(expected)
    for ours, theirs in zip(found, expected, strict=True):
        assert ours.shape == theirs.shape
        assert ours.dtype.kind in ("O", "U", "T") or ours.dtype == theirs.dtype
        np.testing.assert_array_equal(ours, theirs)
