"""The settings of a run, and the command that repeats it."""

from __future__ import annotations

import json
import os
import shlex
from pathlib import Path

from laconic.privacy.statement.statement import statement_lines
from laconic.report.drawing.markup import Markup, folded, joined, pairs, table, tag
from laconic.report.page.reading import RunView


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
        lines = pairs([(heading.strip(), text) for heading, text in statement_lines(dict(view.statement))])
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):  # that of another version
        lines = tag("p", str(view.statement.get("summary", "")))
    whole = json.dumps(view.statement, indent=2, ensure_ascii=False)
    block = tag("pre", tag("code", whole), tabindex="0", aria_label="privacy.json")
    return tag(
        "section",
        tag("h2", "The statement in full"),
        tag("p", str(view.statement.get("summary", "")), class_="box") if view.private else None,
        lines,
        folded("privacy.json, for programs", block, key="statement-json"),
        id="statement",
        data_part="statement",
    )
