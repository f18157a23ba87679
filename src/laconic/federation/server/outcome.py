"""How a federation ends: too many lost rounds in a row, what was agreed, who was missing, what the model lacks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from laconic.errors import TrainingError
from laconic.federation.offer import Offer
from laconic.federation.server.members import Settings
from laconic.plan import RoundPlan
from laconic.privacy.released import Absence, FederationFields, Row
from laconic.runner.run import Run
from laconic.secagg.attempts import StaleNonce

CHARGED = "weights"
"""A row has this key if its round was charged: the check of what it released."""
_SHOWN = 10
"""How many nodes or rounds a message names."""


def what_became(row: Row) -> str:
    """What a discarded round did to the budget and to the model; the subject of the sentence is the round."""
    return "was charged, and moved the model by noise alone" if CHARGED in row else "changed nothing"


class LostRounds:
    """Counts rounds in a row for which nodes were asked and whose sum was not opened; `check` ends the run.

    A cohort that was drawn too small does not count, nor does it end a row of lost rounds. The outsider's ε assumes
    that outsiders do not know how large cohorts are, and a run that ends because of one would tell.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._row: Row = {}
        self._in_a_row = 0
        self._heard: dict[int, dict[int, str]] = {}

    def hear(self, round: int, client: int, reason: str) -> None:
        """A node did not do as asked."""
        self._heard = {round: self._heard.get(round, {}) | {client: reason}}

    def after(self, plan: RoundPlan, row: Row) -> None:
        """A round is over."""
        if plan.viable:
            lost = "discarded" in row
            self._in_a_row = self._in_a_row + 1 if lost else 0
            self._row = row if lost else {}

    def check(self) -> None:
        """Before the next round is charged: an error if too many were lost in a row."""
        most = self._settings.max_discarded
        if self._in_a_row < most:
            return
        rounds = f"{most} rounds in a row were discarded; each" if most > 1 else "a round was discarded; it"
        raise TrainingError(
            f"{rounds} {what_became(self._row)}. The last: {self._row['discarded']}{self._nodes()}."
            f" {self._remedy()} (federation.max_discarded = {most} decides when a run ends.)"
        )

    @property
    def _missing(self) -> dict[int, str]:
        """Which nodes did not do as asked in the last lost round, and why."""
        return self._heard.get(self._row["round"], {})

    def _nodes(self) -> str:
        """The nodes that were missing in a round, and why."""
        by_reason: dict[str, list[str]] = {}
        for client, reason in sorted(self._missing.items()):
            by_reason.setdefault(reason, []).append(str(client))
        told = [f"{listed('node', clients)} {reason}" for reason, clients in by_reason.items()]
        return f" ({'; '.join(told)})" if told else ""

    def _remedy(self) -> str:
        reasons = list(self._missing.values())
        if reasons and all(reason.startswith("refuses") and str(StaleNonce()) not in reason for reason in reasons):
            return (
                "Ask the owners of these nodes: their policy or their records forbid it, as"
                " 'laconic node status FOLDER' tells them. Then resume the run."
            )
        return (
            f"If nodes are slow, raise federation.round_timeout (now {self._settings.round_timeout:g} s per exchange);"
            " if they are gone, bring them back; then resume the run. A new run with a larger sampler.max_dropouts"
            " does with fewer nodes."
        )


def listed(what: str, names: list[str]) -> str:
    """'nodes 1, 2 and 3 more': at most ten of them."""
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"{what}{'s' if len(names) > 1 else ''} {', '.join(names[:_SHOWN])}{more}"


ATTEMPTS = "attempts"
"""Why a run ends whose spare rounds are used up."""


def may_charge(run: Run, offer: Offer, number: int) -> bool:
    """Whether one more round may be charged: the nodes agreed to a number, and refuse more."""
    if run.accountant is None:
        return True
    more = run.journal.would_add(number, run.journal.attempt_of(number))
    return run.journal.num_charged + more <= offer.attempts


def outcome(run: Run, offer: Offer, notices: Iterable[dict[str, Any]]) -> FederationFields:
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


def _absences(notices: Iterable[dict[str, Any]]) -> list[Absence]:
    """By node, in how many rounds it did not do as asked, and why the last time."""
    found: dict[int, Absence] = {}
    rounds: dict[int, set[int]] = {}
    for row in notices:
        if row["round"]:
            rounds.setdefault(row["client"], set()).add(row["round"])
            count, last = len(rounds[row["client"]]), row["round"]
            found[row["client"]] = {"node": row["client"], "last_round": last, "why": row["reason"], "rounds": count}
    return [found[client] for client in sorted(found)]


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
