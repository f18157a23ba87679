"""The privacy statement of a run: which adversary, which unit, which mechanism, which ε, what was assumed.

*Cautions* say when an ε promises little or nothing, in plain words; one case is refused. With N clients and δ ≥ 1/N, a
mechanism that picks one client at random and publishes all its data is (0, δ)-private: what it says differs between two
worlds that differ in one client with probability 1/N only. So such a δ lets ε be as small as one likes, and is refused
unless the user insists by name. A large ε is no mistake, but e^ε, the factor by which odds about a client may change,
soon means nothing. And a sum of one or two codes is hardly a sum: noise hides a code in it as ε says, but secure
aggregation hides nothing from the other one of the two.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from laconic.audience import Sentence, check_declared
from laconic.errors import ConfigError
from laconic.figures import at_most, epsilon_text, rounded_up
from laconic.privacy.accounting.accountant import RunAccountant
from laconic.privacy.accounting.budget import Budget
from laconic.privacy.released import (
    CorrelationFields,
    GridFields,
    MechanismFields,
    MissingNoise,
    Participant,
    Released,
    Statement,
    VoteFields,
)

LARGE_EPSILON = 20.0
SMALL_SUM = 2
LARGE_UNCHECKED = 1e-3
"""A δ that deserves a word even where the number of clients is not known."""


def delta_is_large(delta: float, units: int) -> bool:
    """Whether δ ≥ 1/N; half a chance is too much for anyone, even if there is but one."""
    return delta >= 1 / max(units, 2)


def check_delta(delta: float, *, units: int, one: str, allowed: bool) -> None:
    """Refuse a δ that a mechanism could meet by publishing one of so many `one`s, unless that is `allowed` by name."""
    if delta_is_large(delta, units) and not allowed:
        raise ConfigError(
            f"delta {rounded_up(delta)} {_too_large(units, one)}: publishing one {one}'s data in full could meet it, so"
            " its ε means nothing; lower ⟨delta⟩, or insist with ⟨allow-large-delta⟩"
        )


def cautions(
    accountant: RunAccountant, *, delta: float, released: float, participant: float, known: bool = True
) -> list[Sentence]:
    """What must be said about these figures: ε against an outsider and against the server, at this δ.

    Those about the server's ε are for the server alone: it tells how often the busiest client took part. `known` is
    false where it was not said how many clients there are.
    """
    one, units, honest = accountant.promise.one, accountant.units, accountant.honest_cohort
    found = []
    if delta_is_large(delta, units):
        large = f"δ = {rounded_up(delta)} {_too_large(units, one)}"
        found.append(
            Sentence.public(
                f"{large}: a mechanism may publish one {one}'s data in full and still meet the definition, whatever ε"
                " is; the figures promise nothing"
            )
        )
    if not accountant.promise.covers_server:
        found.append(
            Sentence(
                "there is NO ε against the server: it adds the noise itself and sees the sums without it; quote this ε"
                " only where the server is trusted",
                outsider=None,
            )
        )
        participant = 0.0  # said already
    for who, figure, outsiders in (("an outsider", released, True), ("the server", participant, False)):
        if figure > LARGE_EPSILON:
            text = (
                f"ε = {rounded_up(figure, 4)} against {who} promises next to nothing: above {LARGE_EPSILON:g} or so,"
                f" what is released may give one {one}'s data away almost surely"
            )
            found.append(Sentence(text, outsider=text if outsiders else None))
    if honest is None or not known:
        return found
    if accountant.num_clients == 1:
        found.append(
            Sentence.public(
                "there is only one client: all noise is its own, no sum hides its code, and whoever knows that it is"
                " there knows whose data the model is made of"
            )
        )
    elif honest < SMALL_SUM + 1:
        found.append(
            Sentence.public(
                f"a usual sum holds the codes of {max(honest, 1):.3g} clients, dropouts and colluders left out: secure"
                " aggregation hides little or nothing in it, and only the noise protects a code"
            )
        )
    return found


def _too_large(units: int, one: str) -> str:
    return "is a half or more" if units < 2 else f"is not below 1/{units}, and there are {units:,} {one}s"


def privacy_statement(
    *,
    accountant: RunAccountant | None,
    budget: Budget | None,
    rounds_charged: int,
    participations: int,
    rounds_planned: int | None = None,
    mechanism: MechanismFields,
    secure_aggregation: str,
    assumptions: Sequence[str],
    not_covered: Sequence[str],
    attack: MissingNoise | None = None,
    result: str | None = None,
) -> Statement:
    """The statement as data; `statement_lines` prints it. What of it others may see is said by its fields.

    Args:
        accountant: of the run; None for a scheme that promises nothing.
        budget: of the run, with δ.
        rounds_charged: how many released something.
        participations: of the client that took part most often, in all rounds that the ε covers.
        rounds_planned: where data may end the run before its plan does, the ε is that of so many rounds.
        mechanism: what bounds and noises a code.
        secure_aggregation: who saw what of the codes.
        assumptions: what the ε rests on. A plain text is for the server alone.
        not_covered: what no ε covers; likewise.
        attack: what attackers' missing noise does to the ε.
        result: what it was paid for, in words.
    """
    if accountant is None or budget is None:
        plain: Statement = {
            "private": False,
            "summary": "No differential privacy: this scheme adds no noise.",
            "secure_aggregation": secure_aggregation,
            "not_covered": _sentences(not_covered),
        }
        return plain if result is None else {**plain, "result": result}
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
    found: Statement = {
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
        "assumptions": _sentences([*map(Sentence.public, promise.duties), *assumptions]),
        "not_covered": _sentences([*map(Sentence.public, promise.caveats), *not_covered]),
    }
    if attack is not None:
        found["attack"] = attack
    if result is not None:
        found["result"] = result
    check_declared(Statement, found)
    return found


def _sentences(texts: Sequence[str]) -> list[Sentence]:
    """The texts as sentences: those that are not marked are for the server alone."""
    return [text if isinstance(text, Sentence) else Sentence(text, outsider=None) for text in texts]


def statement_lines(statement: Statement, *, papers: bool = True) -> list[tuple[str, str]]:
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


def votes_text(votes: VoteFields) -> str:
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
    text = text or f"{query['text']} ({query['rounds']} round{'s' if query['rounds'] != 1 else ''} in all)"
    if "noise" not in query:
        return text
    alone = min(figure for figure in query["alone"].values() if figure is not None)
    return (
        f"{text}: {query['cells']} cells with sensitivity {query['sensitivity']:g} and noise multiplier"
        f" {query['noise']['noise_multiplier']:g}; alone they would cost ε = {at_most(alone)}, and both ε of the"
        " run have them in"
    )


def bands_text(bands: CorrelationFields) -> str:
    """How noise is correlated over rounds, and what that does, in a sentence or two."""
    return (
        f"added by the server (central), over {bands['bands']} rounds, and a client takes part every"
        f" {bands['separation']} rounds: one client moves what all rounds release by"
        f" {bands['sensitivity']:.4g}·S; the noise of the iterates is {bands['noise_ratio']:.3f} of what independent"
        f" noise of the same ε would leave on average, and {bands['last_noise_ratio']:.3f} in the last one"
    )


def grid_text(grid: GridFields, unit: str = "") -> str:
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


def _server(part: Participant) -> str:
    if part.get("covered") is False:
        return f"this adversary {part['adversary']}"
    return f"{part['adversary']}; worst client: {part['participations']} participations"


def _planned(released: Released) -> list[tuple[str, str]]:
    if "rounds_planned" not in released:
        return []
    text = (
        f"both ε are of all {released['rounds_planned']} planned rounds, of which {released['rounds_charged']} were"
        " charged: early stopping depends on the data, so no smaller ε is proven for a run that it ends"
    )
    return [("  rounds", text)]


def _published(released: Released) -> list[tuple[str, str]]:
    if "published" not in released:
        return []
    figure = f"moments {at_most(released['published'])}"
    return [("  as published", f"{figure} (CHIL'21, Theorem 3.1; not proven: it lets no model show who took part)")]


def _figures(part: Released | Participant, papers: bool) -> str:
    """The ε to quote; with `papers` those of all accountants."""
    figures, quoted = part["epsilon"], part["accountant"]
    if part.get("covered") is False:
        return epsilon_text(None)
    if not papers:
        return f"{at_most(figures[quoted])} ({quoted})"
    return ", ".join(f"{name} {'not available' if v is None else at_most(v)}" for name, v in figures.items())
