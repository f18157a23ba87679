"""A search for lies that work: hypothesis plays the server and the colluders, message by message.

The server may tell nodes different offers, numbers, rosters, plans and survivor sets, in any order and for any round
and attempt, replay what was sent, and leave out whomever it likes. The colluders sign whatever helps. After every
example nothing may be open that `adversary_promises` forbids.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from adversary_knowledge import Watch
from adversary_promises import complaints, leaks
from adversary_world import Attempt, Entry, Told, World, make_offer
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from laconic.errors import ConfigError
from laconic.federation.offer import Offer
from laconic.privacy.accounting.sampling import Poisson
from laconic.secagg.crypto.keys import RunKey

CLIENTS, COLLUDERS, DROPOUTS = 8, 2, 2
HONEST = CLIENTS - COLLUDERS
OFFER = make_offer(CLIENTS, dropouts=DROPOUTS, colluders=COLLUDERS)
OFFERS: dict[str, Offer] = {
    "usual": OFFER,
    "more rounds": replace(OFFER, rounds=21),
    "another sampler": replace(OFFER, sampler=Poisson(sampling_rate=0.95)),
    "more clients": replace(OFFER, num_clients=CLIENTS + 1),
}
ROSTERS = ("right", "copied", "foreign", "same key", "same identity", "stranger", "short", "second key")
SURVIVORS = (
    "all",
    "a colluder is gone",
    "both are gone",
    "one is gone",
    "most are gone",
    "two stories",
    "split",
)
STRANGER = 99
MEMORY = Path("/dev/shm")
_SPARE = RunKey(b"spare".ljust(32, b"."))

Sabotage = Callable[[pytest.MonkeyPatch], None]
nodes = st.integers(0, HONEST - 1)
offers = st.sampled_from(list(OFFERS))
usual_offers = st.sampled_from((*["usual"] * 12, *OFFERS))
usual_rosters = st.sampled_from((*["right"] * 12, *ROSTERS))
survivor_lies = st.sampled_from(SURVIVORS)
some_clients = st.sets(st.integers(0, CLIENTS - 1), min_size=CLIENTS - 3)


class Search(RuleBasedStateMachine):
    """One federation in the hands of a liar. `sabotage` undoes a fix in the nodes; `steps` counts messages."""

    sabotage: Sabotage | None = None
    only_leaks = False
    steps = 0

    def __init__(self) -> None:
        super().__init__()
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(os, "fsync", lambda descriptor: None)
        if type(self).sabotage is not None:
            type(self).sabotage(self.patch)  # type: ignore[misc]
        self.watch = Watch(self.patch)
        self.folder = Path(tempfile.mkdtemp(prefix="liar-", dir=MEMORY if MEMORY.is_dir() else None))
        self.world = World(self.folder, clients=CLIENTS, dropouts=DROPOUTS, colluders=COLLUDERS)
        self.tolds: list[Told] = []
        self.now = 0

    def teardown(self) -> None:
        try:
            found = (leaks if type(self).only_leaks else complaints)(self.world, self.watch)
        finally:
            type(self).steps += self.world.delivered
            self.patch.undo()
            shutil.rmtree(self.folder, ignore_errors=True)
        assert not found, found

    # Offers and rosters

    @initialize(
        other=usual_offers,
        odd=nodes,
        number=st.sampled_from((*[None] * 40, *range(CLIENTS))),
        kind=st.sampled_from((*["right"] * 3, *ROSTERS)),
        story=survivor_lies,
        again=st.booleans(),
    )
    def first_round(self, other: str, odd: int, number: int | None, kind: str, story: str, again: bool) -> None:
        """The usual offer to all but one, who may get another one, or another number; then a round."""
        for node in range(HONEST):
            if node == odd:
                self.world.invite(node, OFFERS[other], number)
            else:
                self.world.invite(node)
        self.next_round(offer="usual", kind=kind, victim=odd, story=story, again=again)

    @rule(node=nodes, offer=offers, number=st.integers(0, CLIENTS - 1))
    def offer_again(self, node: int, offer: str, number: int) -> None:
        self.world.invite(node, OFFERS[offer], number)

    @rule(offer=usual_offers, kind=usual_rosters, victim=nodes)
    def make_roster(self, offer: str, kind: str, victim: int) -> None:
        self._roster(OFFERS[offer], kind, victim)

    def _roster(self, offer: Offer, kind: str, victim: int) -> Told:
        """A roster with a lie of some kind. The last client is always a colluder's."""
        world, last = self.world, CLIENTS - 1
        keys = world.entry(offer, victim).keys.agreement
        changed: tuple[Entry, ...] = ()
        if kind == "copied":
            changed = (world.copied(offer, last, keys),)
        elif kind == "foreign":  # the key of somebody who is not in this roster
            changed = (world.copied(offer, last, RunKey(b"another".ljust(32, b".")).public),)
        elif kind == "same key":
            key = RunKey(b"shared".ljust(32, b"."))
            changed = tuple(world.colluding(offer, client, key=key) for client in world.colluders)
        elif kind == "same identity":  # in the place of an honest node, too
            changed = (world.colluding(offer, (victim + 1) % HONEST, identity=world.colluders[0], key=_SPARE),)
        elif kind == "stranger":
            changed = (world.colluding(offer, (victim + 1) % HONEST, identity=STRANGER, key=_SPARE),)
        elif kind == "second key":
            changed = (world.colluding(offer, last, key=_SPARE),)
        told = world.told(offer, *changed)
        if kind == "short":
            told = Told(offer, tuple(entry for entry in told.entries if entry.keys.client != (victim + 1) % HONEST))
        self.tolds.append(told)
        return told

    # Rounds

    @rule(data=st.data(), round=st.integers(1, 3), attempt=st.integers(0, 2), cohort=some_clients)
    def make_any_plan(self, data: st.DataObject, round: int, attempt: int, cohort: set[int]) -> None:
        if self.tolds:
            told = self.tolds[data.draw(st.integers(0, len(self.tolds) - 1))]
            with suppress(ConfigError):  # a plan that cannot even be written down
                self.world.attempt(told, round=round, attempt=attempt, cohort=sorted(cohort))

    @rule(data=st.data(), node=nodes, other=st.booleans())
    def ask_upload(self, data: st.DataObject, node: int, other: bool) -> None:
        """With the attempt's own roster, or with another one."""
        if self.world.attempts:
            told = self.tolds[data.draw(st.integers(0, len(self.tolds) - 1))] if other and self.tolds else None
            self.world.ask_upload(self._attempt(data), node, told)

    @rule(data=st.data(), node=nodes, survivors=some_clients)
    def ask_consent(self, data: st.DataObject, node: int, survivors: set[int]) -> None:
        if self.world.attempts:
            attempt = self._attempt(data)
            self.world.ask_consent(attempt, node, _present(attempt, survivors))

    @rule(data=st.data(), node=nodes, survivors=some_clients)
    def ask_reveal(self, data: st.DataObject, node: int, survivors: set[int]) -> None:
        if self.world.attempts:
            attempt = self._attempt(data)
            self.world.ask_reveal(attempt, node, _present(attempt, survivors))

    @rule(data=st.data())
    def replay(self, data: st.DataObject) -> None:
        """Any message again, to any node."""
        if self.world.sent:
            some = self.world.sent[-40:]
            client, kind, fields = some[data.draw(st.integers(0, len(some) - 1))]
            to = data.draw(st.sampled_from((client, *range(HONEST))))
            answer = self.world.send(to, kind, fields)
            for attempt in self.world.attempts:
                if kind == "upload" and "upload" in answer and fields["plan"] == self.world.request(attempt)["plan"]:
                    attempt.uploads[to] = bytes(answer["upload"])  # type: ignore[arg-type]

    @rule(offer=usual_offers, kind=usual_rosters, victim=nodes, story=survivor_lies, again=st.booleans())
    def next_round(self, offer: str, kind: str, victim: int, story: str, again: bool) -> None:
        """A round from the roster to the sum. Members are told who survived, not all of them the same; some are asked
        a second time, with the story of their neighbour."""
        self.now += 1
        told = self._roster(OFFERS[offer], kind, victim)
        planned = self.world.attempt(told, round=self.now, cohort=[entry.keys.client for entry in told.entries])
        sets = [_present(planned, _survivors(story, victim, node)) for node in range(HONEST)]
        for node in range(HONEST):
            self.world.ask_upload(planned, node)
            if again:
                self.world.ask_upload(planned, node)
        for ask in (self.world.ask_consent, self.world.ask_reveal):
            for node in range(HONEST):
                ask(planned, node, sets[node])
                if again:
                    ask(planned, node, sets[node - 1])

    def _attempt(self, data: st.DataObject) -> Attempt:
        some = self.world.attempts[-6:]
        return some[data.draw(st.integers(0, len(some) - 1))]


def _survivors(story: str, victim: int, member: int) -> set[int]:
    """Whom a member is told to have survived."""
    everyone, after = set(range(CLIENTS)), [(victim + step) % HONEST for step in range(HONEST)]
    if story == "two stories":
        return everyone - {victim if member < HONEST // 2 else after[1]}
    if story == "split":  # each member loses two of three, so that all three are lost to enough members
        trio = after[1:4]
        return everyone - {trio[member % 3], trio[(member + 1) % 3]}
    gone = {
        "all": set(),
        "a colluder is gone": {CLIENTS - 1},
        "both are gone": {CLIENTS - 1, CLIENTS - 2},
        "one is gone": {victim},
        "most are gone": set(after[1:]),
    }
    return everyone - gone[story]


def _present(attempt: Attempt, clients: set[int]) -> tuple[int, ...]:
    return tuple(client for client in attempt.plan.cohort if client in clients)


def search(examples: int, length: int, sabotage: Sabotage | None = None, *, only_leaks: bool = False) -> int:
    """Run the search; the number of messages that nodes were sent. It raises if a promise was broken."""
    changes = {"sabotage": sabotage and staticmethod(sabotage), "only_leaks": only_leaks, "steps": 0}
    machine: Any = type("Searching", (Search,), changes)
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=length,
            deadline=None,
            derandomize=True,
            database=None,
            report_multiple_bugs=False,
            suppress_health_check=list(HealthCheck),
            phases=[phase for phase in settings.default.phases if phase.name == "generate"],
        ),
    )
    return int(machine.steps)
