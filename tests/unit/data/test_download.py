"""Downloads from a server on the loopback device: checked, atomic, and with a way out when they fail."""

from __future__ import annotations

import io
import os
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from laconic.data import download as module
from laconic.data.download import download
from laconic.errors import DataError

pytestmark = pytest.mark.filterwarnings("error")

CONTENT = bytes(range(256)) * 1000


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.seen: list[str] = []

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.server_port}/{path}"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        self.server.seen.append(self.path)
        if self.path == "/missing":
            self.send_error(404)
            return
        body = {"/wrong": b"<html>a captive portal</html>", "/short": CONTENT[:5000]}.get(self.path, CONTENT)
        self.send_response(200)
        if self.path != "/unknown-length":
            self.send_header("Content-Length", str(len(CONTENT) if self.path == "/short" else len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LACONIC_OFFLINE", raising=False)
    monkeypatch.setenv("no_proxy", "127.0.0.1")


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "cache" / "set" / "file.gz"


def check(path: Path) -> None:
    if path.read_bytes() != CONTENT:
        raise ValueError("not the expected data")


def left_behind(target: Path) -> list[str]:
    return os.listdir(target.parent) if target.parent.exists() else []


@pytest.mark.parametrize("path", ["good", "unknown-length"])
def test_downloads(server: Server, target: Path, path: str) -> None:
    assert download([server.url(path)], target, check) == target
    assert target.read_bytes() == CONTENT
    assert left_behind(target) == ["file.gz"]


def test_takes_the_first_mirror_that_delivers(server: Server, target: Path) -> None:
    paths = ("missing", "short", "wrong", "good", "never-asked")
    download([server.url(path) for path in paths], target, check)
    assert server.seen == ["/missing", "/short", "/wrong", "/good"]
    assert target.read_bytes() == CONTENT
    assert left_behind(target) == ["file.gz"]


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("missing", "HTTP Error 404"),
        ("short", "truncated: 5000 of 256000 bytes arrived"),
        ("wrong", "not the expected data"),
    ],
)
def test_a_failed_download_leaves_nothing(server: Server, target: Path, path: str, reason: str) -> None:
    with pytest.raises(DataError) as caught:
        download([server.url(path)], target, check)
    message = str(caught.value)
    assert f"{server.url(path)} (" in message and reason in message
    assert "--data-dir" in message and "LACONIC_DATA" in message
    assert left_behind(target) == []


def test_a_failed_download_keeps_what_was_there(server: Server, target: Path) -> None:
    target.parent.mkdir(parents=True)
    target.write_bytes(b"older")
    with pytest.raises(DataError):
        download([server.url("short")], target, check)
    assert target.read_bytes() == b"older"
    assert left_behind(target) == ["file.gz"]


def test_an_interrupted_download_leaves_nothing(server: Server, target: Path) -> None:
    def interrupt(path: Path) -> None:
        assert path.exists() and path != target
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        download([server.url("good")], target, interrupt)
    assert left_behind(target) == []


def test_no_server(server: Server, target: Path) -> None:
    closed = Server()
    closed.server_close()
    with pytest.raises(DataError, match="refused") as caught:
        download([closed.url("a"), closed.url("b")], target, check)
    assert closed.url("a") in str(caught.value) and closed.url("b") in str(caught.value)
    assert left_behind(target) == []


def test_offline_asks_no_server(server: Server, target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LACONIC_OFFLINE", "1")
    with pytest.raises(DataError, match="LACONIC_OFFLINE") as caught:
        download([server.url("good")], target, check)
    assert server.url("good") in str(caught.value) and "--data-dir" in str(caught.value)
    assert server.seen == [] and not target.parent.exists()
    monkeypatch.setenv("LACONIC_OFFLINE", "0")
    assert download([server.url("good")], target, check).exists()


def test_an_unwritable_cache_is_not_the_mirrors_fault(server: Server, target: Path) -> None:
    target.parent.parent.mkdir()
    target.parent.write_text("a file where the folder should be")
    with pytest.raises(DataError, match="LACONIC_CACHE"):
        download([server.url("good")], target, check)
    assert server.seen == []


def test_a_full_disk_is_not_the_mirrors_fault(server: Server, target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(done: int, total: int | None) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(module, "_progress", lambda name: _Context(full))
    with pytest.raises(DataError, match="No space left on device.*LACONIC_CACHE"):
        download([server.url("good"), server.url("next")], target, check)
    assert server.seen == ["/good"] and left_behind(target) == []


class _Context:
    def __init__(self, value: object) -> None:
        self.value = value

    def __enter__(self) -> object:
        return self.value

    def __exit__(self, *args: object) -> None:
        pass


def test_a_person_sees_a_progress_bar(server: Server, target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setenv("TERM", "xterm")
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    download([server.url("good")], target, check)
    assert "file.gz" in terminal.getvalue()


def test_a_log_sees_none(server: Server, target: Path, capfd: pytest.CaptureFixture[str]) -> None:
    download([server.url("good")], target, check)
    assert capfd.readouterr() == ("", "")
