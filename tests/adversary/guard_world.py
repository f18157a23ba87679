"""One real guard in the hands of a server that lies and of an owner who copies, deletes, moves and restores.

Everything here runs the project's own guard on a real folder. `Machine` is the host: it keeps the folder, may lose its
process at any write, and may run out of disk. What restores a file changes its inode or the time of its last change,
which `Machine` keeps in a table, so that the search can go back to any state; tests of the real file system are in
test_restored_nodes.py.
"""

from __future__ import annotations

import functools
import json
import math
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from laconic import files as laconic_files
from laconic import schemes
from laconic.errors import LaconicError
from laconic.federation.offer import Offer, sign_offer
from laconic.guard import folder as folder_module
from laconic.guard import limits, protect, transcript
from laconic.guard.contract import SMOOTHING
from laconic.guard.folder import NodeFolder
from laconic.guard.guard import Guard
from laconic.guard.keys.change import new_identity
from laconic.guard.ledger import composed, gaussian_epsilon
from laconic.guard.noise import MEAN_BITS
from laconic.guard.policy import Policy
from laconic.guard.roster import beacon_of, write_roster
from laconic.guard.transcript import UPLOADED, Transcript
from laconic.privacy.accounting.budget import Budget
from laconic.privacy.accounting.sampling import Poisson
from laconic.secagg import client as client_module
from laconic.secagg import messages
from laconic.secagg.attempts import Nonces
from laconic.secagg.crypto.keys import PublicKeys, RunKey
from laconic.secagg.terms import SumPlan

SERVER = Ed25519PrivateKey.from_private_bytes(b"server".ljust(32, b"."))
CLIENTS, DELTA = 3, 1e-5
VECTOR = np.array([3.0, -4.0], dtype=np.float32)
_OTHERS = [Ed25519PrivateKey.from_private_bytes(f"identity {n}".encode().ljust(32, b".")) for n in range(CLIENTS)]


class Killed(BaseException):
    """Stands for SIGKILL: nothing in the package catches it."""


def _offer(run: int, **scheme: Any) -> Offer:
    options = {"clip_norm": 0.5, "noise_multiplier": 2.0, "local_lr": 0.1, "local_steps": 1} | scheme
    return Offer(
        run=bytes([run]) * 16,
        server=SERVER.public_key().public_bytes_raw(),
        scheme=schemes.fl_std_dp(**options),
        sampler=Poisson(sampling_rate=1.0),
        num_clients=CLIENTS,
        rounds=2,
        spare_rounds=1,
        budget=Budget(delta=DELTA),
        max_dropouts=1,
        public_seed=4,
        model="own",
        input_shape=(1,),
        num_classes=2,
        size=2,
        initial="0" * 32,
    )


@functools.cache
def offers() -> dict[str, Offer]:
    """Two runs, and a second offer of the first, which says that an upload costs next to nothing."""
    return {"a": _offer(1), "cheap": _offer(1, noise_multiplier=10_000.0), "b": _offer(2, noise_multiplier=1.0)}


@functools.cache
def _signed(name: str, client: int = 0) -> bytes:
    return sign_offer(offers()[name], client, SERVER)


@functools.cache
def policies() -> tuple[Policy, ...]:
    """What the owner allows, and what it allows after it has changed its mind."""
    limit = 1.01 * gaussian_epsilon(math.sqrt(3) / 2, DELTA)
    strict = Policy(max_delta=DELTA, lifetime_participant_epsilon=limit, min_cohort=1)
    return strict, replace(strict, lifetime_participant_epsilon=2 * limit)


@dataclass(frozen=True)
class Left:
    """A vector that has left the node: what the noise in it was worth against the server."""

    run: str
    round: int
    attempt: int
    inverse: float
    """1/z², z from the scale of the noise that was really drawn."""


@dataclass
class Asked:
    """The last plan that the server made for a run, and what it was about."""

    offer: str
    plan: SumPlan
    data: bytes
    roster: bytes


@dataclass
class Machine:
    """The host of a node: folder, process, backup, and what has left it."""

    path: Path
    policy: int = 0
    nonces: Nonces = field(default_factory=Nonces)
    log: Transcript | None = None
    """What the process has in memory."""
    announced: dict[str, PublicKeys] = field(default_factory=dict)
    """The key that the node announced, by offer."""
    told: dict[str, bytes] = field(default_factory=dict)
    """The nonce that the node told last, by offer."""
    asked: Asked | None = None
    backup: dict[str, bytes] | None = None
    left: list[Left] = field(default_factory=list)
    seeds: list[bytes] = field(default_factory=list)
    inode: int = 0
    """When the transcript was last changed by any program."""
    writes: int = -1
    """After so many writes the machine fails, as `failure` says."""
    failure: Callable[[], BaseException] = Killed
    judged: int = 0
    """How many of the vectors that left were compared with the log. Of a log that was set back, and that the guard will
    not go on with, nothing is asked until another vector leaves."""
    scale: float = 0.0
    """Of the noise that was drawn last, in grid units."""
    norm: float = 0.0
    """Of the code around which it was drawn, in grid units."""
    refused: str = ""
    """Why the last message was refused."""

    @property
    def node(self) -> Path:
        return self.path / "node"

    def on_disk(self) -> list[dict[str, Any]]:
        """The rows of the transcript, as they are in the file."""
        file = self.node / "log.jsonl"
        return [json.loads(line) for line in file.read_bytes().split(b"\n")[:-1]] if file.exists() else []

    # Snapshots, for the search

    def content(self) -> dict[str, bytes]:
        return {str(p.relative_to(self.node)): p.read_bytes() for p in sorted(self.node.rglob("*")) if p.is_file()}

    def snapshot(self) -> tuple[Any, ...]:
        log = self.log
        memory = None if log is None else (list(log._rows), {k: list(v) for k, v in log._of.items()}, *_head(log))
        plain = (
            self.policy,
            dict(self.nonces._current),
            dict(self.announced),
            dict(self.told),
            self.asked,
            self.backup,
        )
        return self.content(), memory, plain, list(self.left), list(self.seeds), self.inode, self.judged

    def go_back(self, to: tuple[Any, ...]) -> None:
        content, memory, plain, left, seeds, self.inode, self.judged = to
        self.write(content)
        self.policy, current, announced, told, self.asked, self.backup = plain
        self.nonces = Nonces()
        self.nonces._current, self.announced, self.told = dict(current), dict(announced), dict(told)
        self.left, self.seeds = list(left), list(seeds)
        self.log, self.writes = None, -1
        if memory is not None:
            self.log = Transcript(self.node / "log.jsonl")
            self.log._rows, self.log._of = list(memory[0]), {k: list(v) for k, v in memory[1].items()}
            self.log._bytes, self.log._chain, self.log._restored, self.log._loaded = memory[2:]

    def write(self, content: dict[str, bytes]) -> None:
        """Make the folder what it was."""
        shutil.rmtree(self.node, ignore_errors=True)
        self.node.mkdir(parents=True, mode=0o700)
        for name, data in content.items():
            target = self.node / name
            target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            target.write_bytes(data)
            target.chmod(0o600)

    # The process

    def within(self, step: Callable[[Guard], object]) -> None:
        """One message, or a command of the owner's, in this process; killed or not, whatever was written stays."""
        self.refused = ""
        try:
            folder = NodeFolder(self.node)
            if self.log is not None:
                folder.log = self.log
            self.log = folder.log
            with folder.alone():
                if folder.copied is not None:
                    folder.log.add_refusal(b"", reason=folder.copied)  # as a node does with all that it refuses
                    raise LaconicError(folder.copied)
                step(Guard(folder, policies()[self.policy], self.nonces))
        except Killed:
            self.restart()
        except LaconicError as error:
            self.refused = f"{error} {getattr(error, 'detail', '')}"
        finally:
            self.writes = -1

    def restart(self) -> None:
        self.nonces, self.log = Nonces(), None

    # The server

    def join(self, name: str) -> None:
        def step(guard: Guard) -> None:
            announcement = guard.join(_signed(name))
            self.announced[name] = PublicKeys.from_announcement(announcement, offers()[name].run)
            self.told[name] = guard.nonce(offers()[name].run)

        self.within(step)

    def ask(self, name: str, round: int, attempt: int) -> None:
        """Ask for an upload, with a plan for the nonce that was told last."""
        if name not in self.announced:
            return
        offer = offers()[name]
        keys = [self.announced[name], *(_stranger(name, n) for n in range(1, CLIENTS))]
        roster = write_roster(keys)
        terms = offer.contract.terms(beacon_of(offer.run, roster))
        release = offer.contract.release(round)
        plan = SumPlan(
            terms=terms,
            round=round,
            attempt=attempt,
            bits=release.bits,
            size=release.code_size,
            cohort=tuple(range(CLIENTS)),
        ).with_nonces({0: self.told[name]} | {n: bytes([n]) * 16 for n in range(1, CLIENTS)})
        self.asked = Asked(name, plan, messages.write_plan(plan, ()), roster)
        self.ask_again()

    def ask_again(self) -> None:
        """The same message once more."""
        asked = self.asked
        if asked is None:
            return
        plan, contract = asked.plan, offers()[asked.offer].contract

        def step(guard: Guard) -> None:
            ticket = guard.charge(plan.terms.run, plan.round, plan.attempt, plan=asked.data, roster=asked.roster)
            charged = [row["plan"] for row in self.on_disk() if row["what"] == UPLOADED]
            assert charged[-1:] == [plan.hash.hex()], "records are about to be used, and nothing is charged on disk"
            guard.send(ticket, VECTOR)
            release = contract.release(plan.round)
            drawn = self.scale**2 * (CLIENTS - contract.slack) - SMOOTHING**2
            if self.norm > release.units * release.sensitivity:
                raise AssertionError("a code is longer than its bound")
            inverse = (release.units * release.sensitivity) ** 2 / max(drawn, 1e-9)
            self.left.append(Left(asked.offer, plan.round, plan.attempt, inverse))
            self.told[asked.offer] = guard.nonce(plan.terms.run)

        self.within(step)

    def learn_nonce(self, name: str) -> None:
        def step(guard: Guard) -> None:
            guard.joined(offers()[name].run)
            self.told[name] = guard.nonce(offers()[name].run)

        if name in self.announced:
            self.within(step)

    def reveal(self, survivors: tuple[int, ...]) -> None:
        if self.asked is not None:
            plan = self.asked.plan
            self.within(lambda guard: guard.reveal(plan.terms.run, messages.write_unmask(plan, survivors, {})))

    # The owner

    def delete_run(self) -> None:
        shutil.rmtree(self.node / offers()["a"].run.hex(), ignore_errors=True)

    def keep_backup(self) -> None:
        if self.node.exists():
            self.backup = self.content()

    def restore(self) -> None:
        """`cp -a backup/. node/`, while the process lives or not."""
        if self.backup is not None:
            before = self.content()
            for name, data in self.backup.items():
                target = self.node / name
                target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                target.write_bytes(data)
            if before.get("log.jsonl") is not None:
                self.inode += 1

    def rotate(self) -> None:
        self.within(lambda guard: new_identity(guard._folder.keys))

    def move(self) -> None:
        """`mv`, after the process has ended: nothing in the folder changes."""
        self.restart()
        os.rename(self.node, self.path / "elsewhere")
        os.rename(self.path / "elsewhere", self.node)

    def change_policy(self) -> None:
        self.policy = 1 - self.policy

    def fail_at(self, writes: int, failure: Callable[[], BaseException]) -> None:
        """In the next message, after so many writes."""
        self.writes, self.failure = writes, failure

    @property
    def sealed(self) -> bool:
        """Whether the transcript is as the guard has left it."""
        beside = self.node / "log.jsonl.length"
        return beside.exists() and beside.read_text().split("\n")[1] == str(self.inode)

    # What must never be

    def complaints(self) -> list[str]:
        found = []
        if len(set(self.seeds)) < len(self.seeds):
            found.append("a mask was used twice")
        sent = len(self.left) > self.judged
        if sent or (self.left and self.sealed):
            self.judged = len(self.left)
            mu = math.sqrt(math.fsum(one.inverse for one in self.left))
            rows = self.on_disk()
            logged = composed(limits.charged(rows), DELTA)
            if gaussian_epsilon(mu, DELTA) > logged * (1 + 1e-9):
                found.append(f"ε of what left is {gaussian_epsilon(mu, DELTA):.3f}, and the log says {logged:.3f}")
            limit = policies()[self.policy].lifetime_participant_epsilon
            assert limit is not None
            if sent and logged > limit * (1 + 1e-9):
                found.append(f"ε {logged:.3f} was spent, and the policy allowed no more than {limit:.3f}")
        return found


def _head(log: Transcript) -> tuple[Any, ...]:
    return log._bytes, log._chain, log._restored, log._loaded


@functools.cache
def _stranger(name: str, client: int) -> PublicKeys:
    """Another client of the run, on the server's side."""
    return PublicKeys.signed(
        offers()[name].context, client, RunKey(f"run key {client}".encode().ljust(32, b".")), _OTHERS[client]
    )


@contextmanager
def watched(machine: Machine) -> Iterator[None]:
    """The machine's failures, its clock of changes, and what is really drawn and masked in it."""
    with pytest.MonkeyPatch.context() as patch:

        def written(*some: Any) -> None:
            if machine.writes == 0:
                machine.writes = -1
                raise machine.failure()
            machine.writes -= machine.writes > 0

        patch.setattr(os, "fsync", written)
        patch.setattr(laconic_files, "sync_folder", lambda folder: None)
        note = Transcript._note

        def noted(self: Transcript) -> None:
            machine.inode += 1
            note(self)

        patch.setattr(Transcript, "_note", noted)
        patch.setattr(transcript, "_inode", lambda found: str(machine.inode))
        patch.setattr(folder_module, "is_copy", lambda path: False)
        drawn, add_masks = protect.noisy_residues, client_module.add_masks

        def noisy(fixed: np.ndarray, scale: float, *more: Any, **options: Any) -> Any:
            machine.scale, machine.norm = scale, float(np.linalg.norm(fixed / 2**MEAN_BITS))
            return drawn(fixed, scale, *more, **options)

        def masked(words: np.ndarray, *, plus: Any = (), minus: Any = ()) -> None:
            machine.seeds += [*plus, *minus]
            add_masks(words, plus=plus, minus=minus)

        patch.setattr(protect, "noisy_residues", noisy)
        patch.setattr(client_module, "add_masks", masked)
        yield
