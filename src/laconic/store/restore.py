"""Where a run begins: at the initial weights, or at its last checkpoint, if the folder is the run's and fits together.

Cohorts are drawn again from the seed: to check those of a journal, and to charge what it may have lost. A cohort that
was made smaller would hide participations, and the server's ε with them.

A folder is resumed only by the experiment that started it. Noise is replayed on resume. Reusing it on other data or
weights would reveal their difference.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from laconic.clients.base import Clients
from laconic.errors import RunFolderError
from laconic.experiment.experiment import Experiment
from laconic.experiment.identity import NOISE_DRAWS
from laconic.group_testing import first_findings
from laconic.planning import drawn_cohort
from laconic.privacy.released import Row
from laconic.round import first_server_state
from laconic.store.checkpoint import RunState, parsed_state
from laconic.store.folder import BEST, IDENTITY, STATE, RunFolder, parsed_row
from laconic.store.journal import Charge, Journal, Participations, released_charges
from laconic.store.saves import CHARGES, ROUNDS, SAVES, WAY_OUT, Save, Saves, digest_of, rows_digest

NOISE_NAMES = "noise names"
"""What is in the names of a simulation's noise: older versions had the seed and the round alone."""


def check_identity(folder: RunFolder, identity: dict[str, Any], saves: Saves) -> None:
    """Refuse a folder that another experiment started, or that lacks the record of which one did."""
    path, content = folder.path / IDENTITY, folder.read(IDENTITY)
    if saves.identity is None:
        _refuse_remains(folder)
        return
    if content is None:
        if saves.possible or folder.lines(CHARGES) or digest_of(_text(identity)) != saves.identity:
            raise RunFolderError(f"{path} is missing, so it cannot be told whether this is the same run; {WAY_OUT}")
        return  # killed right after the first row
    if digest_of(content) != saves.identity:
        raise RunFolderError(f"{path} was altered or damaged since the run was started; {WAY_OUT}")
    known = {NOISE_DRAWS: identity.get(NOISE_DRAWS)} | json.loads(content)  # older runs do not say it
    attack = {} if "attack" not in known else {"attack": None}  # a run without one says nothing of it
    for key, value in (attack | identity).items():
        if key not in known and key != "attack":
            raise RunFolderError(
                f"{folder.path} was started by an earlier version of Laconic, which alone can go on with it (it kept no"
                f" {key}): use that version, or choose another ⟨out⟩"
            )
        if known.get(key) != value:
            raise RunFolderError(
                f"{folder.path} was started with another {key} ({known.get(key)}, now {value}):"
                " resume with the same options, data and initial weights, or choose another ⟨out⟩"
            )


def keep_identity(
    folder: RunFolder, identity: dict[str, Any], saves: Saves, rounds: int, through: int, environment: str
) -> None:
    """Write the identity down at the start. The journal names it first, so a file without a row begins no run."""
    saves.begin(digest_of(_text(identity)), rounds, through, environment)
    folder.sync()
    if folder.read(IDENTITY) is None:
        folder.write(IDENTITY, _text(identity))


def _refuse_remains(folder: RunFolder) -> None:
    """Refuse a folder with files of a run, but without the row that begins one."""
    for name in (IDENTITY, CHARGES, ROUNDS, STATE):
        if folder.read(name):
            raise RunFolderError(
                f"{folder.path / SAVES} is missing, but there is {name}: the run is from an earlier version of Laconic,"
                f" which alone can go on with it, or the file was deleted; {WAY_OUT}"
            )


def _text(identity: dict[str, Any]) -> bytes:
    return (json.dumps(identity, indent=2) + "\n").encode()


def check_cohorts(experiment: Experiment, clients: Clients, folder: RunFolder, charges: Sequence[Charge]) -> None:
    """Draw every cohort again that was charged in this environment, and refuse any other.

    Elsewhere numpy may draw otherwise, and a federation draws from the system's entropy, in an environment of its own:
    of those charges only the chain of digests can tell.
    """
    taken = Participations()
    highest = 0
    for index, charge in enumerate(charges):
        known = charge.environment == clients.environment
        if known:
            counts = taken if highest < charge.round else None
            drawn = _drawn(experiment, clients, charges[:index], charge, counts)
        cohort = charge.cohort
        if bool((cohort >= clients.num_clients).any()) or (known and not np.array_equal(drawn, cohort)):
            raise RunFolderError(
                f"{folder.path / CHARGES}, line {index + 1}: the seed draws another cohort for round {charge.round},"
                f" attempt {charge.attempt}, so it was altered; {WAY_OUT}"
            )
        taken.add(cohort)
        highest = max(highest, charge.round)


def assume_lost(experiment: Experiment, clients: Clients, journal: Journal, finished: int) -> None:
    """Charge what another environment may have released since the last save, `finished` rounds into the run.

    The save says through which round that environment might go. Charges of these rounds that are not in the journal
    may have been lost with its last rows. In the same environment a replay repeats them bit for bit; here it does not,
    so they count beside their repetition.
    """
    saves = journal.saves
    environment = saves.environment or (journal.charges[-1].environment if journal.charges else None)
    if environment is None or environment == journal.environment:
        return
    through = saves.rounds if saves.through is None else saves.through
    for number in range(finished + 1, through + 1):
        attempt = journal.attempt_of(number, environment)
        if journal.would_add(number, attempt):
            charge = Charge(number, attempt, environment, np.zeros(0, dtype=np.int64))
            journal.assume(replace(charge, cohort=_drawn(experiment, clients, journal.charges, charge)))


def _drawn(
    experiment: Experiment,
    clients: Clients,
    before: Sequence[Charge],
    charge: Charge,
    counts: Participations | None = None,
) -> np.ndarray:
    """The cohort that the seed draws for a charge; `counts` are the participations before it, if they are known."""
    cap = experiment.budget.max_participations if experiment.budget else None
    exhausted = np.zeros(0, dtype=np.int64)
    if cap is not None:
        exhausted = (_counted(before, charge) if counts is None else counts).at_least(cap)
    return drawn_cohort(
        experiment.sampler,
        clients.streams,
        charge.round,
        charge.attempt,
        clients.num_clients,
        exhausted,
        experiment.arrange,
    )


def _counted(before: Sequence[Charge], charge: Charge) -> Participations:
    """How often each client had taken part when the charge was made, after a resume."""
    released = released_charges(before, charge.round - 1, charge.environment)
    counts = Participations()
    for earlier in released:
        counts.add(earlier.cohort)
    return counts


@dataclass(frozen=True)
class Restored:
    """The state to go on from, and the lines of the rounds that led there."""

    state: RunState
    lines: list[bytes] = field(default_factory=list)
    save: Save | None = None
    """What the files amount to after a kill in the middle of a save; None if the journal says so already."""
    repeated: dict[tuple[int, int], str] = field(default_factory=dict)
    """(round, attempt) of rounds that are cut off and come again → the check of the weights that they led to."""

    @property
    def rows(self) -> list[Row]:
        return [json.loads(line) for line in self.lines]


def first_state(experiment: Experiment, clients: Clients, folder: RunFolder | None, journal: Journal) -> Restored:
    """Read and check the whole folder; a file that does not fit is refused, and nothing is changed."""
    restored, repeated = None, {}
    if folder is not None:
        _check_rounds(experiment, folder, journal)
        check_cohorts(experiment, clients, folder, journal.charges)
        restored = _saved(clients, folder, journal)
        finished = 0 if restored is None else restored.state.rounds
        if experiment.scheme.private and not journal.covers(finished):
            raise RunFolderError(
                f"{folder.path / CHARGES} lacks charges of finished rounds: it was edited or damaged; {WAY_OUT}"
            )
        repeated = _later_rows(experiment, folder, journal, finished)
        if experiment.scheme.private and clients.replays:
            assume_lost(experiment, clients, journal, finished)
    if restored is None:
        rule = first_server_state(experiment.scheme, clients.model.size, clients.code_size, clients.device)
        state = RunState(weights=clients.model.initial.clone(), rule=rule, shared=clients.shared())
        if experiment.group_testing:
            state.findings = first_findings(clients.num_clients, experiment.calm_rounds)
        restored = Restored(state)
    if experiment.scheme.private:
        # From the journal, so that no resume counts a participation twice or loses one.
        restored.state.participations = Participations()
        for cohort in journal.released(restored.state.rounds):
            restored.state.take_part(cohort)
    return replace(restored, repeated=repeated)


def _check_rounds(experiment: Experiment, folder: RunFolder, journal: Journal) -> None:
    for what, count in (("charged", journal.last_round), ("planned", journal.saves.rounds)):
        if count > experiment.rounds:
            raise RunFolderError(
                f"{folder.path} was {what} for {count} rounds already: resume with as many (⟨rounds⟩) or more"
            )


def _saved(clients: Clients, folder: RunFolder, journal: Journal) -> Restored | None:
    """The checkpoint with its rows and its best round; None if nothing was saved yet."""
    path, data, saves = folder.path / STATE, folder.read(STATE), journal.saves
    if data is None:
        if saves.confirmed is None:
            return None
        raise RunFolderError(f"{path} is missing, but {SAVES} names that of round {saves.confirmed.round}; {WAY_OUT}")
    digest = digest_of(data)
    fitting = [save for save in saves.possible if save.state == digest]
    if not fitting:
        raise RunFolderError(
            f"{path} is not the state that was saved last, by {SAVES}: it was altered, damaged or set back; {WAY_OUT}"
        )
    state, head = parsed_state(data, path, clients.model.size, clients.device)
    if state.rounds != fitting[0].round or not journal.chain or head not in journal.chain.digests:
        raise RunFolderError(f"{path} belongs to another journal than {CHARGES} and {SAVES}; {WAY_OUT}")
    lines = _finished_lines(folder, state.rounds, [save for save in saves.possible if save.round == state.rounds])
    best = _best_file(folder, state, fitting, saves.possible)
    found = replace(fitting[0], rows=rows_digest(lines), best=best)
    return Restored(state, lines, None if found == saves.confirmed else found)


def _finished_lines(folder: RunFolder, rounds: int, saves: list[Save]) -> list[bytes]:
    lines = folder.lines(ROUNDS)[:rounds]
    if rows_digest(lines) not in [save.rows for save in saves]:
        raise RunFolderError(
            f"{folder.path / ROUNDS} does not hold the rows of rounds 1 to {rounds} as they were saved: it was edited"
            f" or damaged; {WAY_OUT}"
        )
    return lines


def _best_file(folder: RunFolder, state: RunState, fitting: list[Save], possible: list[Save]) -> str | None:
    """The digest of the best round's model. After a kill it may be that of a later round, which will be repeated."""
    wanted = [save.best for save in fitting]
    if not folder.keeps_models or None in wanted:
        return None
    content = folder.read(BEST)
    found = None if content is None else digest_of(content)
    if found is None or found not in [save.best for save in possible]:
        what = "is missing" if found is None else "was altered or damaged"
        raise RunFolderError(f"{folder.path / BEST}, the model of the best round so far, {what}; {WAY_OUT}")
    if found not in wanted:
        state.best = state.best_file = None  # the round that it is of comes again, and is better than any before
        return None
    return found


REPEATED = "repeated.json"
"""What rounds led to that were cut off: they may be interrupted again before they are repeated."""


def keep_repeats(folder: RunFolder, repeated: dict[tuple[int, int], str]) -> None:
    """Write them down before their rows are cut off."""
    if repeated:
        rows = [[round, attempt, check] for (round, attempt), check in sorted(repeated.items())]
        folder.write(REPEATED, json.dumps(rows) + "\n")


def _known_repeats(folder: RunFolder) -> dict[tuple[int, int], str]:
    content = folder.read(REPEATED)
    try:
        known = {(round, attempt): check for round, attempt, check in json.loads(content or "[]")}
        if all(type(r) is int and type(a) is int and type(check) is str for (r, a), check in known.items()):
            return known
        raise ValueError
    except (ValueError, TypeError, RecursionError):
        raise RunFolderError(f"{folder.path / REPEATED} is damaged; {WAY_OUT}") from None


def _later_rows(
    experiment: Experiment, folder: RunFolder, journal: Journal, finished: int
) -> dict[tuple[int, int], str]:
    """Rows after the checkpoint are cut off, and their rounds repeated; but each must have been charged before."""
    repeated = _known_repeats(folder)
    for number, line in enumerate(folder.lines(ROUNDS)[finished:], finished + 1):
        try:
            row = parsed_row(line)
            if not isinstance(row.get("attempt"), int):
                raise ValueError
        except ValueError:
            raise RunFolderError(f"{folder.path / ROUNDS}, line {number}, is damaged; {WAY_OUT}") from None
        if experiment.scheme.private and journal.would_add(row["round"], row["attempt"]):
            raise RunFolderError(
                f"{folder.path / CHARGES} lacks the charge of round {row['round']}, which has a row in {ROUNDS}: it"
                f" was edited or damaged; {WAY_OUT}"
            )
        if isinstance(row.get("weights"), str):
            repeated[row["round"], row["attempt"]] = row["weights"]
    return repeated
