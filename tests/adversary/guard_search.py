"""Every sequence of messages and of an owner's operations, up to a bound, on one real guard.

States are kept by what matters in them: what the log says, what the process and the server know, what left. A sequence
that ends in a state which another one has reached is not continued. Beyond the bound, sequences are drawn at random.
"""

from __future__ import annotations

import hashlib
import os
import random
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from guard_world import CLIENTS, Killed, Machine, watched

MEMORY = Path("/dev/shm")
EVERYBODY, WITHOUT_ONE, WITHOUT_ANOTHER = (0, 1, 2), (0, 1), (0, 2)
_FULL = OSError(28, "No space left on device")

Step = Callable[[Machine], None]
HONEST: dict[str, Step] = {
    "join a": lambda m: m.join("a"),
    "round 1 of a": lambda m: m.ask("a", 1, 0),
    "round 2 of a": lambda m: m.ask("a", 2, 0),
    "round 2 of a again": lambda m: m.ask("a", 2, 1),
    "ask for the nonce": lambda m: m.learn_nonce("a"),
    "open": lambda m: m.reveal(EVERYBODY),
}
LIES: dict[str, Step] = {
    "the same run, cheaper": lambda m: m.join("cheap"),
    "a round of the cheaper one": lambda m: m.ask("cheap", 1, 0),
    "join b": lambda m: m.join("b"),
    "round 1 of b": lambda m: m.ask("b", 1, 0),
    "the same plan again": Machine.ask_again,
    "open without one": lambda m: m.reveal(WITHOUT_ONE),
    "open without another": lambda m: m.reveal(WITHOUT_ANOTHER),
}
OWNER: dict[str, Step] = {
    "delete the run's folder": Machine.delete_run,
    "back up": Machine.keep_backup,
    "restore in place": Machine.restore,
    "restart": Machine.restart,
    "rotate keys": Machine.rotate,
    "move the folder": Machine.move,
    "change the policy": Machine.change_policy,
    **{f"killed at write {n}": (lambda m, n=n: m.fail_at(n, Killed)) for n in range(3)},
    "disk full at the next write": lambda m: m.fail_at(0, lambda: _FULL),
    "disk full at the write after": lambda m: m.fail_at(1, lambda: _FULL),
}
STEPS = HONEST | LIES | OWNER


class Found(AssertionError):
    """A promise was broken; the message is the sequence that breaks it."""


def explored(depth: int, *, steps: dict[str, Step] = STEPS, seconds: float = 1e9) -> int:
    """Go through every sequence of up to `depth` steps; how many steps were taken."""
    with _machine() as machine:
        start = machine.snapshot()
        layer: list[tuple[tuple[str, ...], tuple[Any, ...]]] = [((), start)]
        known, taken, end = {_key(machine)}, 0, time.monotonic() + seconds
        for _ in range(depth):
            following = []
            for path, state in layer:
                for name, step in steps.items():
                    machine.go_back(state)
                    machine.writes, machine.failure = _armed(path)
                    _do(machine, (*path, name), step)
                    taken += 1
                    key = (_key(machine), _armed((*path, name))[0])
                    if key not in known:
                        known.add(key)
                        following.append(((*path, name), machine.snapshot()))
                if time.monotonic() > end:
                    return taken
            layer = following
        return taken


def wandered(seconds: float, length: int, *, seed: int, steps: dict[str, Step] = STEPS) -> int:
    """Random sequences for so long; how many steps were taken. Honest steps come more often, else little happens."""
    rng, taken, end = random.Random(seed), 0, time.monotonic() + seconds
    names = [*steps, *(name for name in HONEST if name in steps for _ in range(3))]
    with _machine() as machine:
        start = machine.snapshot()
        while time.monotonic() < end:
            machine.go_back(start)
            path: tuple[str, ...] = ()
            for _ in range(length):
                path = (*path, rng.choice(names))
                _do(machine, path, steps[path[-1]])
                taken += 1
    return taken


def replayed(*path: str) -> None:
    """One sequence."""
    with _machine() as machine:
        for number, name in enumerate(path):
            _do(machine, path[: number + 1], STEPS[name])


def _do(machine: Machine, path: tuple[str, ...], step: Step) -> None:
    try:
        step(machine)
        found = machine.complaints()
    except AssertionError as error:
        found = [str(error)]
    if found:
        raise Found(f"{'; '.join(found)}, after: {' → '.join(path)}")


def _armed(path: tuple[str, ...]) -> tuple[int, Callable[[], BaseException]]:
    """A failure that waits for the next message is no part of a snapshot."""
    if path and path[-1].startswith("killed"):
        return int(path[-1][-1]), Killed
    if path and path[-1].startswith("disk full"):
        return int(path[-1].endswith("after")), lambda: _FULL
    return -1, Killed


def _key(machine: Machine) -> str:
    """What matters of a state."""
    columns = ("what", "run", "offer", "round", "attempt")
    rows = [tuple(row.get(name) for name in columns) for row in machine.on_disk()]
    log, asked, current = machine.log, machine.asked, machine.nonces._current
    known = (
        [row for row in rows if row[0] != "refused"],
        sorted(name for name in machine.content()),
        machine.sealed,
        None if log is None else (len(log._rows), log._restored is None),
        sorted(run.hex() for run in current),
        sorted((name, current.get(_run(name)) == nonce) for name, nonce in machine.told.items()),
        sorted((name, _announced(machine, name)) for name in machine.announced),
        asked
        and (
            asked.offer,
            asked.plan.round,
            asked.plan.attempt,
            asked.plan.nonce_of(0) in current.values(),
        ),
        machine.policy,
        sorted((one.run, one.round, one.attempt) for one in machine.left),
        machine.backup and (sorted(machine.backup), machine.backup.get("log.jsonl", b"").count(b"\n")),
    )
    return hashlib.sha256(repr(known).encode()).hexdigest()


def _run(name: str) -> bytes:
    from guard_world import offers

    return offers()[name].run


def _announced(machine: Machine, name: str) -> bool:
    """Whether the node still has the key that it announced."""
    path = machine.node / _run(name).hex() / "agreement.key"
    return path.exists() and hashlib.sha256(path.read_bytes()).digest() != b""


class _machine:
    """A machine in memory, that goes away again."""

    def __enter__(self) -> Machine:
        self._folder = tempfile.TemporaryDirectory(prefix="guard-", dir=MEMORY if MEMORY.is_dir() else None)
        machine = Machine(Path(self._folder.name))
        machine.node.mkdir(mode=0o700)
        (machine.node / "identity.key").write_bytes(b"identity 0".ljust(32, b"."))
        os.chmod(machine.node / "identity.key", 0o600)
        self._watch = watched(machine)
        self._watch.__enter__()
        return machine

    def __exit__(self, *error: Any) -> None:
        self._watch.__exit__(*error)
        self._folder.cleanup()


assert len(EVERYBODY) == CLIENTS
