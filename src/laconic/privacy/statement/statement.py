"""The privacy statement of a run: which adversary, which unit, which mechanism, which ε, what was assumed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from laconic.figures import at_most, epsilon_text, rounded_up
from laconic.privacy.accounting.accountant import RunAccountant
from laconic.privacy.accounting.budget import Budget
from laconic.privacy.statement.cautions import cautions


def privacy_statement(
    *,
    accountant: RunAccountant | None,
    budget: Budget | None,
    rounds_charged: int,
    participations: int,
    rounds_planned: int | None = None,
    mechanism: dict[str, Any],
    secure_aggregation: str,
    assumptions: Sequence[str],
    not_covered: Sequence[str],
    attack: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """The statement as data; `statement_lines` prints it.

    With `rounds_planned` data may end the run before its plan does: its ε is that of so many rounds, and
    `participations` are those in all of them. Without, it is that of the charged ones. `attack` says what attackers'
    missing noise does to the ε.
    """
    if accountant is None or budget is None:
        return {
            "private": False,
            "summary": "No differential privacy: this scheme adds no noise.",
            "secure_aggregation": secure_aggregation,
            "not_covered": list(not_covered),
        }
    promise = accountant.promise
    rounds = rounds_charged if rounds_planned is None else rounds_planned
    released = accountant.released(rounds, participations)
    participant = accountant.participant(participations)
    published = accountant.published(rounds)
    method = budget.accountant or accountant.method
    planned = "" if rounds_planned is None else " planned"
    against_server = participant.best("pld") if promise.covers_server else math.inf
    server = (
        f"({at_most(against_server)}, {rounded_up(budget.delta)})-DP against the server, for the client that took part"
        f" most often ({participations} of {rounds}{planned} rounds)"
    )
    if not promise.covers_server:
        server = f"NOT against the server, which adds the noise itself; of {rounds}{planned} rounds"
    return {
        "private": True,
        "summary": (
            f"({at_most(released.best(method))}, {rounded_up(budget.delta)})-DP per {promise.one} against an outsider"
            f" ({method}); {server}"
            f"{'' if attack is None or attack['holds'] else '; NOT in this run: attackers left out noise'}"
        ),
        "unit": promise.unit,
        "adjacency": {"relation": promise.relation, "meaning": promise.meaning},
        "delta": budget.delta,
        "sampler": {**accountant.sampler.to_dict(), "num_clients": accountant.num_clients},
        "mechanism": mechanism,
        "released": {
            "adversary": promise.released,
            "rounds_charged": rounds_charged,
            **({} if rounds_planned is None else {"rounds_planned": rounds_planned}),
            "epsilon": released.to_dict(),
            "accountant": method,
            "amplified_by_sampling": accountant.amplified(rounds),
            **({} if published is None else {"published": published}),
        },
        "participant": {
            "adversary": promise.participant,
            "participations": participations,
            "epsilon": participant.to_dict(),
            "accountant": "pld",
            **({} if promise.covers_server else {"covered": False}),
        },
        "budget": budget.to_dict(),
        "cautions": cautions(
            accountant, delta=budget.delta, released=released.best(method), participant=against_server
        ),
        "secure_aggregation": secure_aggregation,
        "assumptions": [*promise.duties, *assumptions],
        "not_covered": [*promise.caveats, *not_covered],
        **({} if attack is None else {"attack": attack}),
    }


def statement_lines(statement: dict[str, Any], *, papers: bool = True) -> list[tuple[str, str]]:
    """(heading, text) pairs for people; without `papers` one ε per adversary, and nothing that is not proven."""
    if not statement["private"]:
        return [("Privacy", statement["summary"]), *[("Note", text) for text in statement["not_covered"]]]
    lines = [
        ("Outsider's ε", _figures(statement["released"], papers)),
        ("  who", statement["released"]["adversary"]),
        *_planned(statement["released"]),
        *(_published(statement["released"]) if papers else []),
        ("Server's ε", _figures(statement["participant"], papers)),
        ("  who", _server(statement["participant"])),
        ("δ", rounded_up(statement["delta"])),
        *([("Attack", statement["attack"]["text"])] if "attack" in statement else []),
        *[("Caution", text) for text in statement.get("cautions", ())],
        ("Unit", statement["unit"]),
        ("Adjacency", f"{statement['adjacency']['relation']}: {statement['adjacency']['meaning']}"),
        ("Secure aggregation", statement["secure_aggregation"]),
    ]
    votes = statement["mechanism"].get("selection")
    if votes is not None:
        lines.append(("Coordinates", votes_text(votes)))
    evaluations = statement["mechanism"].get("evaluations")
    if evaluations is not None:
        lines.append(("Evaluations", evaluations_text(evaluations)))
    for name, query in statement["mechanism"].get("queries", {}).items():
        lines.append((name[:1].upper() + name[1:], query_text(query)))
    bands = statement["mechanism"].get("correlation")
    if bands is not None:
        lines.append(("Correlated noise", bands_text(bands)))
    grid = statement["mechanism"].get("grid")
    if grid is not None:
        lines.append(("Grid", grid_text(grid)))
    lines += [("Assumed", text) for text in statement["assumptions"]]
    lines += [("Not covered", text) for text in statement["not_covered"]]
    return lines


def votes_text(votes: dict[str, Any]) -> str:
    """How the kept coordinates were chosen, in a sentence or two."""
    rounds = "round 1" if votes["rounds"] == 1 else f"rounds 1 to {votes['rounds']}"
    what = "weights" if votes["block"] == 1 else f"blocks of {votes['block']} weights"
    text = (
        f"the {votes['kept']:,} kept weights are chosen by votes in {rounds}: a client marks {votes['marks']:,} of"
        f" {votes['blocks']:,} {what}"
    )
    if "noise" not in votes:
        return text
    alone = min(figure for figure in votes["alone"].values() if figure is not None)
    return (
        f"{text}, so the sensitivity is √{votes['marks']:,} = {votes['sensitivity']:.4g}, with noise multiplier"
        f" {votes['noise']['noise_multiplier']:g}; alone they would cost ε = {at_most(alone)}, and both ε of the run"
        " have them in"
    )


def evaluations_text(evaluations: dict[str, Any]) -> str:
    """What clients measured on their own records, in a sentence or two."""
    return query_text(
        evaluations,
        f"every round divisible by {evaluations['every']} ({evaluations['rounds']} in all) measures the"
        f" {evaluations['metric']} on records that clients set aside and never train on",
    )


def query_text(query: dict[str, Any], text: str | None = None) -> str:
    """What clients are asked, with how much noise they answer, and what that costs."""
    text = text or f"{query['text']} ({query['rounds']} rounds in all)"
    if "noise" not in query:
        return text
    alone = min(figure for figure in query["alone"].values() if figure is not None)
    return (
        f"{text}: {query['cells']} cells with sensitivity {query['sensitivity']:g} and noise multiplier"
        f" {query['noise']['noise_multiplier']:g}; alone they would cost ε = {at_most(alone)}, and both ε of the"
        " run have them in"
    )


def bands_text(bands: dict[str, Any]) -> str:
    """How noise is correlated over rounds, and what that does, in a sentence or two."""
    return (
        f"added by the server (central), over {bands['bands']} rounds, and a client takes part every"
        f" {bands['separation']} rounds: one client moves what all rounds release by"
        f" {bands['sensitivity']:.4g}·S; the noise of the iterates is {bands['noise_ratio']:.3f} of what independent"
        f" noise of the same ε would leave on average, and {bands['last_noise_ratio']:.3f} in the last one"
    )


def grid_text(grid: dict[str, Any], unit: str = "") -> str:
    """The grid of integer noise in one line; `unit` is what a step is measured in."""
    if "steps_per_share" not in grid:
        return (
            f"{grid['bits']} bits a value, without noise; steps of {grid['step']:.4g}{unit}; the noise that the server"
            f" adds has a scale of {grid['steps_per_sum']:.1f} steps; no sum of clipped codes wraps around"
        )
    return (
        f"{grid['bits']} bits a value; steps of {grid['step']:.4g}{unit}; a client's share of the noise has a scale of"
        f" {grid['steps_per_share']:.1f} steps; the sum of a round wraps around with probability below"
        f" 2^{math.ceil(grid['log2_wrap_probability'])}"
    )


def _server(part: dict[str, Any]) -> str:
    if part.get("covered") is False:
        return f"this adversary {part['adversary']}"
    return f"{part['adversary']}; worst client: {part['participations']} participations"


def _planned(released: dict[str, Any]) -> list[tuple[str, str]]:
    if "rounds_planned" not in released:
        return []
    text = (
        f"both ε are of all {released['rounds_planned']} planned rounds, of which {released['rounds_charged']} were"
        " charged: early stopping depends on the data, so no smaller ε is proven for a run that it ends"
    )
    return [("  rounds", text)]


def _published(released: dict[str, Any]) -> list[tuple[str, str]]:
    if "published" not in released:
        return []
    figure = f"moments {at_most(released['published'])}"
    return [("  as published", f"{figure} (CHIL'21, Theorem 3.1; not proven: it lets no model show who took part)")]


def _figures(part: dict[str, Any], papers: bool) -> str:
    """The ε to quote; with `papers` those of all accountants."""
    figures, quoted = part["epsilon"], part["accountant"]
    if part.get("covered") is False:
        return epsilon_text(None)
    if not papers:
        return f"{at_most(figures[quoted])} ({quoted})"
    return ", ".join(f"{name} {'not available' if v is None else at_most(v)}" for name, v in figures.items())
