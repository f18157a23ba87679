"""The model card of a run: what was trained on what, what is promised, and what is not. Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from laconic import __version__
from laconic.figures import at_most, epsilon_text, rounded_up
from laconic.metrics import TEST, columns
from laconic.privacy.released import Participant, Released, Statement, Summary, released_summary
from laconic.report.ledger import human_bytes
from laconic.report.summary_lines import metric_text

CITATION = (
    "The Laconic developers. *Laconic: federated learning that is differentially private and frugal with bandwidth*,"
    f" version {__version__}."
)


def model_card(
    summary: Summary, facts: Mapping[str, str], *, released_only: bool = False, cite: Iterable[str] = ()
) -> str:
    """The card. `facts` are lines on data, clients and model; `cite` names what to cite besides.

    With `released_only` nothing is in it that only the server may know: how often clients took part, and what follows
    from that. The threat model asks for this where the card is read by others.
    """
    summary = released_summary(summary) if released_only else summary
    statement = summary["statement"]
    name = _plain(summary["scheme"]) or "a model"
    parts = [
        f"# Model card: {name}",
        f"Trained by federated learning with Laconic {__version__}. {_in_short(statement)}",
        "## Data, clients and model",
        _table(("", ""), facts.items()),
        "## The promise",
        _promise(statement, released_only),
        "## How good it is",
        _metrics(summary, released_only),
        "## What was sent",
        _bytes(summary["ledger"], released_only),
        "## Limits",
        _limits(statement, summary.get("warnings", ())),
        "## How to cite",
        _bullets([CITATION, *cite]),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _in_short(statement: Statement) -> str:
    if not statement["private"]:
        return "It has **no differential privacy**: the model may tell its holder about the records behind it."
    if "attack" in statement and not statement["attack"]["holds"]:
        return f"**Its promise does not hold in this run**: {_missing(statement)}"
    released = statement["released"]
    figure = released["epsilon"][released["accountant"]]
    return (
        f"It is ({at_most(figure)}, {rounded_up(statement['delta'])})-differentially private for {statement['unit']},"
        " against adversaries who see the models, under the assumptions below."
    )


def _missing(statement: Statement) -> str:
    return _plain(statement["attack"].get("text", "attackers left out noise"))


def _promise(statement: Statement, released_only: bool) -> str:
    if not statement["private"]:
        return "None: this scheme adds no noise."
    rows = []
    promises: list[tuple[str, Released | Participant]] = [("outsider", statement["released"])]
    if not released_only:
        promises.append(("server", statement["participant"]))
    for who, part in promises:
        rows.append(
            (
                who,
                epsilon_text(part["epsilon"][part["accountant"]]),
                rounded_up(statement["delta"]),
                part["adversary"],
            )
        )
    parts = [
        _table(("against", "ε", "δ", "who"), rows),
        f"Protected is {statement['unit']} ({statement['adjacency']['relation']} adjacency:"
        f" {statement['adjacency']['meaning']}).",
    ]
    if "attack" in statement and not statement["attack"]["holds"]:
        parts.append(f"**It does not hold in this run**: {_missing(statement)}")
    if not released_only:
        parts.append(
            "The server's ε tells how often the busiest client took part. Leave it out of a card for others"
            " (`--released-only`) if the outsider's ε is what you promise."
        )
    parts += ["It is assumed that", _told([*statement["assumptions"], statement["secure_aggregation"]])]
    if statement.get("cautions"):
        parts += ["Cautions:", _told(statement["cautions"])]
    return "\n\n".join(parts)


def _metrics(summary: Summary, released_only: bool) -> str:
    last, best = summary["last"], summary.get("best")
    names = columns(TEST, released=True)
    if not any(name in last for name in names):
        return "Not measured: the run had no test records."
    judged = summary.get("judged") or {}
    ends = judged.get("figures", {})
    rows = [
        (
            name.replace("_", " "),
            f"{last[name]:.4f}",
            f"{ends[name][1]:.4f} to {ends[name][2]:.4f}" if name in ends else "",
        )
        for name in names
        if last.get(name) is not None
    ]
    heads = ("metric", "value", f"{judged.get('level', 0.95):.0%} interval")
    parts = [f"After round {summary['rounds']}, on test records:", _table(heads, rows)]
    if judged:
        parts.append(f"In words: {_plain(judged['words'])}.")
    if best is not None:
        parts.append(f"The best round, chosen on the same test records and so optimistic: {metric_text(best)}.")
    return "\n\n".join(parts)


def _bytes(ledger: Mapping[str, Any], released_only: bool) -> str:
    if released_only:
        planned = ledger.get("planned_messages", {})
        kinds = [(name, human_bytes(sizes["up"]), human_bytes(sizes["down"])) for name, sizes in planned.items()]
        return _table(("message of one client", "up", "down"), kinds) if kinds else "Not said."
    up, down = (ledger[f"bytes_{way}_per_client_and_round"] for way in ("up", "down"))
    text = f"{human_bytes(up)} up and {human_bytes(down)} down per client and round"
    return f"{text}; {human_bytes(ledger['bytes_up'])} up and {human_bytes(ledger['bytes_down'])} down in all."


def _limits(statement: Statement, warnings: Iterable[str]) -> str:
    known = [
        "It knows what its clients' records show, with their gaps and biases. Try it on records of your own first.",
        "It is a research tool's model: no medical device, and no decision about a person should rest on it alone.",
    ]
    return _told([*warnings, *statement["not_covered"], *known])


def _plain(text: object) -> str:
    """Text of a user's files, fit for a cell: one line, and nothing that Markdown or HTML would take for its own."""
    line = " ".join(str(text).split())
    for mark in ("\\", "|", "`", "*", "_", "[", "]", "#"):
        line = line.replace(mark, "\\" + mark)
    return line.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _table(heads: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [f"| {' | '.join(heads)} |", f"|{' --- |' * len(heads)}"]
    return "\n".join([*lines, *(f"| {' | '.join(map(_plain, row))} |" for row in rows)])


def _bullets(texts: Iterable[str]) -> str:
    return "\n".join(f"- {text}" for text in texts)


def _told(texts: Iterable[str]) -> str:
    """Sentences of a statement: they may name columns, classes and files of the user's."""
    return _bullets(map(_plain, texts))
