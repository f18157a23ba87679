"""What a trial on one machine is made of: certificates, processes that end with their parent, a watchman."""

from __future__ import annotations

import json
import os
import socket
import ssl
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr", reason="flwr is not installed: pip install '.[flower]'")

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_ssh_private_key, load_ssh_public_key
from flower_tools import config_for, run_config

from laconic.errors import ConfigError, Incomplete, PrivacyError, RunFolderError
from laconic.federation.flower.server_app import config_of
from laconic.federation.trial import processes, trial
from laconic.federation.trial.data import part_of
from laconic.federation.trial.processes import Keeper
from laconic.federation.trial.superlink import make_certificates, make_node_key
from laconic.federation.trial.trial import Supervisor, last_words, lives
from laconic.guard.policy import read_policy
from laconic.settings.config import RunConfig, write_toml
from laconic.store.folder import RunFolder


def test_the_certificates_are_good_for_loopback_and_for_nobody_else(tmp_path: Path) -> None:
    files = make_certificates(tmp_path)
    assert files.key.stat().st_mode & 0o077 == 0
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(files.certificate, files.key)
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        for _ in range(2):
            raw, _ = listener.accept()
            try:
                with server.wrap_socket(raw, server_side=True) as link:
                    link.sendall(b"hello")
            except (ssl.SSLError, OSError):
                raw.close()

    thread = threading.Thread(target=serve)
    thread.start()
    address = listener.getsockname()
    with (
        socket.create_connection(address) as raw,
        ssl.create_default_context(cafile=files.authority).wrap_socket(raw, server_hostname="127.0.0.1") as link,
    ):
        assert link.recv(5) == b"hello"
    with (
        socket.create_connection(address) as raw,
        pytest.raises(ssl.SSLCertVerificationError),
        ssl.create_default_context().wrap_socket(raw, server_hostname="127.0.0.1"),
    ):
        pass
    thread.join()
    listener.close()


def test_node_keys_are_of_the_kind_that_flower_takes(tmp_path: Path) -> None:
    public = make_node_key(tmp_path / "key")
    private = load_ssh_private_key((tmp_path / "key").read_bytes(), None)
    known = load_ssh_public_key(public.read_bytes())
    assert isinstance(private, ec.EllipticCurvePrivateKey)
    assert isinstance(known, ec.EllipticCurvePublicKey)
    assert known == private.public_key()
    assert known.curve.name == "secp384r1"


_STUBBORN = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("up", flush=True)
time.sleep(600)
"""


@pytest.fixture
def python_is_a_program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "program", lambda name: sys.executable)
    monkeypatch.setattr(processes.guard, "TIMEOUT", 0.3)


def wait_for(what: Any, seconds: float = 10.0) -> None:
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_processes_end_with_the_block_even_if_they_do_not_want_to(tmp_path: Path, python_is_a_program: None) -> None:
    log = tmp_path / "log.txt"
    with processes.Processes() as some:
        child = some.start("any", "-c", _STUBBORN, log=log, home=tmp_path)
        wait_for(lambda: "up" in log.read_text())
        assert lives(child.pid)
    assert not lives(child.pid)


def test_processes_end_when_the_parent_is_killed(tmp_path: Path) -> None:
    """Nobody can clean up after SIGKILL; the guard can."""
    script = f"""
import sys, time
from pathlib import Path
from laconic.federation.trial import processes
processes.program = lambda name: sys.executable
some = processes.Processes()
child = some.start("any", "-c", "import time; time.sleep(600)", log=Path({str(tmp_path / "log")!r}), home=Path("."))
print(child.pid, flush=True)
time.sleep(600)
"""
    parent = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    assert lives(child)
    parent.kill()
    parent.wait()
    parent.stdout.close()
    wait_for(lambda: not lives(child))


def test_a_trial_waits_until_the_one_before_has_ended(
    tmp_path: Path, python_is_a_program: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed a moment ago, its guard may still be at work."""
    before = processes.Processes(tmp_path / "lock")
    child = before.start("any", "-c", _STUBBORN, log=tmp_path / "log.txt", home=tmp_path)
    monkeypatch.setattr(processes, "_WAIT_SECONDS", 0.1)
    with pytest.raises(RunFolderError, match="another trial is running in"):
        processes.Processes(tmp_path / "lock")
    monkeypatch.setattr(processes, "_WAIT_SECONDS", 10.0)
    threading.Timer(0.2, before.close).start()
    with processes.Processes(tmp_path / "lock"):
        assert not lives(child.pid)


def test_an_app_that_flower_left_alone_ends(tmp_path: Path) -> None:
    """Even if its main thread hangs."""
    app = """
import os, sys, threading
from laconic.federation.flower import messages
messages._POLL, messages._GRACE, sys.argv[0] = 0.05, 0.1, "/some/where/flwr-serverapp"
messages.end_if_orphaned()
print(os.getpid(), flush=True)
threading.Event().wait()
"""
    parent = subprocess.Popen(
        [sys.executable, "-c", f"import subprocess, sys; subprocess.run([sys.executable, '-c', {app!r}])"],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    assert lives(child)
    parent.kill()
    parent.wait()
    parent.stdout.close()
    wait_for(lambda: not lives(child))


def test_programs_are_quiet_and_have_a_home_of_their_own(tmp_path: Path) -> None:
    variables = processes.environment(tmp_path)
    assert variables["FLWR_TELEMETRY_ENABLED"] == "0"
    assert variables["FLWR_DISABLE_UPDATE_CHECK"] == "1"
    assert variables["FLWR_HOME"] == str(tmp_path)
    with pytest.raises(ConfigError, match="is not installed"):
        processes.program("no-such-program")


def test_a_configuration_comes_through_flower_as_it_was() -> None:
    config = config_for("fl-top-dp", scheme__clip_norm=0.5, federation__min_nodes=3)
    assert config_of(run_config(config) | {"out": "x", "resume": False, "app.test": "y"}) == config
    assert config_of({"config": write_toml(config.to_dict())}) == config
    with pytest.raises(ConfigError, match="did you mean 'rounds'"):
        config_of({"run.round": 3})


class FakeTrial:
    """A trial whose server does, at each submission, what a script says."""

    def __init__(self, path: Path, *acts: Any) -> None:
        self.path, self._acts, self.link_log = path, list(acts), path / "log.txt"
        self.link = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        self.keeper = Keeper()
        self.resumed: list[bool] = []
        self.starts = 0

    def submit(self, config: RunConfig, out: Path, *, resume: bool) -> str:
        self.resumed.append(resume)
        self._acts.pop(0)(self)
        return "1"

    def start_link(self) -> None:
        self.starts += 1
        self.link = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])

    def write(self, name: str, content: dict[str, Any]) -> None:
        with open(self.path / name, "a" if name.endswith("l") else "w") as stream:
            stream.write(json.dumps(content) + "\n")

    def end(self) -> None:
        self.link.kill()
        self.link.wait()


def one_round(trial: FakeTrial) -> None:
    (trial.path / "config.toml").touch()
    trial.write("rounds.jsonl", {"round": len(trial.resumed), "discarded": "why"})
    trial.write("notices.jsonl", {"round": 1, "client": 3, "node": "9", "reason": "refuses: no"})


def then_the_server_dies(trial: FakeTrial) -> None:
    one_round(trial)
    trial.write("process.json", {"pid": 2**22 - 1})


def then_the_link_dies(trial: FakeTrial) -> None:
    one_round(trial)
    trial.write("process.json", {"pid": 2**22 - 1})
    trial.end()


def then_it_is_done(trial: FakeTrial) -> None:
    one_round(trial)
    trial.write("process.json", {"pid": os.getpid()})
    trial.write("summary.json", {"rounds": 3})


def then_it_fails(trial: FakeTrial) -> None:
    trial.write("failure.json", {"error": "node 2 refuses", "exit_code": 3})


def watched(trial: FakeTrial) -> tuple[dict[str, Any], list[int], list[str]]:
    seen: list[int] = []
    told: list[str] = []
    supervisor = Supervisor(
        trial,  # type: ignore[arg-type]
        RunFolder(trial.path),
        on_row=lambda row: seen.append(row["round"]),
        on_notice=told.append,
    )
    try:
        return supervisor.run(RunConfig()), seen, told
    finally:
        trial.end()


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial, "_POLL", 0.01)


def test_the_run_goes_on_after_the_server_and_the_link_died(tmp_path: Path) -> None:
    trial = FakeTrial(tmp_path, then_the_server_dies, then_the_link_dies, then_it_is_done)
    summary, seen, told = watched(trial)
    assert (summary, seen, trial.resumed, trial.starts) == ({"rounds": 3}, [1, 2, 3], [False, True, True], 1)
    assert told.count("round 1: node 3 refuses: no") == 3
    assert "round 2 is discarded: why (it changed nothing)" in told
    assert [text for text in told if "died" in text] == [
        "the server's process died; the run goes on from its checkpoint",
        "the SuperLink died; the run goes on from its checkpoint",
    ]


def test_the_servers_error_is_ours(tmp_path: Path) -> None:
    with pytest.raises(PrivacyError, match="node 2 refuses"):
        watched(FakeTrial(tmp_path, then_it_fails))


def test_a_run_that_is_incomplete_has_a_summary_all_the_same(tmp_path: Path) -> None:
    def then_a_round_is_lost(trial: FakeTrial) -> None:
        then_it_is_done(trial)
        trial.write("failure.json", {"error": "1 of 3 rounds was lost", "exit_code": Incomplete.exit_code})

    assert watched(FakeTrial(tmp_path, then_a_round_is_lost))[0] == {"rounds": 3}


def test_what_dies_again_and_again_is_given_up(tmp_path: Path) -> None:
    (tmp_path / "log.txt").write_text("some\nlast\nwords\n")
    with pytest.raises(RunFolderError, match="again and again; last words: some / last / words"):
        watched(FakeTrial(tmp_path, *[then_the_server_dies] * 4))
    assert last_words(tmp_path / "none") == "none"


def test_the_policy_of_a_trial_allows_its_run(tmp_path: Path) -> None:
    from torch import nn

    from conftest import make_population
    from laconic import schemes
    from laconic.experiment.experiment import Experiment
    from laconic.federation.trial.trial import trial_policy
    from laconic.privacy.accounting.budget import Budget
    from laconic.privacy.accounting.sampling import Poisson

    scheme = schemes.fl_std_dp(clip_norm=0.5, noise_multiplier=1.0, local_lr=0.1, local_steps=1)
    experiment = Experiment(
        scheme=scheme,
        model=nn.Linear(6, 3),
        population=make_population([3] * 5),
        sampler=Poisson(sampling_rate=1.0),
        rounds=2,
        budget=Budget(delta=1e-5),
    )
    (tmp_path / "policy.toml").write_text(trial_policy(experiment, "ab" * 32, spare_rounds=2))
    policy = read_policy(tmp_path / "policy.toml")
    assert policy.fingerprints == (scheme.fingerprint,)
    assert policy.servers == ("ab" * 32,)
    assert policy.max_epsilon == pytest.approx(10.021, abs=1e-3)  # two rounds, and two spare ones
    assert policy.secure_aggregation == "required"
    assert not policy.allow_test_seed


def test_a_node_imports_nothing_that_a_configuration_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "planted.py").write_text("raise SystemExit('the node ran code of the server')")
    monkeypatch.syspath_prepend(str(tmp_path))
    config = RunConfig().with_values({"data.dataset": "planted:source"})
    with pytest.raises(ConfigError, match="--dataset planted:source names code"):
        part_of(config, 0)
