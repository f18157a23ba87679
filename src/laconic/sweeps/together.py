"""Runs side by side: what runs of one shape train in a round becomes one large cohort, and each goes on alone with it.

Every run is a thread with state, folder and streams of its own, and one of them goes at a time. Where a run asks its
engine for updates it waits. When all wait, the tasks that can be trained together are, in the main thread, and the runs
go on. A run that ends makes room for the next one.
"""

from __future__ import annotations

import hashlib
import json
import secrets
import threading
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any

from laconic.errors import Failure
from laconic.observers.observer import Row, Together
from laconic.settings.config import RunConfig
from laconic.sweeps.jobs import Reporting, Runnable, Watch, failure_of
from laconic.train.engines.cohort import CohortAtOnce
from laconic.train.engines.engine import Engine, Task, Trained, Updates
from laconic.train.engines.joint import JointCohort, alike
from laconic.train.flat import FlatModel

MOST = 16
"""Runs side by side, unless the user says otherwise."""


def side_by_side(jobs: Sequence[Runnable], watch: Watch, *, most: int | None = None) -> None:
    """Run the jobs, so many of them at once."""
    session, waiting = _Session(), deque(jobs)
    members: list[_Member] = []
    try:
        while waiting or members:
            while waiting and len(members) < (most or MOST):
                members.append(_Member(waiting.popleft(), session, watch))
                members[-1].go_on()
            members = _still_there(members, watch)
            for group in session.groups(members):
                answers = session.train(group)
                for member, answer in zip(group, answers, strict=True):
                    member.go_on(answer)
            members = _still_there(members, watch)
    except KeyboardInterrupt:
        for member in sorted(members, key=lambda one: one.waits):
            member.interrupt()
        raise


def _still_there(members: list[_Member], watch: Watch) -> list[_Member]:
    for member in members:
        if member.ended:
            watch.ended(member.job.name, member.failure)
    return [member for member in members if not member.ended]


class _Member:
    """A run in its thread. Either the thread goes on, or the caller of `go_on` does; never both."""

    def __init__(self, job: Runnable, session: _Session, watch: Watch) -> None:
        self.job, self.session = job, session
        self.asked: tuple[_Seat, Task] | None = None
        self.failure: Failure | None = None
        self.ended = self._stop = False
        self._answer: Trained | Exception | None = None
        self._go, self._back = threading.Semaphore(0), threading.Semaphore(0)
        self._thread = threading.Thread(target=self._run, args=(Reporting(job.name, watch),), daemon=True)

    def go_on(self, answer: Trained | Exception | None = None) -> None:
        """Let the run go on with what was trained, until it asks for more or ends."""
        self._answer, self.asked = answer, None
        if self._thread.ident is None:
            self._thread.start()
        else:
            self._go.release()
        self._back.acquire()

    @property
    def waits(self) -> bool:
        """Whether the run waits for its task to be trained, or has ended."""
        return self.asked is not None or self.ended

    def interrupt(self) -> None:
        """Let the run finish its round by itself, save its state and end.

        The round is charged already, and could not be replayed: to give it up would cost ε.
        """
        self._stop, self._answer = True, None
        if self._thread.ident is not None:
            self._go.release()
            self._thread.join()

    def trained(self, seat: _Seat, task: Task) -> Trained | None:
        """Called by the run: wait until its task is trained; None: it shall train alone."""
        if self._stop:
            return None
        self.asked = (seat, task)
        self._back.release()
        self._go.acquire()
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer

    def _run(self, watch: Reporting) -> None:
        try:
            self.job.go(Together(watch, self._end_of_round), self._seated)
        except KeyboardInterrupt:
            pass
        except BaseException as error:
            self.failure = failure_of(error)
        finally:
            self.ended = True
            self._back.release()

    def _end_of_round(self, row: Row) -> None:
        if self._stop:
            raise KeyboardInterrupt

    def _seated(self, engine: Engine) -> Engine:
        """Put a `_Seat` in front of an engine that can train several runs at once; others stay as they are."""
        return _Seat(engine, self) if isinstance(engine, CohortAtOnce) else engine


class _Seat:
    """Stands in for a run's engine: hands its task to the session and waits for the updates."""

    def __init__(self, engine: CohortAtOnce, member: _Member) -> None:
        self._member, self.engine = member, engine
        # Who else is trained changes the last bits. So no other session may take its rounds for replays of these:
        # a round that a kill cut off is charged again and has new noise.
        self.name = f"{engine.name}, side by side in session {member.session.name}"
        self.shape = shape_of(engine, member.job.config)

    @property
    def at_once(self) -> int:
        return self.engine.at_once

    def updates(self, task: Task) -> Iterator[Updates]:
        trained = self._member.trained(self, task)
        if trained is None:
            yield from self.engine.updates(task)
        else:
            yield task.then(trained)


class _Session:
    """The runs that are trained together, and the engines that train them."""

    def __init__(self) -> None:
        self.name = secrets.token_hex(4)
        self._joint: dict[Hashable, JointCohort] = {}

    def groups(self, members: Sequence[_Member]) -> Iterator[list[_Member]]:
        """Runs whose tasks can be trained together. Attackers come first: their runs are in the middle of a round."""
        found: dict[tuple[Hashable, ...], list[_Member]] = {}
        asking = [(member, *member.asked) for member in members if member.asked is not None]
        attacking = [one for one in asking if one[2].path[0] == "attack"]
        for member, seat, task in attacking or asking:
            found.setdefault((seat.shape, alike(task.train), task.path[0]), []).append(member)
        for group in found.values():
            shape = _asked(group[0])[0].shape
            tasks = [task for _, task in map(_asked, group)]
            size = max(1, self._cohort(shape, group[0]).runs_at_once(tasks))
            yield from (group[start : start + size] for start in range(0, len(group), size))

    def train(self, group: Sequence[_Member]) -> Sequence[Trained | Exception | None]:
        """Train one task of each run together; None for a run that has to train alone."""
        if len(group) == 1:
            return [None]
        seat, _ = _asked(group[0])
        try:
            return self._cohort(seat.shape, group[0]).train([task for _, task in map(_asked, group)])
        except Exception as error:
            return [error] * len(group)

    def _cohort(self, shape: Hashable, member: _Member) -> JointCohort:
        if shape not in self._joint:
            self._joint[shape] = JointCohort(_asked(member)[0].engine)
        return self._joint[shape]


def _asked(member: _Member) -> tuple[_Seat, Task]:
    assert member.asked is not None
    return member.asked


def shape_of(engine: CohortAtOnce, config: RunConfig) -> Hashable:
    """Equal for engines that may stand in for each other: the same network, constants, loss, records and device."""
    with_ = engine.vectorised
    model, example = with_.model, with_.model.example
    settings = json.dumps(config.to_dict()["model"], sort_keys=True, default=str)
    loss: Callable[..., Any] = model.loss
    records = tuple((tuple(t.shape[1:]), t.dtype) for t in example)
    network = (repr(model.module), tuple(model.names), tuple(model.shapes), _constants(model))
    how = (str(with_.device), with_.precision, engine.chunk)
    return (settings, getattr(loss, "__qualname__", repr(loss)), records, network, how)


def _constants(model: FlatModel) -> str:
    """A digest of what is not trained: buffers and frozen parameters. Of a random start, it differs between seeds."""
    digest = hashlib.blake2b(digest_size=16)
    dropout = {f"{name}.key" for name in model._dropout_names}
    frozen = [(n, p) for n, p in model.module.named_parameters() if not p.requires_grad]
    for name, value in [*frozen, *((n, b) for n, b in model.module.named_buffers() if n not in dropout)]:
        digest.update(f"{name} {tuple(value.shape)} {value.dtype}".encode())
        digest.update(value.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()
