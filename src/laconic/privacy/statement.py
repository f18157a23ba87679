"""The privacy statement of a run: which adversary, which unit, which mechanism, which ε, what was assumed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from laconic.privacy.accountant import Accountant
from laconic.privacy.budget import Budget
from laconic.privacy.sampling import REPLACE_ONE

RELEASED = "sees every released sum and every model, but not who took part in which round, nor how many"
PARTICIPANT = "also knows who took part in which round, as the server, the clients of a cohort and colluders do"
_SERVER_DUTIES = (
    "for the outsider's ε the server keeps cohorts and their sizes to itself (so also the run folder)",
    "for the outsider's ε the server tops up the noise of every release to the same variance, whoever came",
)
_ADJACENCY = {
    "zero-out": "one client's data contributes nothing (its code is 0); the client stays and adds its noise share",
    REPLACE_ONE: "one client's data is replaced by any other data; sums differ by at most 2·clip_norm",
}


def privacy_statement(
    *,
    accountant: Accountant | None,
    budget: Budget | None,
    rounds_charged: int,
    participations: int,
    mechanism: dict[str, Any],
    secure_aggregation: str,
    assumptions: Sequence[str],
    not_covered: Sequence[str],
) -> dict[str, Any]:
    """The statement as data; `statement_lines` prints it."""
    if accountant is None or budget is None:
        return {
            "private": False,
            "summary": "No differential privacy: this scheme adds no noise.",
            "secure_aggregation": secure_aggregation,
            "not_covered": list(not_covered),
        }
    sampler = accountant.sampler
    released = accountant.released(rounds_charged, participations)
    participant = accountant.participant(participations)
    method = budget.accountant or accountant.method
    return {
        "private": True,
        "summary": (
            f"({released.best(method):.3f}, {budget.delta:g})-DP per client against an outsider ({method});"
            f" ({participant.best('pld'):.3f}, {budget.delta:g})-DP against the server, for the client that took part"
            f" most often ({participations} of {rounds_charged} rounds)"
        ),
        "unit": "one client with all its records",
        "adjacency": {"relation": sampler.adjacency, "meaning": _ADJACENCY[sampler.adjacency]},
        "delta": budget.delta,
        "sampler": {**sampler.to_dict(), "num_clients": accountant.num_clients},
        "mechanism": mechanism,
        "released": {
            "adversary": RELEASED,
            "rounds_charged": rounds_charged,
            "epsilon": released.to_dict(),
            "accountant": method,
            "amplified_by_sampling": accountant.amplified(rounds_charged),
        },
        "participant": {
            "adversary": PARTICIPANT,
            "participations": participations,
            "epsilon": participant.to_dict(),
            "accountant": "pld",
        },
        "budget": budget.to_dict(),
        "secure_aggregation": secure_aggregation,
        "assumptions": [*_SERVER_DUTIES, *assumptions],
        "not_covered": [*([sampler.caveat] if sampler.caveat else []), *not_covered],
    }


def statement_lines(statement: dict[str, Any]) -> list[tuple[str, str]]:
    """(heading, text) pairs for people."""
    if not statement["private"]:
        return [("Privacy", statement["summary"]), *[("Note", text) for text in statement["not_covered"]]]
    lines = [
        ("Outsider's ε", _figures(statement["released"]["epsilon"])),
        ("  who", statement["released"]["adversary"]),
        ("Server's ε", _figures(statement["participant"]["epsilon"])),
        (
            "  who",
            f"{statement['participant']['adversary']}; worst client: "
            f"{statement['participant']['participations']} participations",
        ),
        ("δ", f"{statement['delta']:g}"),
        ("Unit", statement["unit"]),
        ("Adjacency", f"{statement['adjacency']['relation']}: {statement['adjacency']['meaning']}"),
        ("Secure aggregation", statement["secure_aggregation"]),
    ]
    grid = statement["mechanism"].get("grid")
    if grid is not None:
        lines.append(("Grid", grid_text(grid)))
    lines += [("Assumed", text) for text in statement["assumptions"]]
    lines += [("Not covered", text) for text in statement["not_covered"]]
    return lines


def grid_text(grid: dict[str, Any], unit: str = "") -> str:
    """The grid of integer noise in one line; `unit` is what a step is measured in."""
    return (
        f"{grid['bits']} bits a value; steps of {grid['step']:.4g}{unit}; a client's share of the noise has a scale of"
        f" {grid['steps_per_share']:.1f} steps; the sum of a round wraps around with probability below"
        f" 2^{grid['log2_wrap_probability']:.1f}"
    )


def _figures(figures: dict[str, float | None]) -> str:
    return ", ".join(f"{name} {'not available' if v is None else f'{v:.3f}'}" for name, v in figures.items())
