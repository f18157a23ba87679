"""A run as one HTML file: the curve, the bytes, the privacy statement. It loads nothing from anywhere."""

from __future__ import annotations

import html
import math
from typing import Any

from laconic.report.ledger import human_bytes

_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 52rem; margin: 2rem auto; padding: 0 1rem; color: #1b1f24 }
table { border-collapse: collapse; margin: 1rem 0; width: 100% } h1 { font-size: 1.5rem } h2 { font-size: 1.15rem }
td, th { text-align: left; vertical-align: top; padding: .3rem .8rem .3rem 0; border-bottom: 1px solid #d8dee4 }
th { font-weight: 600; white-space: nowrap } svg { width: 100%; height: auto } .note { color: #59636e }
"""


def html_report(
    name: str, summary: dict[str, Any], history: list[dict[str, Any]], privacy: list[tuple[str, str]]
) -> str:
    """The report of one run."""
    sections = [
        f"<h1>{html.escape(name)}: {summary['rounds']} rounds</h1>",
        curve_svg(history, summary["best_is_chosen_by"]),
        "<h2>Result</h2>" + _table(result_lines(summary)),
        "<h2>Privacy</h2>" + _table(privacy),
        "<h2>Bytes</h2>" + _table(ledger_lines(summary["ledger"])),
    ]
    title = html.escape(f"laconic: {name}")
    head = f"<meta charset='utf-8'><title>{title}</title><style>{_STYLE}</style>"
    return f"<!doctype html><html lang='en'><head>{head}</head><body>{''.join(sections)}</body></html>\n"


def result_lines(summary: dict[str, Any]) -> list[tuple[str, str]]:
    """(heading, text) pairs: how the run ended, its last and its best round."""
    stopped = {
        "rounds": "all rounds done",
        "budget": "the privacy budget is used up",
        "patience": "early stopping",
        "diverged": "the weights are no longer finite: under attack, a result",
    }
    lines = [("Stopped", stopped.get(summary["stop_reason"], summary["stop_reason"]))]
    if summary["discarded"]:
        first, count = summary["discarded"][0], len(summary["discarded"])
        rounds = "1 round" if count == 1 else f"{count} rounds"
        text = f"{rounds}, charged all the same; first round {first['round']}: {first['why']}"
        lines.append(("Discarded", text))
    lines.append(("Last round", metric_text(summary["last"])))
    if summary["best"]:
        by = "" if summary["best_is_chosen_by"] in ("accuracy", "loss") else f" by {summary['best_is_chosen_by']}"
        cost = f"{human_bytes(summary['best']['bytes_up'])} up, {human_bytes(summary['best']['bytes_down'])} down"
        lines.append(("Best round", f"{metric_text(summary['best'])}; {cost} (chosen on test data{by})"))
        lines += _about_best(summary["best"])
    return lines + attack_lines(summary.get("attack")) + testing_lines(summary.get("group_testing"))


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


def testing_lines(testing: dict[str, Any] | None) -> list[tuple[str, str]]:
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


def _about_best(best: dict[str, Any]) -> list[tuple[str, str]]:
    """Why its ε is not smaller than that of the last round."""
    if "epsilon" not in best:
        return []
    text = "that of the whole run: all rounds decide which one is best"
    if "epsilon_if_planned_to_end_there" in best:
        outsider, server = (best[f"{name}epsilon_if_planned_to_end_there"] for name in ("", "participant_"))
        text += f"; had the run been planned to end there, {outsider:.3f} (server's {server:.3f})"
    return [("  its ε", text)]


_METRICS = (
    "accuracy",
    "class_accuracy",
    "attack_accuracy",
    "balanced_accuracy",
    "auroc",
    "loss",
    "holdout_accuracy",
    "holdout_balanced_accuracy",
)


def metric_text(row: dict[str, Any]) -> str:
    parts = [f"round {row['round']}"]
    parts += [f"{key} {row[key]:.4f}" for key in _METRICS if row.get(key) is not None]
    if "epsilon" in row:
        parts.append(f"ε {row['epsilon']:.3f} (server's {row['participant_epsilon']:.3f})")
    return ", ".join(parts)


def ledger_lines(ledger: dict[str, Any], *, papers: bool = True) -> list[tuple[str, str]]:
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


def _secagg_text(ledger: dict[str, Any], kinds: dict[str, str]) -> str:
    parts = [f"{human_bytes(ledger[f'secagg_{kind}'])} {kind.split('_')[1]} ({what})" for kind, what in kinds.items()]
    return ", ".join(parts)


def _transport_text(ledger: dict[str, Any]) -> str:
    """What the carrier of a federation added, by exchange."""
    kinds = [kind for kind in ("keys", "upload", "consent", "unmask") if f"transport_{kind}_up" in ledger]
    parts = [
        f"{kind} {human_bytes(ledger[f'transport_{kind}_up'])} up, {human_bytes(ledger[f'transport_{kind}_down'])} down"
        for kind in kinds
    ]
    return f"{'; '.join(parts)} (what the carrier added to all of the above)"


def curve_svg(history: list[dict[str, Any]], key: str = "accuracy", width: int = 720, height: int = 260) -> str:
    """The metric against rounds, as inline SVG; of an attacked run, those of the attacked class beside it."""
    points = [(row["round"], row[key]) for row in history if key in row and math.isfinite(row[key])]
    if len(points) < 2:
        return ""
    left, right, top, bottom = 48, 12, 12, 32
    rounds, values = [p[0] for p in points], [p[1] for p in points]
    low, high = (min(values), max(values)) if key == "loss" else (0.0, 1.0)
    span_x, span_y = max(1, rounds[-1] - rounds[0]), (high - low) or 1.0

    def place(number: float, value: float) -> tuple[float, float]:
        x = left + (number - rounds[0]) / span_x * (width - left - right)
        return x, top + (high - value) / span_y * (height - top - bottom)

    def line_of(name: str, colour: str) -> str:
        known = [(r["round"], r[name]) for r in history if r.get(name) is not None and math.isfinite(r[name])]
        line = " ".join(f"{x:.1f},{y:.1f}" for x, y in (place(*p) for p in known))
        return f"<polyline points='{line}' fill='none' stroke='{colour}' stroke-width='2'/>" if known else ""

    grid = ""
    for tick in range(5):
        value = low + span_y * tick / 4
        y = place(rounds[0], value)[1]
        grid += f"<line x1='{left}' x2='{width - right}' y1='{y:.1f}' y2='{y:.1f}' stroke='#d8dee4'/>"
        grid += f"<text x='{left - 6}' y='{y + 4:.1f}' font-size='11' text-anchor='end'>{value:.2f}</text>"
    axis = f"<text x='{left}' y='{height - 10}' font-size='11'>round {rounds[0]}</text>"
    axis += f"<text x='{width - right}' y='{height - 10}' font-size='11' text-anchor='end'>round {rounds[-1]}</text>"
    path = line_of(key, "#0969da")
    for number, (name, colour) in enumerate(_OF_ATTACKS.items()):
        if key != "loss" and (more := line_of(name, colour)):
            path += more
            axis += (
                f"<text x='{width / 2}' y='{height - 18 + 13 * number}' font-size='11' fill='{colour}'>{name}</text>"
            )
    return f"<svg viewBox='0 0 {width} {height}' role='img' aria-label='{key} by round'>{grid}{axis}{path}</svg>"


_OF_ATTACKS = {"class_accuracy": "#1a7f37", "attack_accuracy": "#cf222e"}


def _table(lines: list[tuple[str, str]]) -> str:
    rows = "".join(f"<tr><th>{html.escape(a)}</th><td>{html.escape(b)}</td></tr>" for a, b in lines)
    return f"<table>{rows}</table>"
