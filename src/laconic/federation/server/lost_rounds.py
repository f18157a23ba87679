"""When a federation gives up: rounds in a row whose sum was lost, the reason, and what to do about it."""

from __future__ import annotations

from typing import Any

from laconic.errors import TrainingError
from laconic.federation.server.settings import Settings
from laconic.plan import RoundPlan
from laconic.secagg.attempts import StaleNonce

CHARGED = "weights"
"""A row has this key if its round was charged: the check of what it released."""
_SHOWN = 10
"""How many nodes or rounds a message names."""


def what_became(row: dict[str, Any]) -> str:
    """What a discarded round did to the budget and to the model; the subject of the sentence is the round."""
    return "was charged, and moved the model by noise alone" if CHARGED in row else "changed nothing"


class LostRounds:
    """Counts rounds in a row for which nodes were asked and whose sum was not opened; `check` ends the run.

    A cohort that was drawn too small does not count, nor does it end a row of lost rounds. The outsider's ε assumes
    that nobody knows how large cohorts are, and a run that ends because of one would tell.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._row: dict[str, Any] = {}
        self._in_a_row = 0
        self._heard: dict[int, dict[int, str]] = {}

    def hear(self, round: int, client: int, reason: str) -> None:
        """A node did not do as asked."""
        self._heard = {round: self._heard.get(round, {}) | {client: reason}}

    def after(self, plan: RoundPlan, row: dict[str, Any]) -> None:
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
        """Who was missing, and why."""
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
