"""`laconic watch` as an attacker sees it: who may read, from where, how, and what; some checks have a failing twin."""

from __future__ import annotations

import html
import http.client
import json
import math
import os
import shutil
import socket
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from page_tools import rows_of, small_run, write_rows

from laconic import operations
from laconic.errors import ConfigError
from laconic.report import live as module
from laconic.report.live import Runs, WatchServer

SECRET = "name-that-only-the-page-has"


@pytest.fixture(autouse=True)
def looking_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Runs, "look_every", 0.0)
    monkeypatch.setattr(Runs, "look_share", math.inf)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_run(tmp_path_factory.mktemp("watched") / SECRET, rounds=3)


@pytest.fixture
def folder(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / SECRET))


@pytest.fixture
def server(folder: Path) -> Iterator[WatchServer]:
    yield from serving(WatchServer(Runs([folder])))


def serving(server: WatchServer) -> Iterator[WatchServer]:
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def raw(server: WatchServer, text: str) -> str:
    """The whole answer to these bytes."""
    with socket.create_connection(server.server_address[:2], timeout=5) as connection:
        connection.sendall(text.encode())
        answer = b""
        while part := connection.recv(65536):
            answer += part
    return answer.decode()


def asked(server: WatchServer, path: str, host: str = "127.0.0.1:1", method: str = "GET") -> tuple[int, str]:
    connection = http.client.HTTPConnection(*server.server_address[:2], timeout=5)
    connection.putrequest(method, path, skip_host=True)
    connection.putheader("Host", host)
    connection.endheaders()
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer.status, text


def test_whoever_has_the_address_sees_the_page(server: WatchServer) -> None:
    status, text = asked(server, f"/{server.token}/")
    assert status == 200 and SECRET in text


@pytest.mark.parametrize("path", ["/", "/{short}/", "/x{token}/", "/{token}", "/{token}x/", "/{upper}/"])
def test_without_the_whole_token_there_is_nothing(server: WatchServer, path: str) -> None:
    spelt = path.format(token=server.token, short=server.token[:-1], upper=server.token.swapcase())
    status, text = asked(server, spelt)
    assert status == 404 and SECRET not in text and server.token not in text


def test_tokens_cannot_be_guessed(folder: Path) -> None:
    tokens = set()
    for _ in range(3):
        with WatchServer(Runs([folder])) as server:
            tokens.add(server.token)
    assert len(tokens) == 3 and all(len(token) >= 32 for token in tokens)


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "localhost.evil:80", "", "0.0.0.0"]
)
def test_another_name_for_this_machine_is_refused(server: WatchServer, host: str) -> None:
    """A page of evil.example whose name now points to 127.0.0.1 sends its own name."""
    status, text = asked(server, f"/{server.token}/", host)
    assert status == 421 and SECRET not in text


def test_two_names_or_none_are_refused(server: WatchServer) -> None:
    for hosts in ("", "Host: 127.0.0.1\r\nHost: evil.example\r\n"):
        answer = raw(server, f"GET /{server.token}/ HTTP/1.0\r\n{hosts}\r\n")
        assert " 421 " in answer.splitlines()[0] and SECRET not in answer


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "localhost:8808", "LOCALHOST:1"])
def test_this_machine_may_ask_also_through_a_forwarded_port(server: WatchServer, host: str) -> None:
    assert asked(server, f"/{server.token}/", host)[0] == 200


def test_a_missing_check_of_the_name_would_be_noticed(server: WatchServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operations, "names_this_machine", lambda hosts: True)
    assert SECRET in asked(server, f"/{server.token}/", "evil.example")[1]


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS", "TRACE", "CONNECT", "ODD"])
def test_it_can_only_be_read(server: WatchServer, method: str) -> None:
    status, text = asked(server, f"/{server.token}/", method=method)
    assert status == 405 and SECRET not in text


@pytest.mark.parametrize(
    "path",
    [
        "config.toml",
        "rounds.jsonl",
        "charges.jsonl",
        "../../../../../../etc/passwd",
        "%2e%2e/%2e%2e/etc/passwd",
        "..%2f..%2fetc/passwd",
        "/etc/passwd",
        "//etc/passwd",
        "{folder}/config.toml",
        "{folder}/",
        "{key}/../{key}/config.toml",
        "{key}/config.toml",
        "{key}/news/",
        "news/../config.toml",
        "?file=/etc/passwd/x",
        "\\..\\config.toml",
        "{key}%00/",
    ],
)
def test_no_path_leads_to_a_file(server: WatchServer, folder: Path, path: str) -> None:
    (key,) = server.runs.folders()
    target = f"/{server.token}/{path.format(folder=folder, key=key)}"
    if path.startswith("?"):
        target = target.replace("?", "x?")
    status, text = asked(server, target)
    assert status == 404 and "root:" not in text and "[scheme]" not in text


def test_it_listens_on_one_address_of_this_machine_only(server: WatchServer) -> None:
    port = server.server_address[1]
    assert server.server_address[0] == "127.0.0.1"
    with pytest.raises(OSError):
        socket.create_connection(("127.0.0.2", port), timeout=1)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has all of 127.0.0.0/8")
def test_listening_everywhere_would_be_noticed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operations, "LOOPBACK", "0.0.0.0")
    with WatchServer(Runs([folder])) as everywhere:
        socket.create_connection(("127.0.0.2", everywhere.server_address[1]), timeout=1).close()


def test_answers_cannot_be_framed_cached_guessed_or_referred_to(server: WatchServer) -> None:
    answer = raw(server, f"GET /{server.token}/ HTTP/1.0\r\nHost: localhost\r\n\r\n")
    head = answer.partition("\r\n\r\n")[0]
    for line in (
        "Cache-Control: no-store",
        "X-Content-Type-Options: nosniff",
        "Content-Security-Policy: frame-ancestors 'none'",
        "Referrer-Policy: no-referrer",
        "Cross-Origin-Resource-Policy: same-origin",
    ):
        assert line in head
    assert "Access-Control-Allow-Origin" not in head and "Python" not in head
    assert "connect-src 'self'" in html.unescape(answer)


def test_reading_changes_nothing_and_locks_nothing(server: WatchServer, folder: Path) -> None:
    from laconic.store.folder import RunFolder

    def state() -> dict[str, tuple[int, bytes]]:
        files = [path for path in folder.rglob("*") if path.is_file()]
        return {str(path): (path.stat().st_mtime_ns, path.read_bytes()) for path in files}

    before = state()
    run = RunFolder(folder)
    for path in ("", "news", "news?seen=x"):
        assert asked(server, f"/{server.token}/{path}")[0] == 200
    assert state() == before
    run.open()
    run.close()


def test_nothing_is_logged(server: WatchServer, capfd: pytest.CaptureFixture[str]) -> None:
    asked(server, f"/{server.token}/")
    asked(server, "/wrong/", method="POST")
    raw(server, "nonsense\r\n\r\n")
    assert capfd.readouterr() == ("", "")


def test_news_are_the_sections_until_they_were_seen(server: WatchServer, folder: Path) -> None:
    def news(seen: str = "") -> dict[str, object]:
        found: dict[str, object] = json.loads(asked(server, f"/{server.token}/news?seen={seen}")[1])
        return found

    first = news()
    assert "verdict" in first["parts"] and first["state"] == "finished after round 3"  # type: ignore[operator]
    assert news(str(first["version"]))["parts"] == {}
    write_rows(folder, [*rows_of(folder), rows_of(folder)[-1] | {"round": 4}])
    later = news(str(first["version"]))
    assert later["version"] != first["version"] and "Round 4" in later["parts"]["head"]  # type: ignore[index]


def test_a_folder_that_comes_later_is_shown_when_it_is_there(finished: Path, tmp_path: Path) -> None:
    for server in serving(WatchServer(Runs([tmp_path / "later"]))):
        assert "Waiting for the run to begin." in asked(server, f"/{server.token}/")[1]
        shutil.copytree(finished, tmp_path / "later")
        assert "Finished after 3 rounds" in asked(server, f"/{server.token}/")[1]


def test_a_folder_of_several_runs_has_a_page_for_all_and_for_each(finished: Path, tmp_path: Path) -> None:
    for name in ("a/run", "b/run"):
        shutil.copytree(finished, tmp_path / name)
    for server in serving(WatchServer(Runs([tmp_path]))):
        text = asked(server, f"/{server.token}/")[1]
        assert "2 runs side by side" in text and "a/run" in text and "b/run" in text
        shutil.copytree(finished, tmp_path / "c")
        for key in server.runs.folders():
            status, text = asked(server, f"/{server.token}/{key}/")
            assert status == 200 and "What this run promises" in text and "All runs" in text
        assert "3 runs side by side" in asked(server, f"/{server.token}/")[1]


def test_links_to_other_folders_are_not_followed(finished: Path, tmp_path: Path) -> None:
    shutil.copytree(finished, tmp_path / "sweep/one")
    os.symlink(finished, tmp_path / "sweep/link")
    assert list(Runs([tmp_path / "sweep"]).folders().values()) == [tmp_path / "sweep/one"]


def test_looking_for_runs_ends_in_a_large_tree(finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_LOOKED", 5)
    for number in range(9):
        (tmp_path / f"tree/{number}/below").mkdir(parents=True)
    shutil.copytree(finished, tmp_path / "tree/near")
    shutil.copytree(finished, tmp_path / "tree/8/far")
    assert module.run_folders(tmp_path / "tree") == [tmp_path / "tree/near"]
    monkeypatch.setattr(module, "_LOOKED", 50)
    assert module.run_folders(tmp_path / "tree") == [tmp_path / "tree/8/far", tmp_path / "tree/near"]


def test_a_pipe_in_place_of_a_file_does_not_hang_the_server(server: WatchServer, folder: Path) -> None:
    (folder / "rounds.jsonl").unlink()
    os.mkfifo(folder / "rounds.jsonl")
    assert asked(server, f"/{server.token}/")[0] == 200


def test_a_port_that_is_taken_is_said(server: WatchServer, folder: Path) -> None:
    with pytest.raises(ConfigError, match="cannot listen on port .* in use"):
        WatchServer(Runs([folder]), server.server_address[1])


def test_a_crowd_that_says_nothing_keeps_nobody_out(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Any user of the machine can connect: without a limit each would cost a thread for half a minute."""
    monkeypatch.setattr(module, "_MOST_CONNECTIONS", 8)
    with WatchServer(Runs([folder])) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        before = threading.active_count()
        silent = [socket.create_connection(server.server_address[:2], timeout=5) for _ in range(40)]
        silent[-1].sendall(f"GET /{server.token}/ HTTP/1.0\r\nHo".encode())
        assert asked(server, f"/{server.token}/")[0] == 200
        assert threading.active_count() <= before + 8
        for connection in silent:
            connection.close()
        server.shutdown()


def test_a_reader_that_stalls_does_not_hold_up_the_others(server: WatchServer) -> None:
    with socket.create_connection(server.server_address[:2], timeout=5) as slow:
        slow.sendall(f"GET /{server.token}/ HTTP/1.0\r\nHost: localhost\r\n\r\n".encode())
        assert [asked(server, f"/{server.token}/")[0] for _ in range(3)] == [200] * 3


def test_the_address_for_a_browser_works_once_and_does_not_have_the_token(server: WatchServer) -> None:
    """Every user of a machine can read the command line of the browser that is started."""
    path = "/" + server.ticket().split("/", 3)[3]
    assert server.token not in path
    assert asked(server, f"{path}x")[0] == 404 and asked(server, path, "evil.example")[0] == 421
    answer = raw(server, f"GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n")
    assert " 303 " in answer.splitlines()[0] and f"Location: /{server.token}/" in answer
    for again in (path, "/once/", "/once"):
        status, text = asked(server, again)
        assert status == 404 and server.token not in text


def test_a_page_that_cannot_be_made_is_said(server: WatchServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "run_parts", lambda view: 1 // 0)
    status, text = asked(server, f"/{server.token}/")
    assert status == 500 and "ZeroDivisionError" in text


def test_an_address_that_is_none_is_answered(server: WatchServer) -> None:
    assert " 400 " in raw(server, "GET http://[x HTTP/1.0\r\nHost: localhost\r\n\r\n").splitlines()[0]


def test_looking_for_runs_takes_a_small_share_of_the_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = []

    def slow(path: Path) -> list[Path]:
        looks.append(path)
        time.sleep(0.02)
        return [path]

    monkeypatch.setattr(module, "run_folders", slow)
    monkeypatch.setattr(Runs, "look_share", 0.01)
    watched = Runs([tmp_path])
    for _ in range(5):
        watched.folders()
    assert len(looks) == 1
