"""What an operator watches: events with listed fields, figures for Prometheus, the port, and who may ask."""

from __future__ import annotations

import contextlib
import http.client
import json
import math
import socket
import threading
import time
from pathlib import Path

import pytest
from scrapes import read_scrape

from laconic import operations
from laconic.errors import ConfigError
from laconic.operations import CONTENT_TYPE, MOST_CONNECTIONS, Endpoint, EventLog, counter, exposition, gauge


def test_an_event_is_one_line_of_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = EventLog(tmp_path / "log")
    log.write("refused", level="warning", round=2, reason="two\nlines " + "x" * 400, seconds=math.inf, cohort=None)
    log.close()
    (line,) = (tmp_path / "log").read_text().splitlines()
    row = json.loads(line)
    assert (row["event"], row["level"], row["round"], row["seconds"]) == ("refused", "warning", 2, "inf")
    assert row["reason"].startswith("two lines")
    assert len(row["reason"]) == 300
    assert "cohort" not in row
    assert (tmp_path / "log").stat().st_mode & 0o077 == 0
    EventLog().write("note", text="to stderr")
    assert json.loads(capsys.readouterr().err)["text"] == "to stderr"


def test_no_other_field_can_be_written(tmp_path: Path) -> None:
    log = EventLog(tmp_path / "log")
    with pytest.raises(ValueError, match="no fields of an event"):
        log.write("answered", label=3)
    log.close()


def test_a_full_disk_does_not_end_what_is_watched() -> None:
    if not Path("/dev/full").exists():
        pytest.skip("there is no /dev/full on this system")
    log = EventLog(Path("/dev/full"))
    log.write("note", text="lost")
    log.close()


def test_a_log_that_cannot_be_written_is_said_at_once(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot write the log"):
        EventLog(tmp_path / "none" / "log")


def written() -> str:
    odd = gauge("a_gauge", 'help with \\ and\na line and "quotes"')
    odd.add(math.inf, label='"quoted" \\ and\nbroken').add(-math.inf, label="b").add(math.nan, label="é").add(
        1e300, n=""
    )
    return exposition(
        [odd, counter("some_total", "A count.", 2**53 - 1), gauge("none", "Left out."), gauge("f", "F.", 0.1)]
    )


def test_the_text_is_of_the_format() -> None:
    found = read_scrape(written())
    assert found["some_total", ""] == 2**53 - 1
    assert found["f", ""] == 0.1
    assert found["a_gauge", r'label="\"quoted\" \\ and\nbroken"'] == math.inf
    assert len(found) == 6


def test_prometheus_own_parser_reads_it() -> None:
    parser = pytest.importorskip("prometheus_client.parser", reason="prometheus_client is not installed")
    families = {family.name: family for family in parser.text_string_to_metric_families(written())}
    assert families["a_gauge"].samples[0].labels == {"label": '"quoted" \\ and\nbroken'}
    assert families["some"].samples[0].value == 2**53 - 1


@pytest.mark.parametrize(
    "broken",
    ["a 1\n", "# HELP a x\n# TYPE a gauge\na{b=c} 1\n", "# HELP a x\n# TYPE a counter\na 1\n", "# TYPE a gauge\na 1\n"],
)
def test_the_reader_is_strict(broken: str) -> None:
    """Guards the tests above against a reader that takes anything."""
    with pytest.raises(AssertionError):
        read_scrape(broken)


def ask(port: int, path: str = "/metrics", method: str = "GET", **headers: str) -> tuple[int, str, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request(method, path, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.getheader("Content-Type") or "", answer.read().decode()
    finally:
        connection.close()


def test_a_port_of_this_machine_and_of_no_other() -> None:
    endpoint = Endpoint(0, written)
    try:
        assert ask(endpoint.port) == (200, CONTENT_TYPE, written())
        assert ask(endpoint.port, "/")[0] == 404
        assert ask(endpoint.port, method="POST")[0] == 405
        assert ask(endpoint.port, Host=f"localhost:{endpoint.port}")[0] == 200
        # A page of another site in a browser here, whose name was made to point to this machine.
        assert ask(endpoint.port, Host="evil.example:80")[0] == 421
        assert endpoint._server.server_address[0] == "127.0.0.1"
        with pytest.raises(ConfigError, match=f"cannot listen on port {endpoint.port} of 127.0.0.1"):
            Endpoint(endpoint.port, written)
    finally:
        endpoint.close()
    Endpoint(endpoint.port, written).close()  # it is free again


def test_with_a_token_other_users_of_the_machine_read_nothing() -> None:
    endpoint = Endpoint(0, written, b"fifteen-letters")
    try:
        for wrong in ({}, {"Authorization": "Bearer fifteen-letter"}, {"Authorization": "fifteen-letters"}):
            status, _, text = ask(endpoint.port, **wrong)
            assert status == 401 and "gauge" not in text
        assert ask(endpoint.port, Authorization="Bearer fifteen-letters") == (200, CONTENT_TYPE, written())
    finally:
        endpoint.close()


def test_many_silent_connections_take_few_threads_and_keep_no_scrape_out() -> None:
    """Any user of the machine can open them: the process would have no file left for the node's own socket."""
    endpoint = Endpoint(0, written)
    before, silent = threading.active_count(), []
    try:
        for _ in range(4 * MOST_CONNECTIONS):
            silent.append(socket.create_connection(("127.0.0.1", endpoint.port), timeout=5))
            assert threading.active_count() <= before + MOST_CONNECTIONS
        assert ask(endpoint.port)[0] == 200
        assert silent[0].recv(1) == b""  # the oldest was interrupted
        assert threading.active_count() <= before + MOST_CONNECTIONS
    finally:
        for connection in silent:
            connection.close()
        endpoint.close()


def test_a_connection_that_is_being_answered_is_not_exceeded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no thread ends in time, the new connection is closed; afterwards scrapes are answered again."""
    free = threading.Event()
    monkeypatch.setattr(operations, "MOST_CONNECTIONS", 1)
    endpoint = Endpoint(0, lambda: written() if free.wait(10) else "")
    try:
        with socket.create_connection(("127.0.0.1", endpoint.port), timeout=5) as first:
            first.sendall(b"GET /metrics HTTP/1.0\r\nHost: localhost\r\n\r\n")
            time.sleep(0.1)
            with socket.create_connection(("127.0.0.1", endpoint.port), timeout=5) as further:
                assert further.recv(1) == b""
            free.set()
        end = time.monotonic() + 10
        while True:
            with contextlib.suppress(OSError, http.client.HTTPException):
                assert ask(endpoint.port)[0] == 200
                break
            assert time.monotonic() < end
    finally:
        free.set()
        endpoint.close()
