"""Figures in Prometheus' text format, version 0.0.4, and a port of this machine that shows them as `GET /metrics`.

There is no option for another address. What is shown (sizes of cohorts, times of rounds) is what the outsider's ε
assumes to be secret, so it must not be readable from elsewhere.
"""

from __future__ import annotations

import hmac
import math
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus

from laconic.operations.local_server import LocalHandler, LocalServer

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


@dataclass(frozen=True)
class Family:
    """Figures of one name. `kind` is gauge or counter; the name of a counter ends in `_total`."""

    name: str
    kind: str
    help: str
    samples: list[tuple[Mapping[str, str], float]] = field(default_factory=list)

    def add(self, value: float, **labels: str) -> Family:
        self.samples.append((labels, float(value)))
        return self


def gauge(name: str, help: str, value: float | None = None) -> Family:
    """A figure that goes up and down."""
    return _with(Family(name, "gauge", help), value)


def counter(name: str, help: str, value: float | None = None) -> Family:
    """A figure that only grows."""
    return _with(Family(name, "counter", help), value)


def exposition(families: Iterable[Family]) -> str:
    """The text of a scrape. Families without a sample are left out."""
    lines = []
    for family in families:
        if not family.samples:
            continue
        lines += [f"# HELP {family.name} {_escaped(family.help)}", f"# TYPE {family.name} {family.kind}"]
        lines += [f"{family.name}{_labels(labels)} {_number(value)}" for labels, value in family.samples]
    return "".join(f"{line}\n" for line in lines)


def _with(family: Family, value: float | None) -> Family:
    return family if value is None else family.add(value)


def _labels(labels: Mapping[str, str]) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{_escaped(value, quote=True)}"' for name, value in labels.items()) + "}"


def _escaped(text: str, *, quote: bool = False) -> str:
    plain = text.replace("\\", r"\\").replace("\n", r"\n")
    return plain.replace('"', r"\"") if quote else plain


def _number(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return str(int(value)) if value.is_integer() and abs(value) < 1 << 53 else repr(value)


MOST_CONNECTIONS = 8
"""At a time. Every user of this machine can open some, and the process needs its threads and files for other things."""


class Endpoint:
    """Answers scrapes with what `text` says at the time, from a thread of its own. Port 0 takes any free one.

    With a `token`, a request must have the header `Authorization: Bearer TOKEN`: other users of the machine do not know
    it.
    """

    def __init__(self, port: int, text: Callable[[], str], token: bytes | None = None) -> None:
        self._server = _MetricsServer(port, text, token)
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.1,), name="metrics", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _MetricsServer(LocalServer):
    def __init__(self, port: int, text: Callable[[], str], token: bytes | None) -> None:
        self.text, self.token = text, token
        super().__init__(port, _Scrape, most_connections=MOST_CONNECTIONS)


class _Scrape(LocalHandler):
    server: _MetricsServer
    timeout = 5

    def get(self) -> None:
        given, token = (self.headers.get("Authorization") or "").encode("utf-8", "replace"), self.server.token
        if token is not None and not hmac.compare_digest(given, b"Bearer " + token):
            return self.refuse(HTTPStatus.UNAUTHORIZED, "missing or wrong bearer token")
        if self.path.partition("?")[0] != "/metrics":
            return self.refuse(HTTPStatus.NOT_FOUND, "there is /metrics and nothing else")
        return self.answer(HTTPStatus.OK, self.server.text(), CONTENT_TYPE)
