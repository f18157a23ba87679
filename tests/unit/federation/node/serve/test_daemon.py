"""A node behind its socket: who may open it, how many wait, and that nothing sent to it ends it."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from laconic.errors import ConfigError, RunFolderError
from laconic.federation.node.serve import hand_over as frames
from laconic.federation.node.serve import place
from laconic.federation.node.serve.hand_over import HELLO, Daemon, hand_over
from laconic.federation.node.serve.place import ServingLock, open_socket, serving
from laconic.federation.requests import REFUSED, Fields
from laconic.guard.withheld import WITHHELD

Answer = Callable[[str, Fields], Fields]


@contextmanager
def served(
    path: Path, answer: Answer, *, waiting: int = 4, most: int = 10_000, reading: float = 30.0
) -> Iterator[Daemon]:
    listening = open_socket(path, None, waiting=waiting)
    daemon = Daemon(listening, answer, most_bytes=lambda: most, waiting=waiting, reading=reading)
    thread = threading.Thread(target=daemon.serve)
    thread.start()
    try:
        yield daemon
    finally:
        daemon.stop()
        thread.join()


def echo(kind: str, fields: Fields) -> Fields:
    return {"kind": kind, **fields}


def test_an_answer_comes_back(tmp_path: Path) -> None:
    with served(tmp_path / "s", echo):
        assert hand_over(tmp_path / "s", "upload", {"round": 3, "x": b"\0"}) == {
            "kind": "upload",
            "round": 3,
            "x": b"\0",
        }
        assert hand_over(tmp_path / "s", HELLO, {}) == {HELLO: 1}


def test_a_path_that_is_too_long_for_the_kernel(tmp_path: Path) -> None:
    deep = tmp_path / ("a" * 100) / ("b" * 100)
    deep.mkdir(parents=True)
    with served(deep / "s", echo):
        assert hand_over(deep / "s", "keys", {}) == {"kind": "keys"}


def test_an_answer_that_fails_ends_nothing_and_tells_nothing(tmp_path: Path) -> None:
    def failing(kind: str, fields: Fields) -> Fields:
        raise ValueError("patient 4711 has age 51")

    with served(tmp_path / "s", failing):
        for _ in range(2):
            assert hand_over(tmp_path / "s", "upload", {}) == {REFUSED: WITHHELD}


def test_no_more_wait_than_may(tmp_path: Path) -> None:
    held = threading.Event()

    def slow(kind: str, fields: Fields) -> Fields:
        held.wait(20)
        return {}

    with served(tmp_path / "s", slow, waiting=2) as daemon:
        others = [threading.Thread(target=hand_over, args=(tmp_path / "s", "upload", {})) for _ in range(2)]
        for other in others:
            other.start()
        end = time.monotonic() + 20
        while daemon._room._value:  # until both are in
            assert time.monotonic() < end
            time.sleep(0.01)
        assert "busy: 2 messages wait" in str(hand_over(tmp_path / "s", "upload", {}, timeout=0))
        held.set()
        for other in others:
            other.join()


def test_a_refusal_that_came_before_the_message_was_sent_is_heard(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A busy node hangs up without reading. The courier must say "busy", not that there is no process."""
    hung_up, send = threading.Event(), frames.send
    monkeypatch.setattr(frames, "send", lambda *args: (hung_up.wait(20), send(*args)))
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "s"))
        listening.listen()

        def refusing() -> None:
            stream, _ = listening.accept()
            with stream:
                send(stream, "answer", {REFUSED: "busy"})
            hung_up.set()

        node = threading.Thread(target=refusing)
        node.start()
        assert hand_over(tmp_path / "s", "upload", {}, timeout=0) == {REFUSED: "busy"}
        node.join()


def test_a_message_longer_than_the_policy_allows_is_not_read(tmp_path: Path) -> None:
    with served(tmp_path / "s", echo, most=100), socket.socket(socket.AF_UNIX) as stream:
        stream.connect(str(tmp_path / "s"))
        stream.sendall(frames._HEAD.pack(b"LNOD", 1, 50, 2**40))
        answer = frames.receive(stream)
        assert answer is not None and "more than 100" in str(answer[1][REFUSED])


def test_garbage_ends_nothing(tmp_path: Path) -> None:
    with served(tmp_path / "s", echo):
        for data in (b"", b"GET / HTTP/1.1\r\n\r\n", os.urandom(400), b"LNOD"):
            with socket.socket(socket.AF_UNIX) as stream:
                stream.connect(str(tmp_path / "s"))
                stream.sendall(data)
        assert hand_over(tmp_path / "s", HELLO, {}) == {HELLO: 1}


def test_a_message_that_drips_does_not_keep_its_place(tmp_path: Path) -> None:
    """Each byte came in time, and the message never."""
    with served(tmp_path / "s", echo, waiting=1, reading=0.6), socket.socket(socket.AF_UNIX) as stream:
        stream.connect(str(tmp_path / "s"))
        began = time.monotonic()
        with pytest.raises(OSError):
            for byte in frames._HEAD.pack(b"LNOD", 1, 1 << 15, 0) + bytes(1 << 15):
                stream.sendall(bytes([byte]))
                time.sleep(0.1)
        assert time.monotonic() - began < 10
        assert hand_over(tmp_path / "s", HELLO, {}) == {HELLO: 1}


def test_somebody_who_asks_a_process_that_hangs_does_not_hang_too(tmp_path: Path) -> None:
    with open_socket(tmp_path / "s", None, waiting=1):  # it never accepts
        answer = hand_over(tmp_path / "s", HELLO, {}, timeout=0.0, within=0.2)
        assert "does not answer" in str(answer[REFUSED])


def test_a_courier_waits_for_a_node_that_is_restarted(tmp_path: Path) -> None:
    told: list[Fields] = []
    courier = threading.Thread(target=lambda: told.append(hand_over(tmp_path / "s", "keys", {}, timeout=20)))
    courier.start()
    time.sleep(0.3)
    with served(tmp_path / "s", echo):
        courier.join()
    assert told == [{"kind": "keys"}]
    assert "does not answer" in str(hand_over(tmp_path / "s", "keys", {}, timeout=0))


def test_the_last_answer_is_given_before_the_process_ends(tmp_path: Path) -> None:
    begun, told = threading.Event(), []

    def slow(kind: str, fields: Fields) -> Fields:
        begun.set()
        time.sleep(0.5)
        return {"done": 1}

    with served(tmp_path / "s", slow) as daemon:
        courier = threading.Thread(target=lambda: told.append(hand_over(tmp_path / "s", "upload", {})))
        courier.start()
        begun.wait(20)
        daemon.stop()
        courier.join()
    assert told == [{"done": 1}]


def test_the_socket_is_its_owners_alone(tmp_path: Path) -> None:
    with open_socket(tmp_path / "s", None, waiting=1):
        assert stat.S_IMODE((tmp_path / "s").stat().st_mode) == 0o600
        with pytest.raises(ConfigError, match="another process answers"):
            open_socket(tmp_path / "s", None, waiting=1)
    open_socket(tmp_path / "s", None, waiting=1).close()  # what a killed process left behind is in nobody's way
    with open_socket(tmp_path / "s", str(os.getgid()), waiting=1):
        assert stat.S_IMODE((tmp_path / "s").stat().st_mode) == 0o660


def test_a_place_that_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("precious")
    for path, group, words in (
        (tmp_path / "file", None, "no socket"),
        (tmp_path / "no/s", None, "there is no folder"),
        (tmp_path / "s", "nobody-has-this-group", "no such group"),
    ):
        with pytest.raises(ConfigError, match=words):
            open_socket(path, group, waiting=1)
    assert (tmp_path / "file").read_text() == "precious"


def test_a_folder_that_others_may_write_to_is_no_place_for_a_socket(tmp_path: Path) -> None:
    """They could put a link to a file of the owner's in its place, which is then opened to the group."""
    for mode in (0o770, 0o757):
        (tmp_path / "run").mkdir(exist_ok=True)
        (tmp_path / "run").chmod(mode)
        with pytest.raises(ConfigError, match=r"others may write to .*: chmod go-w"):
            open_socket(tmp_path / "run/s", str(os.getgid()), waiting=1)
    (tmp_path / "run").chmod(0o1777)  # as /tmp: nobody can replace what is another's
    open_socket(tmp_path / "run/s", None, waiting=1).close()


def test_a_socket_that_may_be_in_use_is_not_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket(socket.AF_UNIX) as hanging:
        hanging.bind(str(tmp_path / "s"))
        hanging.listen(0)
        with socket.socket(socket.AF_UNIX) as first:
            first.connect(str(tmp_path / "s"))  # nobody accepts, and no other one may wait
            monkeypatch.setattr(place, "_PROBE", 0.2)
            with pytest.raises(ConfigError, match="another process may be there"):
                open_socket(tmp_path / "s", None, waiting=1)
    assert (tmp_path / "s").exists()


def test_one_process_serves_a_folder(tmp_path: Path) -> None:
    assert serving(tmp_path) is None
    with ServingLock(tmp_path):
        assert serving(tmp_path) == os.getpid()
        with pytest.raises(RunFolderError, match=f"process {os.getpid()} serves"), ServingLock(tmp_path):
            pass
    assert serving(tmp_path) is None


def test_looking_whether_a_process_serves_a_folder_keeps_none_from_starting(tmp_path: Path) -> None:
    with ServingLock(tmp_path):
        pass
    with open(tmp_path / "serving.lock") as looking:
        fcntl.flock(looking, fcntl.LOCK_SH)
        assert serving(tmp_path) is None
        threading.Timer(0.1, fcntl.flock, (looking, fcntl.LOCK_UN)).start()
        with ServingLock(tmp_path):
            assert serving(tmp_path) == os.getpid()


def test_a_full_disk_at_the_start_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def write(handle: int, data: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("laconic.federation.node.serve.place.os.write", write)
    with pytest.raises(RunFolderError, match="serving.lock: No space left on device"), ServingLock(tmp_path):
        pass
    assert serving(tmp_path) is None


_INTRUDER = """
import json, os, socket, sys
place, found = sys.argv[1], {}
os.setgroups([int(sys.argv[2])] if sys.argv[2] else [])
os.setgid(65534)
os.setuid(65534)
def tried(name, act):
    try:
        act()
        found[name] = "open"
    except OSError as error:
        found[name] = type(error).__name__
for name in ("data.csv", "policy.toml", "node/identity.key", "node/log.jsonl"):
    tried(name, lambda: open(f"{place}/{name}", "rb").read())
    tried(f"write {name}", lambda: open(f"{place}/{name}", "ab"))
tried("list", lambda: os.listdir(f"{place}/node"))
tried("replace", lambda: os.rename(f"{place}/run/s", f"{place}/run/t"))
tried("socket", lambda: socket.socket(socket.AF_UNIX).connect(f"{place}/run/s"))
print(json.dumps(found))
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
@pytest.mark.parametrize("in_group", [True, False])
def test_code_that_runs_as_the_supernodes_user_reaches_the_socket_and_nothing_else(in_group: bool) -> None:
    """What an app could do that a server ships, whatever it holds."""
    group = 65533
    with tempfile.TemporaryDirectory() as name:  # pytest's own folders let nobody else in
        place = Path(name)
        place.chmod(0o755)
        (place / "node").mkdir(mode=0o700)
        (place / "run").mkdir(mode=0o755)
        for file in ("data.csv", "policy.toml", "node/identity.key", "node/log.jsonl"):
            (place / file).write_text("secret")
            (place / file).chmod(0o600)
        with open_socket(place / "run/s", str(group), waiting=1):
            command = [sys.executable, "-I", "-c", _INTRUDER, name, str(group) if in_group else ""]
            ended = subprocess.run(command, capture_output=True, text=True, check=False, cwd="/")
    assert ended.returncode == 0, ended.stderr
    found = json.loads(ended.stdout)
    assert found.pop("socket") == ("open" if in_group else "PermissionError")
    assert len(found) == 10 and set(found.values()) == {"PermissionError"}, found
