"""A SuperLink and SuperNodes on this machine, the rounds of a run on them, and its restart after a crash."""

from __future__ import annotations

import json
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, cast

from laconic.errors import (
    ConfigError,
    DataError,
    Failure,
    LaconicError,
    PrivacyError,
    RunFolderError,
    TrainingError,
    WireError,
)
from laconic.experiment.experiment import Experiment
from laconic.federation.entropy import seed_for_tests
from laconic.federation.node.refusals import planned_epsilons
from laconic.federation.server.outcome import what_became
from laconic.federation.trial.node import SOCKET
from laconic.federation.trial.processes import Keeper, Processes, environment, free_port, program
from laconic.federation.trial.superlink import TlsFiles, make_certificates, make_node_key, register, sign_off
from laconic.files import private_folder
from laconic.guard.contract import CLIENT
from laconic.guard.keys.keyring import server_key
from laconic.guard.ledger import Price, Seen, composed
from laconic.privacy.released import Summary
from laconic.settings.config import RunConfig, toml_value, write_toml
from laconic.store.folder import RunFolder

_START_SECONDS = 60.0


class Trial:
    """The processes of a trial. `start` brings them up, `keeper` keeps the nodes' up, `submit` starts a run.

    `host` is the address of this machine at which the nodes find the SuperLink.
    """

    def __init__(self, path: Path, nodes: int, processes: Processes, *, host: str = "127.0.0.1") -> None:
        self.path, self._nodes, self._processes, self._host = path.resolve(), nodes, processes, host
        self.port = free_port()
        self.port_for_nodes = self.port
        """Another one, if something is to stand between the nodes and the SuperLink."""
        self.link: subprocess.Popen[bytes] | None = None
        self.keeper = Keeper()
        for part in ("link", "app", *(f"node-{number}" for number in range(nodes))):
            private_folder(self.path / part)
        self._tls: TlsFiles = make_certificates(self.path, host)
        self._write_connection()

    @property
    def server_key(self) -> Path:
        return self.path / "link" / "identity.key"

    @property
    def link_log(self) -> Path:
        return self.path / "link" / "log.txt"

    def write_policies(self, policies: Mapping[int, str], default: str) -> None:
        """Each node's policy; those that a node has already stay."""
        for number in range(self._nodes):
            file = self._node(number) / "policy.toml"
            if number in policies or not file.exists():
                file.write_text(policies.get(number, default))

    def server_name(self) -> str:
        """The server's public key, for policies."""
        return server_key(self.server_key).public_key().public_bytes_raw().hex()

    def start(self, config: RunConfig) -> None:
        """Start the SuperLink and the nodes."""
        (self.path / "config.toml").write_text(write_toml(config.to_dict()))
        for number in range(self._nodes):  # they load while the SuperLink starts
            self.keeper.keep(f"node {number}", partial(self._serve, number))
        self.start_link()
        self._register()
        for number, port in enumerate([free_port() for _ in range(self._nodes)]):
            self.keeper.keep(f"node {number}'s SuperNode", partial(self._start_supernode, number, port))
            self.keeper.keep(f"node {number}'s courier", partial(self._start_courier, number, port))

    def start_link(self) -> None:
        """Start the SuperLink, or start it again: what it knows is in its database."""
        link = self.path / "link"
        self.link = self._processes.start(
            "flower-superlink",
            *("--ssl-certfile", str(self._tls.certificate), "--ssl-keyfile", str(self._tls.key)),
            *("--ssl-ca-certfile", str(self._tls.authority), "--enable-supernode-auth"),
            *("--disable-runtime-dependency-installation", "--database", str(link / "state.db")),
            *("--host", self._host, "--port", str(self.port)),
            log=self.link_log,
            home=link / "home",
            wave=0,
        )
        self._wait_until_healthy()

    def _serve(self, number: int) -> subprocess.Popen[bytes]:
        """The node itself."""
        place = self._node(number)
        arguments = ("laconic.federation.trial.node", str(place), str(self.path / "config.toml"), str(number))
        return self._processes.start("python", "-m", *arguments, log=place / "node.txt", home=place / "home")

    def _start_supernode(self, number: int, port: int) -> subprocess.Popen[bytes]:
        """A SuperNode, whose last process is gone, perhaps without having signed off."""
        place = self._node(number)
        name, log = place / "flower-id.txt", place / "log.txt"
        if log.exists() and name.exists():
            sign_off(f"{self._host}:{self.port}", self._tls.authority, place / "key", int(name.read_text()))
        return self._processes.start(
            "flower-supernode",
            *("--superlink", f"{self._host}:{self.port_for_nodes}", "--root-certificates", str(self._tls.authority)),
            *("--auth-supernode-private-key", str(place / "key"), "--isolation", "process"),
            *("--host", "127.0.0.1", "--port", str(port)),
            log=log,
            home=place / "home",
        )

    def _start_courier(self, number: int, port: int) -> subprocess.Popen[bytes]:
        place = self._node(number)
        arguments = ("laconic", "node", "courier", "--socket", str(place / SOCKET), "--runtime", f"127.0.0.1:{port}")
        return self._processes.start("python", "-m", *arguments, log=place / "courier.txt", home=place / "home")

    def submit(self, config: RunConfig, out: Path, *, resume: bool) -> str:
        """Start a run; Flower's number of it is returned."""
        values = {
            "config": write_toml(config.to_dict()),
            "out": str(out.resolve()),
            "resume": resume,
            "server-key": str(self.server_key.resolve()),
        }
        lines = "\n".join(f"{name} = {toml_value(value)}" for name, value in values.items())
        (self.path / "app" / "pyproject.toml").write_text(_APP + lines + "\n")
        answer = self._flwr("run", str(self.path / "app"), "trial", "--format", "json")
        return str(json.loads(answer)["run-id"])

    def _register(self) -> None:
        """Tell the SuperLink the nodes' public keys, in the order of the nodes: no other node is let in."""
        for place in map(self._node, range(self._nodes)):
            if not (place / "key").exists():
                public = make_node_key(place / "key.new")
                number = register(f"{self._host}:{self.port}", self._tls.authority, public)
                (place / "flower-id.txt").write_text(str(number))
                (place / "key.new").rename(place / "key")  # last: a key is a registered one

    def _flwr(self, *arguments: str) -> str:
        done = subprocess.run(
            [program("flwr"), *arguments],
            env=environment(self.path / "link" / "home"),
            capture_output=True,
            text=True,
            timeout=_START_SECONDS,
            check=False,
        )
        if done.returncode:
            raise RunFolderError(f"flwr {arguments[0]} failed: {(done.stderr or done.stdout).strip()}")
        return done.stdout

    def _write_connection(self) -> None:
        """Where Flower's own command line finds this trial's SuperLink."""
        home = self.path / "link" / "home"
        private_folder(home)
        connection = {
            "superlink": {"default": "trial"},
            "superlink.trial": {
                "address": f"{self._host}:{self.port}",
                "root-certificates": str(self._tls.authority.resolve()),
            },
        }
        (home / "config.toml").write_text(write_toml(connection))

    def _wait_until_healthy(self) -> None:
        context = ssl.create_default_context(cafile=str(self._tls.authority))
        end = time.monotonic() + _START_SECONDS
        while time.monotonic() < end:
            try:
                urllib.request.urlopen(f"https://{self._host}:{self.port}/health", context=context, timeout=5).close()
                return
            except (urllib.error.URLError, OSError):
                assert self.link is not None
                if self.link.poll() is not None:
                    break
                time.sleep(0.1)
        raise RunFolderError(f"the SuperLink did not start; its last words: {last_words(self.link_log)}")

    def _node(self, number: int) -> Path:
        return self.path / f"node-{number}"


def trial_policy(experiment: Experiment, server: str, spare_rounds: int) -> str:
    """A policy that allows this run of this server, and so many rounds of it a second time, after a crash."""
    released, participant = planned_epsilons(experiment.mechanism, spare_rounds)
    lines = [f'servers = ["{server}"]', f'fingerprints = ["{experiment.scheme.fingerprint}"]']
    masked = experiment.scheme.secure_sum.hides_single_codes
    lines.append('secure_aggregation = "required"' if masked else 'secure_aggregation = "optional"  # no secure sum')
    if experiment.budget is not None:
        unit = "" if experiment.scheme.unit == CLIENT else f"{experiment.scheme.unit}_"
        guarded = max(participant, _guarded(experiment, spare_rounds))
        lines += [f"max_{unit}epsilon = {released!r}", f"max_{unit}participant_epsilon = {guarded!r}"]
        lines += [f"max_delta = {experiment.budget.delta!r}"]
    if seed_for_tests() is not None:
        lines.append("allow_test_seed = true")
    return "\n".join(["# Made for a trial.", "min_cohort = 2", *lines]) + "\n"


def _guarded(experiment: Experiment, spare_rounds: int) -> float:
    """ε against the server as a node's guard composes it: where coins decide who is drawn, above the tight one."""
    accountant, budget = experiment.accountant, experiment.budget
    if accountant is None or budget is None or accountant.unit == CLIENT:
        return 0.0
    main = accountant.main
    seen = Seen(main.multiplier, main.rate, main.steps * (experiment.rounds + spare_rounds))
    return composed([Price({accountant.unit: seen}, main.delta_slack)], budget.delta, accountant.unit)


def last_words(log: Path, lines: int = 5) -> str:
    """The end of a log."""
    if not log.exists():
        return "none"
    return " / ".join(log.read_text(errors="replace").strip().splitlines()[-lines:])


_APP = """\
[project]
name = "trial"
version = "1.0.0"
description = "A laconic run: its configuration and no code"
license = "Apache-2.0"
dependencies = []

[tool.flwr.app]
publisher = "laconic"

[tool.flwr.app.components]
serverapp = "laconic.federation.trial.server:app"
clientapp = "laconic.federation.flower.client_app:app"

[tool.flwr.app.config]
"""


_POLL = 0.3
_RUN_STARTS_WITHIN = 120.0
_MOST_RESTARTS = 3
_ERRORS: tuple[type[LaconicError], ...] = (
    ConfigError,
    PrivacyError,
    DataError,
    RunFolderError,
    TrainingError,
    WireError,
)


class Supervisor:
    """`on_row` is called with every finished round, `on_notice` with what a node did not do and with restarts."""

    def __init__(
        self,
        trial: Trial,
        folder: RunFolder,
        *,
        on_row: Callable[[dict[str, Any]], None],
        on_notice: Callable[[str], None],
    ) -> None:
        self._trial, self._folder = trial, folder
        self._on_row, self._on_notice = on_row, on_notice
        self._seen_rounds = max((row["round"] for row in folder.rows("rounds.jsonl")), default=0)
        self._seen_notices = len(folder.rows("notices.jsonl"))
        self._restarts = 0

    @property
    def finished_rounds(self) -> int:
        return self._seen_rounds

    def run(self, config: RunConfig) -> Summary:
        """Submit the run, watch it, and return its summary."""
        self._forget_last_end()
        self._submit(config)
        while True:
            time.sleep(_POLL)
            self._trial.keeper.look(self._on_notice)
            self._show_news()
            summary = self._read("summary.json")
            if summary is not None:  # first: a run that is incomplete has both
                self._show_news()
                return cast(Summary, summary)
            failure = self._read("failure.json")
            if failure is not None:
                raise _error(cast(Failure, failure))
            self._mend(config)

    def _submit(self, config: RunConfig) -> None:
        (self._folder.path / "process.json").unlink(missing_ok=True)
        self._trial.submit(config, self._folder.path, resume=self._folder.exists)
        self._submitted = time.monotonic()

    def _mend(self, config: RunConfig) -> None:
        """If the SuperLink or the server's process is gone, start it again: the run goes on from its checkpoint."""
        link = self._trial.link
        link_died = link is not None and link.poll() is not None
        process = self._read("process.json")
        if process is None and not link_died:
            if time.monotonic() - self._submitted > _RUN_STARTS_WITHIN:
                raise RunFolderError(f"the server did not start; last words: {last_words(self._trial.link_log)}")
            return
        if not link_died and (process is None or lives(process["pid"])):
            return
        if self._read("summary.json") is not None or self._read("failure.json") is not None:
            return
        what = "the SuperLink" if link_died else "the server's process"
        self._restarts += 1
        if self._restarts > _MOST_RESTARTS:
            raise RunFolderError(f"{what} died again and again; last words: {last_words(self._trial.link_log)}")
        self._on_notice(f"{what} died; the run goes on from its checkpoint")
        if link_died:
            self._trial.start_link()
        while process is not None and lives(process["pid"]):  # it must let go of the folder
            time.sleep(_POLL)
        self._submit(config)

    def _show_news(self) -> None:
        for notice in self._folder.rows("notices.jsonl")[self._seen_notices :]:
            self._seen_notices += 1
            when = f"round {notice['round']}" if notice["round"] else "joining"
            self._on_notice(f"{when}: node {notice['client']} {notice['reason']}")
        for row in self._folder.rows("rounds.jsonl"):
            if row["round"] > self._seen_rounds:
                self._seen_rounds = row["round"]
                if "discarded" in row:
                    self._on_notice(f"round {row['round']} is discarded: {row['discarded']} (it {what_became(row)})")
                self._on_row(row)

    def _forget_last_end(self) -> None:
        for name in ("summary.json", "failure.json"):
            (self._folder.path / name).unlink(missing_ok=True)

    def _read(self, name: str) -> dict[str, Any] | None:
        path: Path = self._folder.path / name
        if not path.exists():
            return None
        content: dict[str, Any] = json.loads(path.read_text())
        return content


def lives(pid: int) -> bool:
    """Whether the process is there and more than a zombie."""
    shown = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False)
    state = shown.stdout.strip()
    return bool(state) and not state.startswith("Z")


def _error(failure: Failure) -> LaconicError:
    kind = next((kind for kind in _ERRORS if kind.exit_code == failure["exit_code"]), RunFolderError)
    return kind(failure["error"])
