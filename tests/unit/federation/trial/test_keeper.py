"""Processes of a trial that are started again, and the order in which all of them end."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("flwr", reason="flwr is not installed: pip install '.[flower]'")

from laconic.federation.trial import guard
from laconic.federation.trial.processes import HEALTHY, MOST_STARTS, PAUSES, Keeper


class Ending:
    """A process that ends when a test says so."""

    def __init__(self) -> None:
        self.status: int | None = None

    def poll(self) -> int | None:
        return self.status


class Bench:
    """One kept process, a clock that a test turns, and what was told."""

    def __init__(self) -> None:
        self.now, self.started, self.told = 0.0, list[Ending](), list[str]()
        self.keeper = Keeper(clock=lambda: self.now)
        self.keeper.keep("node 3's SuperNode", self.start)

    def start(self) -> Any:
        self.started.append(Ending())
        return self.started[-1]

    def end(self, status: int) -> None:
        self.started[-1].status = status
        self.keeper.look(self.told.append)

    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.keeper.look(self.told.append)


def test_a_process_that_ends_is_started_again() -> None:
    bench = Bench()
    bench.wait(HEALTHY)
    bench.end(-9)
    assert len(bench.started) == 1
    bench.wait(PAUSES[0])
    assert len(bench.started) == 2
    assert bench.told == ["node 3's SuperNode ended (signal 9) and is started again"]


def test_one_that_a_superlink_turns_away_is_started_until_it_is_let_in() -> None:
    """For a minute after it was killed: more than ten starts, and two lines about them at most."""
    bench = Bench()
    while bench.now < 60:
        bench.end(1)
        bench.wait(PAUSES[-1])
    assert 10 < len(bench.started) < MOST_STARTS
    assert len(bench.told) <= 2
    bench.wait(HEALTHY)
    bench.end(1)
    bench.wait(PAUSES[0])
    assert bench.started[-1].status is None


def test_one_that_never_stays_up_is_left_alone() -> None:
    bench = Bench()
    for _ in range(2 * MOST_STARTS):
        bench.end(1)
        bench.wait(PAUSES[-1])
    assert len(bench.started) == MOST_STARTS
    assert bench.told[-1] == f"node 3's SuperNode ended {MOST_STARTS} times in a row and is not started again"


def test_the_server_ends_before_its_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that saw its nodes sign off would discard the round."""
    ended: list[list[int]] = []
    monkeypatch.setattr(guard, "end_groups", lambda groups: ended.append(list(groups)))
    guard.end_in_waves([(1, 11), (1, 12), (0, 10), (0, 13)])
    assert ended == [[10, 13], [11, 12]]
    monkeypatch.setattr("sys.stdin", ["1 21\n", "0 20\n"])
    monkeypatch.setattr(guard, "signal", SimpleNamespace(SIGINT=2, SIGTERM=15, SIGHUP=1, SIG_IGN=0, signal=print))
    guard.main()
    assert ended[2:] == [[20], [21]]
