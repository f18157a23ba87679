"""A finished run in a few lines: what `print(result)` shows, and what a notebook does."""

from __future__ import annotations

import html
from typing import Any

from laconic.figures import epsilon_text, rounded_up
from laconic.metrics import MAIN
from laconic.report.ledger import human_bytes

_STOPPED = {"budget": "the budget is used up", "patience": "early stopping", "diverged": "diverged"}


def result_rows(scheme: str, summary: dict[str, Any]) -> list[tuple[str, str]]:
    """(what, value) pairs, the scheme first."""
    stopped = _STOPPED.get(summary["stop_reason"])
    rounds = f"{summary['rounds']}{f' ({stopped})' if stopped else ''}"
    if summary["discarded"]:
        rounds += f", {len(summary['discarded'])} of them discarded"
    rows = [("scheme", scheme), ("rounds", rounds), *_metric_rows(summary), *_promise_rows(summary["statement"])]
    rows += [("warning", text) for text in summary.get("warnings", ())]
    ledger = summary["ledger"]
    up, down = (ledger[f"bytes_{way}_per_client_and_round"] for way in ("up", "down"))
    rows.append(("bytes", f"{human_bytes(up)} up, {human_bytes(down)} down per client and round"))
    rows.append(("time", f"{summary['seconds']:.1f} s"))
    if summary["folder"]:
        rows.append(("folder", summary["folder"]))
    return rows


def _metric_rows(summary: dict[str, Any]) -> list[tuple[str, str]]:
    metric, last, best = summary["best_is_chosen_by"], summary["last"], summary["best"]
    names = [metric, *(name for name in MAIN if name != metric)]
    rows = []
    for name in names:
        if last.get(name) is None:
            continue
        text = f"{last[name]:.4f}"
        if name == metric and best is not None and best.get(name) is not None:
            text += f" (best: {best[name]:.4f} in round {best['round']}, chosen on test data)"
        rows.append((name.replace("_", " "), text))
    return rows


def _promise_rows(statement: dict[str, Any]) -> list[tuple[str, str]]:
    """One ε per adversary."""
    if not statement["private"]:
        return [("privacy", "none: this scheme adds no noise")]
    rows = []
    for who, key in (("outsider", "released"), ("server", "participant")):
        part = statement[key]
        figure = part["epsilon"][part["accountant"]]
        at = f" at δ = {rounded_up(statement['delta'])}" if key == "released" else ""
        rows.append((f"ε, {who}", f"{epsilon_text(figure)}{at}"))
    if "attack" in statement and not statement["attack"]["holds"]:
        rows.append(("attention", "attackers left out noise, so these ε do not hold in this run"))
    return rows


def as_text(rows: list[tuple[str, str]]) -> str:
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"{name:<{width}}  {value}" for name, value in rows)


def as_html(rows: list[tuple[str, str]]) -> str:
    """The same as a table. Names and values are escaped: they may come from a user's files."""
    cells = "".join(
        f"<tr><th style='text-align:left'>{html.escape(name)}</th>"
        f"<td style='text-align:left'>{html.escape(value)}</td></tr>"
        for name, value in rows
    )
    return f"<table>{cells}</table>"
