"""What a federation adds to its summary: what was agreed, who was missing, what is missing of the planned model."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from laconic.federation.offer import Offer
from laconic.federation.server.lost_rounds import listed, what_became
from laconic.runner.run import Run

ATTEMPTS = "attempts"
"""Why a run ends whose spare rounds are used up."""


def may_charge(run: Run, offer: Offer, number: int) -> bool:
    """Whether one more round may be charged: the nodes agreed to a number, and refuse more."""
    if run.accountant is None:
        return True
    more = run.journal.would_add(number, run.journal.attempt_of(number))
    return run.journal.num_charged + more <= offer.attempts


def outcome(run: Run, offer: Offer, notices: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """The section `federation` of a summary. `incomplete` is empty if the planned model was trained."""
    return {
        "nodes": offer.num_clients,
        "rounds_planned": offer.rounds,
        "spare_rounds": offer.spare_rounds,
        "repeated_rounds": _repeated(run),
        "absences": _absences(notices),
        "incomplete": _incomplete(run, offer),
    }


def _repeated(run: Run) -> int:
    """How many rounds were charged again."""
    return max(0, run.journal.num_charged - run.state.rounds) if run.accountant is not None else 0


def _absences(notices: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """By node, in how many rounds it did not do as asked, and why the last time."""
    found: dict[int, dict[str, Any]] = {}
    rounds: dict[int, set[int]] = {}
    for row in notices:
        if row["round"]:
            rounds.setdefault(row["client"], set()).add(row["round"])
            found[row["client"]] = {"node": row["client"], "last_round": row["round"], "why": row["reason"]}
    return [found[client] | {"rounds": len(rounds[client])} for client in sorted(found)]


def _incomplete(run: Run, offer: Offer) -> str:
    """What is missing of the planned model, in a sentence.

    A round counts as lost if nodes were asked and their sum was not opened. A cohort that was drawn too small is part
    of the plan. A budget that ends a run without any repeated round is, too.
    """
    told = []
    lost = [row for row in run.history if "discarded" in row and row["bytes_down"]]
    if lost:
        numbers = [str(row["round"]) for row in lost]
        became = "it " + what_became(lost[-1])
        many = f"1 of {offer.rounds} rounds was" if len(lost) == 1 else f"{len(lost)} of {offer.rounds} rounds were"
        told.append(f"{many} lost ({listed('round', numbers)}; {became}). The last: {lost[-1]['discarded']}")
    done, repeated = run.state.rounds, _repeated(run)
    if run.stop_reason == ATTEMPTS or (run.stop_reason == "budget" and repeated):
        used = "the privacy budget" if run.stop_reason == "budget" else "the number that the nodes agreed to"
        told.append(
            f"the run ended after {done} of {offer.rounds} rounds: {repeated} more were charged and lost in crashes,"
            f" and {used} is used up (federation.spare_rounds = {offer.spare_rounds}): a new run can have more"
        )
    return "; ".join(told)
