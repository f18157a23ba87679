"""A run: one round after another, in memory or in a folder, for any kind of clients."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor

from laconic.clients.base import Clients, Collected, shared_bytes
from laconic.clients.simulated import SimulatedClients
from laconic.errors import Diverged, PrivacyError, RankLost, RunFolderError
from laconic.experiment.experiment import Experiment
from laconic.experiment.identity import identity_of
from laconic.graphs import Answer
from laconic.observers.observer import Ended, Observer, Row, as_observer
from laconic.plan import RoundPlan
from laconic.planning import plan_for, plan_round
from laconic.privacy.released import check_row
from laconic.round import (
    elected,
    empty_sum,
    finite_codes,
    read_answers,
    refuse_divergence,
    release_stream,
    released_sums,
    remembers_sums,
    server_step,
    single_codes_step,
    sums_step,
    without_sums,
)
from laconic.runner.outcome import RunResult, outcome_of, statement_text
from laconic.runner.progress import Progress, started_of
from laconic.runner.statement import counted_attackers
from laconic.runner.tested import Tested, sums_in_round, tested_step
from laconic.server.rules import SCORES, VOTES
from laconic.store.checkpoint import keep_front_end, save_state, weights_bytes, weights_check
from laconic.store.finished import digests_of
from laconic.store.folder import RunFolder
from laconic.store.journal import Journal
from laconic.store.restore import NOISE_NAMES, Restored, check_identity, first_state, keep_identity, keep_repeats
from laconic.store.saves import RoundRows
from laconic.train.engines.engine import on_threads

DIVERGED = "diverged"
"""Why an attacked run ends whose weights are no longer finite, and the key of its last row that says so."""
_FIRST_ROUNDS = 10
"""How many rounds may be charged before the first save of a process, which does not know their pace yet."""


class Run(Progress):
    """A run in progress. `run()` goes on from the round at which the folder says it stopped.

    The `clients` are simulated here, unless others are given: those of a federation, or some that attack.

    Args:
        experiment: what is run.
        clients: others than the simulated ones.
        folder: where the run is kept, or None.
        observer: is told of every round.

    Examples:
        >>> import torch
        >>> from laconic.data.population import as_population
        >>> clients = [(torch.randn(4, 8), torch.randint(0, 2, (4,))) for _ in range(10)]
        >>> experiment = laconic.Experiment(
        ...     scheme=laconic.schemes.fl_std(local_lr=0.1, local_steps=1), model=torch.nn.Linear(8, 2),
        ...     population=as_population(clients), sampler=laconic.Poisson(sampling_rate=0.5), rounds=2,
        ... )
        >>> laconic.Run(experiment).run().stop_reason
        'rounds'
    """

    def __init__(
        self,
        experiment: Experiment,
        *,
        clients: Clients | None = None,
        folder: RunFolder | None = None,
        observer: Observer | Callable[[Row], None] = lambda row: None,
    ) -> None:
        super().__init__(experiment, clients or SimulatedClients(experiment), folder)
        self.observer = observer
        self.result: RunResult | None = None
        self._rows: RoundRows | None = None
        self._new_best: Tensor | None = None
        """The weights of the best round, if they are not saved yet."""
        self._committing = False
        self._begun = False
        self._first, self._started, self._saved = 0, 0.0, 0.0
        """After which round this process began and when, and when it saved last."""
        self._repeated: dict[tuple[int, int], str] = {}
        self._unanswered: tuple[Answer, int] | None = None
        """Whether the weights of a round are finite, if a GPU has not been asked yet: it is still at work on others."""

    def run(self, one_round: Callable[[int], bool] | None = None) -> RunResult:
        """Train until the rounds or the budget are used up, or early stopping ends the run."""
        one_round = one_round or self._one_round
        if not self._begun:
            self.begin()
        with self._watched(), on_threads(self.clients.threads):
            return self._run(one_round)

    @contextmanager
    def _watched(self) -> Iterator[None]:
        """The observer is told when the run starts, and how it ends."""
        observer, ended = as_observer(self.observer), Ended(status="failed")
        observer.start(started_of(self))
        try:
            yield
            assert self.result is not None
            ended = Ended(status="finished", summary=self.result.summary(), history=tuple(self.history))
        except KeyboardInterrupt:
            ended = Ended(status="interrupted")
            raise
        finally:
            observer.end(ended)

    def _run(self, one_round: Callable[[int], bool]) -> RunResult:
        started = time.monotonic()
        try:
            for number in range(self.state.rounds + 1, self.experiment.rounds + 1):
                if not one_round(number):
                    break
                if time.monotonic() - self._saved > self.experiment.checkpoint_seconds:
                    self._save(ahead=self._ahead())
        except (KeyboardInterrupt, RankLost):
            if not self._committing:  # else the state is half of one round: the last checkpoint counts
                self._save()
            raise
        self._refuse_divergence()
        self._complete_last_row()
        self.ended = True
        self.state.rule = without_sums(self.state.rule)
        self._save()
        self.result = self._finish(time.monotonic() - started)
        return self.result

    def begin(self) -> None:
        """Read the journal and the checkpoint, or start anew; refuse a folder that cannot be gone on with."""
        identity = self._identity() if self.folder else {}
        self.journal = Journal(self.folder, self.clients.environment)
        if self.folder:
            check_identity(self.folder, identity, self.journal.saves)
        restored = first_state(self.experiment, self.clients, self.folder, self.journal)
        self.state, self._repeated = restored.state, restored.repeated
        for row in restored.rows:
            self.history.append(row)
            self.ledger.add(row)
        self.clients.recall(self._finished_plans())
        self._refuse_spent_budget()
        self._first, self._started = self.state.rounds, time.monotonic()
        self._saved = self._started
        if self.folder:
            self._open_folder(self.folder, identity, restored)
        self._begun = True

    def _identity(self) -> dict[str, Any]:
        named = self.clients.streams.run
        return identity_of(self.experiment) | ({NOISE_NAMES: named} if named else {})

    def _finished_plans(self) -> list[RoundPlan]:
        """The plans of the rounds that were finished before this process."""
        e, rows = self.experiment, {(row["round"], row["attempt"]): row for row in self.history}
        return [
            plan_for(
                e.scheme,
                e.sampler,
                cohort,
                streams=self.clients.streams,
                round=number,
                attempt=attempt,
                num_clients=self.clients.num_clients,
                max_dropouts=e.max_dropouts,
                max_colluders=e.max_colluders,
                groups=rows[number, attempt].get("groups"),
                excluded=self._excluded(number),
            )
            for number, attempt, cohort in self.journal.finished(list(rows))
        ]

    def _excluded(self, number: int) -> np.ndarray | None:
        """The clients that group testing excludes from a round."""
        return None if self.state.findings is None else self.state.findings.excluded_before(number)

    def _open_folder(self, folder: RunFolder, identity: dict[str, Any], restored: Restored) -> None:
        """Open the folder, which was checked: cut off what will be repeated, and write down what a kill left open."""
        assert self.journal.chain is not None
        keep_front_end(folder, self.experiment.front_end)
        self.journal.chain.open()
        rounds = self.experiment.rounds
        through = min(rounds, self._ahead())
        keep_identity(folder, identity, self.journal.saves, rounds, through, self.journal.environment)
        self.journal.write_assumed()
        keep_repeats(folder, restored.repeated)
        self._rows = RoundRows(folder, restored.lines)
        if restored.save is not None:
            if restored.save != self.journal.saves.announced:
                self.journal.saves.announce(restored.save)
            self.journal.saves.confirm()

    def _refuse_spent_budget(self) -> None:
        finished = self.folder is not None and (self.folder.path / "summary.json").exists()
        next_round = self.state.rounds + 1
        if finished and next_round <= self.experiment.rounds and not self._within_budget(self.plan(next_round)):
            raise PrivacyError(
                f"the privacy budget of {self.path} is spent after round {self.state.rounds}: its results are there;"
                " start a new run with another ⟨out⟩ to spend more"
            )

    def _one_round(self, number: int) -> bool:
        """One round; False if it must not be started."""
        plan = self.begin_round(number)
        if plan is None:
            return False
        self.finish_round(
            plan, self.clients.collect(plan, self.state.weights) if plan.viable else self.empty_collection(plan)
        )
        return True

    def begin_round(self, number: int) -> RoundPlan | None:
        """The plan of a round, which is charged now; None if the round must not be started."""
        self._round_started = time.perf_counter()
        if self.experiment.patience is not None and self.state.stale >= self.experiment.patience:
            self.stop_reason = "patience"
            return None
        if self.history and DIVERGED in self.history[-1]:
            self.stop_reason = DIVERGED
            return None
        plan = self.plan(number)
        if not self._within_budget(plan):
            self.stop_reason = "budget"
            return None
        if self.experiment.scheme.noise.remembers and self.state.rounds and not remembers_sums(self.state.rule):
            raise RunFolderError(
                f"{self.path} is a run that has ended, and it keeps no sums without noise. So a run with ⟨noise-bands⟩"
                " cannot have more rounds than it was planned with: start a new run with another ⟨out⟩"
            )
        if self.accountant is not None:
            if not self._announced(number):
                self._save(ahead=self._ahead())
            self.journal.charge(plan)
        return plan

    def empty_collection(self, plan: RoundPlan) -> Collected:
        """The result of a round in which no client is asked."""
        return Collected(empty_sum(self.experiment.scheme, plan, self.clients.sizes(plan.round)[0], self.device))

    def finish_round(self, plan: RoundPlan, sent: Collected) -> None:
        """Use what the clients sent. The state changes only at the end, in one go."""
        e, state, number = self.experiment, self.state, plan.round
        self._refuse_divergence()
        row: Row = {"round": number, "attempt": plan.attempt, "cohort": len(plan.cohort)}
        row |= self._left_out(sent)
        if e.attack is not None:
            row |= counted_attackers(e, plan)
        findings = state.findings
        try:
            weights, rule, tested = self._stepped(plan, sent)
            if tested is not None:
                findings, row = tested.findings, row | tested.row
        except Diverged:
            if e.attack is None:
                raise
            weights, rule = state.weights, state.rule  # the last that were finite
            row[DIVERGED], self.stop_reason = "the weights are no longer finite", DIVERGED
        if self.accountant is not None:
            row["weights"] = self._unchanged(plan, rule.get(SCORES, rule.get(VOTES, weights)))
        if plan.round <= e.scheme.codec.vote_rounds:
            row["vote"] = f"{plan.round} of {e.scheme.codec.vote_rounds}"
        told, rule = elected(e.scheme, plan, rule, self.model.size)
        measured = read_answers(e.scheme, plan, weights, rule)
        weights, rule, told = measured.weights, measured.state, told or measured.told or None
        row |= measured.row
        if plan.groups:
            row |= {"groups": len(plan.groups), "lost_groups": (sent.groups or [0] * len(plan.groups)).count(0)}
        if not plan.viable:
            row["discarded"] = (
                f"{len(plan.cohort)} clients; sums of {plan.sums[0].least_cohort} or more carry the noise"
            )
        elif sent.lost:
            row["discarded"] = sent.lost
        newcomers = [client for client in plan.cohort.tolist() if not state.knows(client)] if state.shared else []
        once = [shared_bytes(state.shared)] * len(newcomers) if sent.up and state.shared else []
        traffic = self.ledger.row(
            round=number, up=sent.up, down=sent.down, once=once, secagg=sent.secagg, transport=sent.transport
        )
        row |= traffic | {"seconds": round(time.perf_counter() - self._round_started, 4)}
        if DIVERGED not in row and (number % e.eval_every == 0 or number == e.rounds):
            self._refuse_divergence()
            with self.clients.clock("evaluate"):
                row |= self.evaluation.metrics(weights)
            with self.clients.clock("account"):
                released = self.journal.num_released(number)
                row |= self.spending.epsilons(released, self._busiest(plan), self.repeats(through=number))

        check_row(row)
        self._committing = True
        state.weights, state.rule, state.rounds, state.findings = weights, rule, number, findings
        state.take_part(plan.drawn)
        state.tell(newcomers if once else [], told)
        self.ledger.add(traffic)
        self._record(row)
        self._committing = False
        as_observer(self.observer).row(row)

    def _unchanged(self, plan: RoundPlan, released: Tensor) -> str:
        """A check of the new weights, or votes, refused if a repeated round comes out other than before.

        Its noise is drawn again. Reusing it on other updates would reveal their difference.
        """
        check = weights_check(released)
        before = self._repeated.get((plan.round, plan.attempt), check)
        if check != before:
            raise PrivacyError(
                f"round {plan.round} comes out other than before the run was interrupted, so its noise would be used"
                " twice: data, code or machine have changed; start a new run with another ⟨out⟩"
            )
        return check

    def _left_out(self, sent: Collected) -> dict[str, Any]:
        """Leave out single codes that are not finite, and discard a round with too few; what the row says of it."""
        if sent.counts is None:
            return {}
        came, aggregator, row = len(sent.total), self.experiment.scheme.aggregator, {}
        sent.total, sent.counts = finite_codes(sent.total, sent.counts)
        sent.messages = len(sent.total)
        if sent.messages < came:
            row["not_finite"] = came - sent.messages
        if sent.messages < aggregator.least_codes:
            kind = type(aggregator).__name__
            sent.lost = f"{sent.messages} codes, but {kind} takes {aggregator.least_codes} or more"
            sent.messages = 0
        return row

    def _stepped(self, plan: RoundPlan, sent: Collected) -> tuple[Tensor, dict[str, Tensor], Tested | None]:
        """(new weights, new rule state, what was tested). Without privacy, nothing changes if no client came."""
        e, scheme, state = self.experiment, self.experiment.scheme.at(plan.round), self.state
        if not scheme.noise.private and not sent.messages:
            return state.weights, state.rule, None
        if sent.counts is not None:
            with self.clients.clock("aggregate"):
                step = single_codes_step(scheme, plan, sent.total, sent.counts, weights=state.weights, state=state.rule)
            return *step, None
        stream = release_stream(self.clients.streams, plan)
        if plan.groups or e.group_testing:
            with self.clients.clock("aggregate"):
                survivors = (sent.groups or [0] * len(plan.groups)) if plan.groups else [sent.messages]
                totals = sent.total if plan.groups else sent.total[None]
                sums = released_sums(scheme, plan, totals, survivors=survivors, stream=stream)
                if not e.group_testing:
                    return *sums_step(scheme, plan, sums, weights=state.weights, state=state.rule), None
                tested = tested_step(e, state, plan, sums)
                return tested.weights, tested.rule, tested
        with self.clients.clock("decode"):
            step = server_step(
                scheme,
                plan,
                sent.total,
                survivors=sent.messages,
                total_weight=sent.weight,
                weights=state.weights,
                state=state.rule,
                stream=stream,
                checked=not self._asks_later,
            )
        if self._asks_later:
            self._unanswered = Answer(torch.isfinite(step[0]).all()), plan.round
        return *step, None

    @property
    def _asks_later(self) -> bool:
        """Whether the next round begins before it is known that the weights are finite.

        Not where something else waits for them in every round: a check of a private round, or an attack, after which
        the last finite weights are kept.
        """
        return self.device.type == "cuda" and self.experiment.attack is None and self.accountant is None

    def _refuse_divergence(self) -> None:
        """Ask a GPU for the answer that was left open. Nothing is evaluated or saved before."""
        if self._unanswered is not None:
            answer, number = self._unanswered
            self._unanswered = None
            refuse_divergence(answer, number)

    def plan(self, number: int) -> RoundPlan:
        e = self.experiment
        cap = e.budget.max_participations if e.budget else None
        exhausted = () if cap is None else self.state.participations.at_least(cap)
        return plan_round(
            e.scheme,
            e.sampler,
            streams=self.clients.streams,
            round=number,
            attempt=self.journal.attempt_of(number),
            num_clients=self.clients.num_clients,
            exhausted=exhausted,
            arrange=e.arrange,
            max_dropouts=e.max_dropouts,
            max_colluders=e.max_colluders,
            shared=self.state.shared,
            groups=None if self.state.findings is None else sums_in_round(e, self.state.findings),
            excluded=self._excluded(number),
        )

    def _within_budget(self, plan: RoundPlan) -> bool:
        charged = self.journal.num_charged + self.journal.would_add(plan.round, plan.attempt)
        return self.spending.fits(charged, self._busiest(plan), self.repeats(plan))

    def _busiest(self, plan: RoundPlan) -> int:
        """How often the busiest client will have taken part after this round."""
        taken, drawn = self.state.participations, plan.drawn
        return max(taken.most, taken.most_of(drawn) + 1) if len(drawn) else taken.most

    def _record(self, row: Row) -> None:
        """Note whether the round is the best, then write the row."""
        if self.evaluation.note(row, self.state):
            self._new_best = self.state.weights
        self.history.append(row)
        if self._rows:
            self._rows.append(row)

    def _announced(self, number: int) -> bool:
        """Whether the folder says that this round may be charged here before the next save (see `Saves`)."""
        if self.folder is None or not self.clients.replays:
            return True
        return self.journal.saves.announced_round(number, self.journal.environment)

    def _ahead(self) -> int:
        """How many rounds may be charged before the next save: those that fit between two, by the pace so far."""
        rounds, seconds = self.state.rounds - self._first, time.monotonic() - self._started
        if not self.clients.replays or rounds < 1:
            return _FIRST_ROUNDS if self.clients.replays else 0
        return 1 + int(min(self.experiment.checkpoint_seconds * rounds / max(seconds, 1e-9), self.experiment.rounds))

    def _save(self, ahead: int = 0) -> None:
        self._refuse_divergence()
        if self.folder and self._rows and self.journal.chain:
            self.journal.chain.check_in_place()  # else this would be written into the folder of another run
            self.folder.sync()  # the charges must outlive what is released
            best = self._new_best if self.folder.keeps_models else None
            model = None if best is None else self._model_file(best)
            save_state(
                self.folder,
                self.state,
                self.journal,
                self._rows,
                best=model,
                statement=statement_text(self).encode(),
                through=min(self.state.rounds + ahead, self.experiment.rounds),
            )
            self._new_best = None
            self._saved = time.monotonic()

    def _model_file(self, weights: Tensor) -> bytes:
        parameters = dict(zip(self.model.names, self.model.split(weights), strict=True))
        return weights_bytes(parameters, {"scheme": self.experiment.scheme.name})

    def _complete_last_row(self) -> None:
        """Metrics and ε for a run that stopped between two evaluations."""
        if not self.history or "loss" in self.history[-1] or "epsilon" in self.history[-1]:
            return
        last = self.history[-1]
        released, most = self.journal.num_released(last["round"]), self.state.most_participations
        more = {} if DIVERGED in last else self.evaluation.metrics(self.state.weights)
        more |= self.spending.epsilons(released, most, self.repeats(through=last["round"]))
        last |= more
        if self._rows and more:
            self._rows.complete(last)

    def _finish(self, seconds: float) -> RunResult:
        if self.state.rounds <= self.experiment.scheme.codec.vote_rounds:
            self.spending.check_first_round()
        if self.state.rounds == 0:
            raise PrivacyError("the budget is spent before the first round was finished: start a new run")
        if self.folder:
            self.folder.write("model.safetensors", self._model_file(self.state.weights))
        result = outcome_of(self, seconds)
        if self.folder:
            self.journal.saves.end(digests_of(self.folder))
            self.folder.sync()
        return result


@contextmanager
def run_in(folder: RunFolder, run: Run, files: Mapping[str, str]) -> Iterator[Run]:
    """The run, ready to go on. The folder is locked inside the block; `files` say what the run is."""
    run.spending.check_first_round()
    folder.open()
    try:
        prepare(folder, run, files)
        yield run
    finally:
        folder.close()


def prepare(folder: RunFolder, run: Run, files: Mapping[str, str]) -> None:
    """Let the run write into the open folder."""
    run.folder = folder
    if folder.exists:
        run.begin()  # what may refuse to go on comes before anything is changed
    for name, text in files.items():
        folder.write(name, text)
