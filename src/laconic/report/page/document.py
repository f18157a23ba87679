"""The whole page: one file that loads nothing, with the facts of the run, its style and its script inside."""

from __future__ import annotations

import base64
import datetime
import functools
import hashlib
import json
import os
import shlex
from collections.abc import Callable, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any, cast

from laconic import __version__
from laconic.errors import worded
from laconic.metrics import titles
from laconic.privacy.released import Statement, Summary
from laconic.privacy.statement import statement_lines
from laconic.report.drawing import Markup, folded, joined, pairs, table, tag
from laconic.report.page.curves import by_class, cohorts, quality, spending, timing, traffic
from laconic.report.page.reading import RunView, best, main_metric, number, section, short
from laconic.report.page.sure import how_sure
from laconic.report.page.verdict import verdict
from laconic.report.summary_lines import STOPPED, not_better, result_lines


def header(view: RunView) -> Markup:
    """Title and facts."""
    return tag(
        "header",
        tag("p", "Laconic run report", class_="kicker"),
        tag("h1", view.name),
        tag("p", _status(view), class_="status"),
        pairs(_facts(view)),
        id="head",
        data_part="head",
    )


def _facts(view: RunView) -> list[tuple[object, object]]:
    data, model, scheme = (section(view.config, key) for key in ("data", "model", "scheme"))
    facts: list[tuple[object, object]] = [
        ("Scheme", scheme.get("name") or section(view.statement, "mechanism").get("scheme")),
        ("Data", _data(data)),
        ("Model", model.get("name") or section(view.config, "run").get("model")),
        ("Clients", _clients(view, data)),
        ("Where", "a federation of separate nodes" if view.federated else "simulated, in one process"),
    ]
    facts = [(heading, text) for heading, text in facts if text]
    if view.written is not None:
        when = datetime.datetime.fromtimestamp(view.written, tz=datetime.UTC)
        facts.append(("Last round", tag("time", f"{when:%Y-%m-%d %H:%M} UTC", datetime=f"{when:%Y-%m-%dT%H:%M:%SZ}")))
    facts.append(("Laconic", f"version {__version__} made this page"))
    return facts


def _data(data: Any) -> str:
    words = [str(data[key]) for key in ("dataset",) if key in data]
    if "partition" in data:
        words.append(f"({data['partition']} partition)")
    return " ".join(words)


def _clients(view: RunView, data: Any) -> str:
    count = number(section(view.statement, "sampler"), "num_clients") or number(data, "num_clients")
    sampler = section(view.config, "sampler")
    rate, size = number(sampler, "sampling_rate"), number(sampler, "cohort_size")
    words = [] if count is None else [f"{count:,.0f}"]
    if rate is not None:
        words.append(f"each takes part in a round with probability {rate:.4g}")
    elif size is not None:
        words.append(f"{size:g} take part in a round")
    return "; ".join(words)


def _status(view: RunView) -> list[object]:
    """How far the run is, and how good the model."""
    if view.refused:
        return [tag("span", view.refused, class_="bad")]
    if not view.rows:
        text = "No round is finished yet." if view.config else "Waiting for the run to begin."
        return [text, _failure(view)]
    done, planned = view.rows[-1]["round"], view.planned
    if view.finished:
        why = STOPPED.get(str(view.summary.get("stop_reason")), str(view.summary.get("stop_reason")))
        words = f"Finished after {_rounds(done)}: {why}."
    else:
        of = f" of {planned:,}" if planned else ""
        words = f"Round {done:,}{of} is done; the run has not finished."
    doubt = f" {view.doubt}" if view.doubt else None
    return [tag("strong", words), " ", _score(view), _failure(view), doubt]


def _score(view: RunView) -> str:
    metric = main_metric(view)
    found = None if metric is None else best(view.rows, metric)
    if metric is None or found is None:
        return "The model was not evaluated: there are no test records."
    last = [value for row in view.rows if (value := number(row, metric)) is not None][-1]
    return f"{titles()[metric].capitalize() if metric != 'auroc' else 'AUROC'} {short(last)} on test records."


def _failure(view: RunView) -> Markup | None:
    error = view.failure.get("error")
    return tag("span", f" It gave up: {error}", class_="bad") if error else None


def _rounds(count: int) -> str:
    return "1 round" if count == 1 else f"{count:,} rounds"


def result(view: RunView) -> Markup | None:
    """The section; None while the run goes on."""
    if not view.finished:
        return None
    try:
        lines, said = result_lines(cast(Summary, view.summary)), not_better(cast(Summary, view.summary))
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):  # a summary of another version
        return None
    return tag(
        "section",
        tag("h2", "Result"),
        tag("p", f"The model is {said}.", class_="box warn") if said else None,
        pairs([(heading.strip(), text) for heading, text in [*lines, *_before(view)]]),
        id="result",
        data_part="result",
    )


def _before(view: RunView) -> list[tuple[str, str]]:
    """The traffic light, as it was before the run."""
    section = view.config.get("privacy")
    text = section.get("outlook") if isinstance(section, dict) else None
    return [("Noise against signal", worded(str(text)))] if text else []


def settings(view: RunView) -> Markup | None:
    """Every value of the configuration, and how to run it again."""
    if not view.config:
        return None
    rows = [
        [f"{part}.{key}", _written(value)]
        for part, values in view.config.items()
        for key, value in (values.items() if isinstance(values, dict) else [("", values)])
    ]
    return tag(
        "section",
        tag("h2", "Settings"),
        _again(view),
        folded(
            f"All {len(rows)} settings", table(["key", "value"], rows, caption="Settings of the run"), key="settings"
        ),
        id="settings",
        data_part="settings",
    )


def _again(view: RunView) -> Markup:
    if "data" not in view.config:
        return tag("p", "The run was started from Python: its settings describe it, but no command repeats it.")
    command = "federate" if view.federated else "run"
    folder = _typed(view.path)
    line = shlex.join(["laconic", command, f"{folder}/config.toml", "--out", f"{folder}-again"])
    text = "This command repeats the run with the same seed, data and version:"
    if view.federated:
        text = "This command starts the same federation again. Its noise is new, so the model will differ:"
    return joined(
        tag("p", text), tag("pre", tag("code", line), tabindex="0", aria_label="The command that repeats the run")
    )


def _typed(path: str) -> str:
    """A folder as it can be typed: with a name of its own, and not taken for an option."""
    if Path(path).name in ("", ".."):
        return os.path.abspath(path)
    return f"./{path}" if path.startswith("-") else path


def _written(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def statement(view: RunView) -> Markup | None:
    """The privacy statement: for people, then as it stands in privacy.json."""
    if not view.statement:
        return None
    try:
        lines = pairs([(heading.strip(), text) for heading, text in statement_lines(cast(Statement, view.statement))])
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):  # that of another version
        lines = tag("p", str(view.statement.get("summary", "")))
    whole = json.dumps(view.statement, indent=2, ensure_ascii=False)
    block = tag("pre", tag("code", whole), tabindex="0", aria_label="privacy.json")
    return tag(
        "section",
        tag("h2", "The statement in full"),
        tag("p", str(view.statement.get("summary", "")), class_="box") if view.private else None,
        tag("p", f"Result: {view.statement['result']}.") if view.statement.get("result") else None,
        [tag("p", f"{heading}, before the run: {text}.") for heading, text in _before(view)],
        lines,
        folded("privacy.json, for programs", block, key="statement-json"),
        id="statement",
        data_part="statement",
    )


PARTS: tuple[tuple[str, str, Callable[[RunView], Markup | None]], ...] = (
    ("head", "", header),
    ("verdict", "Promise", verdict),
    ("result", "Result", result),
    ("quality", "Quality", quality),
    ("spending", "Privacy spent", spending),
    ("classes", "By class", by_class),
    ("sure", "How sure", how_sure),
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
