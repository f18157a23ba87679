"""The whole page: one file that loads nothing, with its style and its script inside."""

from __future__ import annotations

import base64
import functools
import hashlib
from collections.abc import Callable, Sequence
from importlib.resources import files

from laconic.report.drawing import Markup, tag
from laconic.report.page.classes import by_class
from laconic.report.page.costs import cohorts, timing, traffic
from laconic.report.page.curves import quality, spending
from laconic.report.page.facts import header, result, settings, statement
from laconic.report.page.reading import RunView
from laconic.report.page.verdict import verdict

PARTS: tuple[tuple[str, str, Callable[[RunView], Markup | None]], ...] = (
    ("head", "", header),
    ("verdict", "Promise", verdict),
    ("result", "Result", result),
    ("quality", "Quality", quality),
    ("spending", "Privacy spent", spending),
    ("classes", "By class", by_class),
    ("cohorts", "Who took part", cohorts),
    ("traffic", "Bytes", traffic),
    ("timing", "Time", timing),
    ("settings", "Settings", settings),
    ("statement", "Statement", statement),
)
"""Key, name in the list of contents, and what makes it."""


def run_parts(view: RunView) -> dict[str, Markup]:
    """The sections of a report by their key. What a run does not have (yet) is an empty, hidden section."""
    found = {key: make(view) for key, _, make in PARTS}
    links = [tag("li", tag("a", name, href=f"#{key}")) for key, name, _ in PARTS if name and found[key] is not None]
    contents = tag("nav", tag("ul", links), aria_label="Contents", data_part="contents")
    parts = {key: part or tag("section", hidden=True, data_part=key) for key, part in found.items()}
    return {"head": parts.pop("head"), "contents": contents, **parts}


def run_page(view: RunView, *, live: str | None = None, above: Markup | None = None) -> str:
    """The report of one run. `live` is where a live page asks for news."""
    return document(f"Laconic: {view.name}", list(run_parts(view).values()), live=live, above=above)


def document(title: str, content: Sequence[Markup], *, live: str | None = None, above: Markup | None = None) -> str:
    """A page around the sections. Its policy allows its own script and style by their hashes, and nothing else."""
    style, script = asset("page.css"), asset("page.js")
    connect = "'self'" if live is not None else "'none'"
    policy = (
        f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; connect-src {connect};"
        " img-src data:; base-uri 'none'; form-action 'none'"
    )
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=policy),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("meta", name="referrer", content="no-referrer"),
        tag("link", rel="icon", href="data:,"),
        tag("title", title),
        tag("style", Markup(style)),
    )
    body = tag(
        "body",
        tag("a", "Skip to the content", href="#content", class_="skip"),
        above,
        tag("p", class_="live", role="status") if live is not None else None,
        tag("main", content, id="content", tabindex="-1"),
        tag("script", Markup(script)),
        data_live=live,
    )
    return f"<!doctype html>\n{tag('html', head, body, lang='en')}\n"


@functools.cache
def asset(name: str) -> str:
    """A file of the package."""
    return files("laconic.report.page").joinpath("assets", name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
