"""Where a run begins: at the initial weights, or at its last checkpoint."""

from __future__ import annotations

from typing import Any

from laconic.errors import RunFolderError
from laconic.runtime.checkpoint import RunState, load_state
from laconic.runtime.clients import SimulatedClients
from laconic.runtime.experiment import Experiment
from laconic.runtime.folder import RunFolder
from laconic.runtime.journal import Journal


def first_state(
    experiment: Experiment, clients: SimulatedClients, folder: RunFolder | None, journal: Journal
) -> tuple[RunState, list[dict[str, Any]]]:
    """The state to go on from, and the rows of the rounds that led there."""
    state = load_state(folder, clients.model.size, clients.device) if folder else None
    rows: list[dict[str, Any]] = []
    if state is not None and folder is not None:
        rows = _finished_rows(folder, state)
        if experiment.scheme.private and not journal.covers(state.rounds):
            raise RunFolderError(
                f"{folder.path}/charges.jsonl lacks charges of finished rounds: it was edited or damaged;"
                " restore it or start a new run"
            )
    if folder is not None and journal.last_round > experiment.rounds:
        raise RunFolderError(
            f"{folder.path} was charged for {journal.last_round} rounds already: resume with as many (--rounds) or more"
        )
    if state is None:
        rule = experiment.scheme.rule.init(clients.model.size, clients.code_size, clients.device)
        state = RunState(weights=clients.model.initial.clone(), rule=rule, shared=clients.shared())
    if folder:
        folder.replace_rows("rounds.jsonl", rows)  # rounds after the checkpoint are repeated
    if experiment.scheme.private:
        # From the journal, so that no resume counts a participation twice or loses one.
        state.participations = {}
        for cohort in journal.released(state.rounds):
            state.take_part(cohort)
    return state, rows


def _finished_rows(folder: RunFolder, state: RunState) -> list[dict[str, Any]]:
    rows = [row for row in folder.rows("rounds.jsonl") if row["round"] <= state.rounds]
    if len(rows) != state.rounds:
        raise RunFolderError(
            f"{folder.path}/rounds.jsonl has {len(rows)} rows, but the checkpoint is of round {state.rounds}:"
            " it was edited or damaged; start a new run"
        )
    return rows
