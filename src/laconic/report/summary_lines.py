"""The lines of a summary, for the terminal and the report, and a finished run in a few lines for notebooks."""

from __future__ import annotations

import html
from collections.abc import Mapping
from typing import Any

from laconic.figures import at_most, epsilon_text, rounded_up
from laconic.metrics import MAIN, columns
from laconic.privacy.released import FederationFields, Row, Statement, Summary, TestingFields
from laconic.report.ledger import human_bytes

STOPPED = {
    "rounds": "all rounds done",
    "budget": "the privacy budget is used up",
    "patience": "early stopping",
    "attempts": "as many rounds are charged as the nodes agreed to, repeated ones included",
    "diverged": "the weights are no longer finite: under attack, a result",
}
"""Why a run ended, in words."""


def result_lines(summary: Summary) -> list[tuple[str, str]]:
    """(heading, text) pairs: what came of the run, how it ended, its last and its best round."""
    lines = judged_lines(summary)
    lines += [("Stopped", STOPPED.get(summary["stop_reason"], summary["stop_reason"]))]
    if summary["discarded"]:
        first, count = summary["discarded"][0], len(summary["discarded"])
        rounds = "1 round" if count == 1 else f"{count} rounds"
        text = f"{rounds}, charged all the same; first round {first['round']}: {first['why']}"
        lines.append(("Discarded", text))
    lines += federation_lines(summary.get("federation"))
    lines.append(("Last round", metric_text(summary["last"])))
    if summary["best"]:
        by = "" if summary["best_is_chosen_by"] in ("accuracy", "loss") else f" by {summary['best_is_chosen_by']}"
        cost = f"{human_bytes(summary['best']['bytes_up'])} up, {human_bytes(summary['best']['bytes_down'])} down"
        lines.append(("Best round", f"{metric_text(summary['best'])}; {cost} (chosen on test data{by})"))
        lines += _about_best(summary["best"])
    for name, row in summary.get("answers", {}).items():
        lines.append((name[:1].upper() + name[1:], metric_text(row)))
    lines += [("Warning", text) for text in summary.get("warnings", ())]
    return lines + attack_lines(summary.get("attack")) + testing_lines(summary.get("group_testing"))


def judged_lines(summary: Summary) -> list[tuple[str, str]]:
    """(heading, text) pairs: whether the last model is better than what needs no model, on test records."""
    judged = summary.get("judged")
    return [] if not judged else [("Result", f"{judged['words']} (intervals of {judged['level']:.0%})")]


def not_better(summary: Summary) -> str | None:
    """What must not be overlooked: the model is no better than chance. None where it is, or where nothing tells."""
    judged = summary.get("judged") or {}
    return str(judged["words"]) if judged.get("better") is False else None


def federation_lines(federation: FederationFields | None) -> list[tuple[str, str]]:
    """(heading, text) pairs: what is missing of the planned model, repeated rounds, and which nodes were missing."""
    if federation is None:
        return []
    lines = [("Incomplete", federation["incomplete"])] if federation["incomplete"] else []
    if federation["repeated_rounds"]:
        text = f"{federation['repeated_rounds']} rounds charged again after a crash, of {federation['spare_rounds']}"
        lines.append(("Repeated", f"{text} that were agreed"))
    for one in federation["absences"]:
        rounds = "1 round" if one["rounds"] == 1 else f"{one['rounds']} rounds"
        last = f"the last time (round {one['last_round']}) it {one['why']}"
        lines.append(("Missing", f"node {one['node']} in {rounds}; {last}"))
    return lines


def attack_lines(attack: dict[str, Any] | None) -> list[tuple[str, str]]:
    """(heading, text) pairs: the attack, whether the model learnt anything, and the last rounds."""
    if attack is None:
        return []
    few, most = attack["fewest_in_a_cohort"], attack["most_in_a_cohort"]
    many = f"{most}" if few == most else f"{few} to {most}"
    text = (
        f"{attack['kind']}: {attack['num_malicious']} malicious clients, {many} in a cohort; boost {attack['boost']:g}"
    )
    lines = [("Attack", text)]
    if not attack["converged"]:
        lines.append(("  result", f"– (does not converge: {attack.get('why', 'it was never evaluated')})"))
    for name, values in attack["last_ten"].items():
        over = f"over the last {values['rounds']} evaluated rounds"
        lines.append((f"  {name}", f"{over}: {values['min']:.4f} at least, {values['mean']:.4f} on average"))
    if attack["ring"]:
        lines.append(("  ring", attack["ring"]))
    return lines


def testing_lines(testing: TestingFields | None) -> list[tuple[str, str]]:
    """(heading, text) pairs: whom group testing has excluded, and when."""
    if testing is None:
        return []
    excluded = testing["excluded"]
    shown = ", ".join(f"{one['client']} (round {one['after_round']})" for one in excluded[:20])
    more = f" and {len(excluded) - 20} more" if len(excluded) > 20 else ""
    lines = [("Excluded", f"{len(excluded)} clients{': ' if excluded else ''}{shown}{more}")]
    if "attackers" in testing:
        lines.append(
            (
                "  of them",
                f"{testing['attackers_excluded']} of {testing['attackers']} attackers, and"
                f" {testing['honest_excluded']} honest clients",
            )
        )
    lines.append(
        (
            "  expected",
            f"{testing['expected_false_exclusions']:g} honest clients or fewer, if {testing['assumes']}",
        )
    )
    lines.append(
        (
            "  rounds",
            f"{testing['spoilt_rounds']} with a spoilt sum, {testing['rounds_without_a_step']} without a step,"
            f" {testing['rounds_of_one_sum']} of one sum",
        )
    )
    return lines


def _about_best(best: Row) -> list[tuple[str, str]]:
    """Why its ε is not smaller than that of the last round."""
    if "epsilon" not in best:
        return []
    text = "that of the whole run: all rounds decide which one is best"
    if "epsilon_if_planned_to_end_there" in best:
        outsider, server = (best[f"{name}epsilon_if_planned_to_end_there"] for name in ("", "participant_"))
        text += f"; had the run been planned to end there, {at_most(outsider)} (server's {epsilon_text(server)})"
    return [("  its ε", text)]


def metric_text(row: Row) -> str:
    parts = [f"round {row['round']}"]
    parts += [f"{key} {_figures(row[key])}" for key in columns() if row.get(key) is not None]
    if "epsilon" in row:
        parts.append(f"ε {at_most(row['epsilon'])} (server's {epsilon_text(row['participant_epsilon'])})")
    return ", ".join(parts)


def _figures(value: float | list[float]) -> str:
    return f"({', '.join(map(_figures, value))})" if isinstance(value, list) else f"{value:.4f}"


def ledger_lines(ledger: Mapping[str, Any], *, papers: bool = True) -> list[tuple[str, str]]:
    """(heading, text) pairs: measured bytes, and with `papers` their formula beside them."""
    lines = []
    for direction in ("up", "down"):
        per_message = ledger[f"bytes_{direction}_per_client_and_round"]
        total = ledger[f"bytes_{direction}"]
        mean = ledger[f"bytes_{direction}_per_client_in_all"]
        formula = ledger[f"formula_bytes_{direction}_per_client_in_all"]
        text = f"{human_bytes(per_message)} per client and round, {human_bytes(total)} in all; average per client"
        theirs = f" (papers' formula: {human_bytes(formula)})" if papers else ""
        lines.append((f"Bytes {direction}", f"{text} {human_bytes(mean)}{theirs}"))
    if "secagg_shares_up" in ledger:
        lines += [(name, _secagg_text(ledger, kinds)) for name, kinds in _SECAGG_LINES.items()]
    if "transport_upload_up" in ledger:
        lines.append(("  transport", _transport_text(ledger)))
    if ledger["bytes_once"]:
        lines.append(("Bytes once", f"{human_bytes(ledger['bytes_once'])} in all, in each client's first round"))
    return lines


_SECAGG_LINES = {
    "  keys": {"keys_up": "announced", "keys_down": "passed on, each once"},
    "  shares": {"shares_up": "of masks, with headers and signatures"},
    "  plans": {"plan_down": "of rounds, to each client of a cohort"},
    "  unmasking": {"unmask_down": "asked for", "unmask_up": "revealed"},
}
"""The overhead of a masked run, line by line: kinds of traffic, and what they are."""


def _secagg_text(ledger: Mapping[str, Any], kinds: dict[str, str]) -> str:
    parts = [f"{human_bytes(ledger[f'secagg_{kind}'])} {kind.split('_')[1]} ({what})" for kind, what in kinds.items()]
    return ", ".join(parts)


def _transport_text(ledger: Mapping[str, Any]) -> str:
    """What the carrier of a federation added, by exchange."""
    kinds = [kind for kind in ("keys", "ready", "upload", "consent", "unmask") if f"transport_{kind}_up" in ledger]
    parts = [
        f"{kind} {human_bytes(ledger[f'transport_{kind}_up'])} up, {human_bytes(ledger[f'transport_{kind}_down'])} down"
        for kind in kinds
    ]
    return f"{'; '.join(parts)} (what the carrier added to all of the above)"


_STOPPED = {"budget": "the budget is used up", "patience": "early stopping", "diverged": "diverged"}


def result_rows(scheme: str, summary: Summary) -> list[tuple[str, str]]:
    """(what, value) pairs, the scheme first."""
    stopped = _STOPPED.get(summary["stop_reason"])
    rounds = f"{summary['rounds']}{f' ({stopped})' if stopped else ''}"
    if summary["discarded"]:
        rounds += f", {len(summary['discarded'])} of them discarded"
    rows = [("scheme", scheme), ("rounds", rounds), *_metric_rows(summary), *_promise_rows(summary["statement"])]
    rows += [("attention", said.partition(":")[0])] if (said := not_better(summary)) else []
    rows += [("warning", text) for text in summary.get("warnings", ())]
    ledger: Mapping[str, Any] = summary["ledger"]
    up, down = (ledger[f"bytes_{way}_per_client_and_round"] for way in ("up", "down"))
    rows.append(("bytes", f"{human_bytes(up)} up, {human_bytes(down)} down per client and round"))
    rows.append(("time", f"{summary['seconds']:.1f} s"))
    if summary["folder"]:
        rows.append(("folder", summary["folder"]))
    return rows


def _metric_rows(summary: Summary) -> list[tuple[str, str]]:
    metric, last, best = summary["best_is_chosen_by"], summary["last"], summary["best"]
    judged = (summary.get("judged") or {}).get("figures", {})
    names = [metric, *(name for name in MAIN if name != metric)]
    rows = []
    for name in names:
        if last.get(name) is None:
            continue
        more = []
        if name in judged:
            more.append(f"95 %: {judged[name][1]:.3f} to {judged[name][2]:.3f}")
        if name == metric and best is not None and best.get(name) is not None:
            more.append(f"best: {best[name]:.4f} in round {best['round']}, chosen on test data")
        rows.append((name.replace("_", " "), f"{last[name]:.4f}" + (f" ({'; '.join(more)})" if more else "")))
    return rows


def _promise_rows(statement: Statement) -> list[tuple[str, str]]:
    """One ε per adversary."""
    if not statement["private"]:
        return [("privacy", "none: this scheme adds no noise")]
    rows = []
    outsider, server = statement["released"], statement["participant"]
    at_delta = f" at δ = {rounded_up(statement['delta'])}"
    for who, part, at in (("outsider", outsider, at_delta), ("server", server, "")):
        figure = part["epsilon"][part["accountant"]]
        rows.append((f"ε, {who}", f"{epsilon_text(figure)}{at}"))
    if "attack" in statement and not statement["attack"]["holds"]:
        rows.append(("attention", "attackers left out noise, so these ε do not hold in this run"))
    return rows


def as_text(rows: list[tuple[str, str]]) -> str:
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"{name:<{width}}  {value}" for name, value in rows)


def as_html(rows: list[tuple[str, str]]) -> str:
    """The lines as an HTML table. Names and values are escaped: they may come from a user's files."""
    cells = "".join(
        f"<tr><th style='text-align:left'>{html.escape(name)}</th>"
        f"<td style='text-align:left'>{html.escape(value)}</td></tr>"
        for name, value in rows
    )
    return f"<table>{cells}</table>"
