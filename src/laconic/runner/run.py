"""The simulator: all clients of a federation on one machine, one round after another."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from dataclasses import InitVar, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from laconic.clients.base import Clients, Collected, shared_bytes
from laconic.clients.simulated import SimulatedClients
from laconic.data.population import Records
from laconic.errors import ConfigError, PrivacyError
from laconic.experiment.experiment import Experiment
from laconic.features.front_end import with_head
from laconic.plan import RoundPlan
from laconic.privacy.accounting.accountant import largest
from laconic.report.ledger import Ledger
from laconic.round import empty_sum, plan_round, release_stream, server_step
from laconic.runner.outcome import RunResult, outcome_of, write_statement
from laconic.store.checkpoint import save_state, weights_bytes
from laconic.store.folder import RunFolder
from laconic.store.front_end import keep_front_end
from laconic.store.identity import check_identity, identity_of, keep_identity
from laconic.store.journal import Journal
from laconic.store.restore import Restored, first_state
from laconic.store.round_rows import RoundRows
from laconic.train.engines.precision import products_in

Observer = Callable[[dict[str, Any]], None]
"""Called with every round's row."""


@dataclass
class Run:
    """A run in progress. `run()` goes on from wherever the folder says it stopped.

    `someone` are the clients, if they are not simulated here: those of a federation, or some that attack.
    """

    experiment: Experiment
    folder: RunFolder | None = None
    observer: Observer = field(default=lambda row: None)
    someone: InitVar[Clients | None] = None

    def __post_init__(self, someone: Clients | None) -> None:
        e = self.experiment
        self.clients: Clients = someone or SimulatedClients(e)
        self.model, self.device = self.clients.model, self.clients.device
        self.accountant = e.accountant
        self._check_metric()
        self.ledger = Ledger()
        self.history: list[dict[str, Any]] = []
        self._rows: RoundRows | None = None
        self._new_best: Tensor | None = None
        """The weights of the best round, if they are not saved yet."""
        self.stop_reason = "rounds"
        self._committing = False
        self._begun = False

    @functools.cached_property
    def test(self) -> Records | None:
        return self.clients.seen(self.experiment.test)

    @functools.cached_property
    def holdout(self) -> Records | None:
        return self.clients.seen(self.experiment.holdout)

    def run(self, one_round: Callable[[int], bool] | None = None) -> RunResult:
        """Train until the rounds, the budget or the patience is used up."""
        one_round = one_round or self._one_round
        if not self._begun:
            self.begin()
        started, saved = time.monotonic(), time.monotonic()
        try:
            for number in range(self.state.rounds + 1, self.experiment.rounds + 1):
                if not one_round(number):
                    break
                if time.monotonic() - saved > self.experiment.checkpoint_seconds:
                    self._save()
                    saved = time.monotonic()
        except KeyboardInterrupt:
            if not self._committing:  # else the state is half of one round: the last checkpoint counts
                self._save()
            raise
        self._complete_last_row()
        self._save()
        return self._finish(time.monotonic() - started)

    def begin(self) -> None:
        """Read the journal and the checkpoint, or start anew; refuse a folder that cannot be gone on with."""
        identity = identity_of(self.experiment, self.model) if self.folder else {}
        self.journal = Journal(self.folder, self.clients.environment)
        if self.folder:
            check_identity(self.folder, identity, self.journal.saves)
        restored = first_state(self.experiment, self.clients, self.folder, self.journal)
        self.state = restored.state
        for row in restored.rows:
            self.history.append(row)
            self.ledger.add(row)
        self.clients.recall(self.journal.finished([(row["round"], row["attempt"]) for row in self.history]))
        self._refuse_spent_budget()
        if self.folder:
            self._open_folder(self.folder, identity, restored)
        self._begun = True

    def _open_folder(self, folder: RunFolder, identity: dict[str, Any], restored: Restored) -> None:
        """Everything fits: cut off what will be repeated, and write down what a kill left open."""
        assert self.journal.chain is not None
        keep_front_end(folder, self.experiment.front_end)
        self.journal.chain.open()
        keep_identity(folder, identity, self.journal.saves, self.experiment.rounds)
        self._rows = RoundRows(folder, restored.lines)
        if restored.save is not None:
            if restored.save != self.journal.saves.announced:
                self.journal.saves.announce(restored.save)
            self.journal.saves.confirm()

    def check_budget(self) -> None:
        """Refuse a budget that does not allow a single round, before anything is written."""
        budget, accountant = self.experiment.budget, self.accountant
        if budget is None or accountant is None:
            return
        if not (budget.released_fits(accountant, 1, 1) and budget.participant_fits(accountant, 1)):
            raise PrivacyError(
                "the budget does not allow a single round: raise --epsilon (or --participant-epsilon),"
                " raise --noise-multiplier, or lower --sampling-rate"
            )

    def _refuse_spent_budget(self) -> None:
        finished = self.folder is not None and (self.folder.path / "summary.json").exists()
        next_round = self.state.rounds + 1
        if finished and next_round <= self.experiment.rounds and not self._within_budget(self.plan(next_round)):
            raise PrivacyError(
                f"the privacy budget of {self.path} is spent after round {self.state.rounds}: its results are there;"
                " start a new run with another --out to spend more"
            )

    def _one_round(self, number: int) -> bool:
        """One round; False if it must not be started."""
        plan = self.begin_round(number)
        if plan is None:
            return False
        self.finish_round(plan, self.clients.collect(plan, self.state.weights) if plan.viable else self.nothing())
        return True

    def begin_round(self, number: int) -> RoundPlan | None:
        """The plan of a round, which is charged now; None if the round must not be started."""
        self._round_started = time.perf_counter()
        if self.experiment.patience is not None and self.state.stale >= self.experiment.patience:
            self.stop_reason = "patience"
            return None
        plan = self.plan(number)
        if not self._within_budget(plan):
            self.stop_reason = "budget"
            return None
        if self.accountant is not None:
            self.journal.charge(plan)
        return plan

    def nothing(self) -> Collected:
        """What is collected if nobody is asked."""
        return Collected(empty_sum(self.experiment.scheme, self.clients.code_size, self.device))

    def finish_round(self, plan: RoundPlan, sent: Collected) -> None:
        """Use what the clients sent. The state changes only at the end, in one go."""
        e, state, number = self.experiment, self.state, plan.round
        row: dict[str, Any] = {"round": number, "attempt": plan.attempt, "cohort": len(plan.cohort)}
        weights, rule = self._stepped(plan, sent)
        if not plan.viable:
            row["discarded"] = f"{len(plan.cohort)} clients; sums of {plan.least_cohort} or more carry the noise"
        elif sent.lost:
            row["discarded"] = sent.lost
        newcomers = sum(client not in state.participations for client in plan.cohort.tolist())
        once = [shared_bytes(state.shared)] * newcomers if sent.up and state.shared else []
        traffic = self.ledger.row(
            round=number, up=sent.up, down=sent.down, once=once, secagg=sent.secagg, transport=sent.transport
        )
        row |= traffic | {"seconds": round(time.perf_counter() - self._round_started, 4)}
        if number % e.eval_every == 0 or number == e.rounds:
            with self.clients.clock("evaluate"), products_in(e.precision, self.device):
                row |= self._metrics(weights)
            with self.clients.clock("account"):
                row |= self._epsilons(number, self._busiest(plan))

        self._committing = True
        state.weights, state.rule, state.rounds = weights, rule, number
        state.take_part(plan.cohort)
        self.ledger.add(traffic)
        self._record(row)
        self._committing = False
        self.observer(row)

    def _stepped(self, plan: RoundPlan, sent: Collected) -> tuple[Tensor, dict[str, Tensor]]:
        """(new weights, new rule state). Without privacy, a round in which nobody came changes nothing."""
        e, state = self.experiment, self.state
        if not e.scheme.noise.private and not sent.messages:
            return state.weights, state.rule
        with self.clients.clock("decode"):
            return server_step(
                e.scheme,
                plan,
                sent.total,
                survivors=sent.messages,
                total_weight=sent.weight,
                weights=state.weights,
                state=state.rule,
                stream=release_stream(self.clients.streams, plan),
            )

    def plan(self, number: int) -> RoundPlan:
        e = self.experiment
        cap = e.budget.max_participations if e.budget else None
        exhausted = [] if cap is None else [c for c, count in self.state.participations.items() if count >= cap]
        return plan_round(
            e.scheme,
            e.sampler,
            streams=self.clients.streams,
            round=number,
            attempt=self.journal.attempt_of(number),
            num_clients=self.clients.num_clients,
            exhausted=exhausted,
            max_dropouts=e.max_dropouts,
            max_colluders=e.max_colluders,
            shared=self.state.shared,
        )

    def _within_budget(self, plan: RoundPlan) -> bool:
        budget = self.experiment.budget
        if self.accountant is None or budget is None:
            return True
        charged = self.journal.num_charged + self.journal.would_add(plan.round, plan.attempt)
        most = self._busiest(plan)
        fits = charged <= self._most_rounds or budget.released_fits(self.accountant, charged, most)
        return fits and budget.participant_fits(self.accountant, most)

    def _busiest(self, plan: RoundPlan) -> int:
        """How often the busiest client will have taken part after this round."""
        taken = self.state.participations
        return max([self.state.most_participations, *(taken.get(c, 0) + 1 for c in plan.cohort.tolist())])

    @functools.cached_property
    def _most_rounds(self) -> int:
        """How many rounds the released budget allows, up to those planned: found once."""
        budget, accountant = self.experiment.budget, self.accountant
        assert budget is not None and accountant is not None
        if budget.epsilon is None:
            return self.experiment.rounds
        return largest(lambda rounds: budget.released_fits(accountant, rounds, rounds), self.experiment.rounds)

    def _metrics(self, weights: Tensor) -> dict[str, Any]:
        row: dict[str, Any] = {}
        if self.test:
            whose = None if self.experiment.scheme.private else self.experiment.test_clients
            row |= self.model.evaluate(weights, self.test.inputs, self.test.targets, clients=whose)
        if self.holdout:
            held = self.model.evaluate(weights, self.holdout.inputs, self.holdout.targets)
            row |= {f"holdout_{name}": value for name, value in held.items()}
        return row

    def _epsilons(self, number: int, most: int) -> dict[str, float]:
        if self.accountant is None or self.experiment.budget is None:
            return {}
        charged, method = self.journal.num_released(number), self.experiment.budget.accountant
        return {
            "epsilon": self.accountant.released_epsilon(charged, method, most),
            "participant_epsilon": self.accountant.participant_epsilon(most),
        }

    def _record(self, row: dict[str, Any]) -> None:
        """Note the best round and the progress on the held-out set, then write the row."""
        state = self.state
        if "loss" in row and (state.best is None or self._score(row) > state.best["score"]):
            state.best = {"score": self._score(row)} | {k: row[k] for k in row if k in _BEST}
            self._new_best = state.weights
        if "holdout_loss" in row:
            held = self._score({k.removeprefix("holdout_"): v for k, v in row.items() if k.startswith("holdout_")})
            better = state.best_holdout is None or held > state.best_holdout
            state.stale = 0 if better else state.stale + 1
            state.best_holdout = held if better else state.best_holdout
        self.history.append(row)
        if self._rows:
            self._rows.append(row)

    def _score(self, metrics: dict[str, Any]) -> float:
        """The metric by which the best round is chosen; larger is better, none (training diverged) or NaN is worst."""
        score = metrics.get(self.metric, np.nan)
        return -np.inf if np.isnan(score) else float(-score if self.metric == "loss" else score)

    @functools.cached_property
    def metric(self) -> str:
        """By which the best round is chosen, as it is called in the rows."""
        wanted = self.experiment.best_by.replace("-", "_")
        some = self.experiment.test or self.experiment.holdout
        if wanted == "auto":
            wanted = "loss" if some is None or some.targets.is_floating_point() else "accuracy"
        return wanted

    def _check_metric(self) -> None:
        """Refuse a metric that the records cannot have, before anything is charged."""
        for what, records in (("test", self.experiment.test), ("held-out", self.experiment.holdout)):
            if records is None or self.metric == "loss":
                continue
            classes = 0 if records.targets.is_floating_point() else len(torch.unique(records.targets))
            if classes == 0 or (self.metric != "accuracy" and classes != 2):
                raise ConfigError(
                    f"--best-by {self.experiment.best_by} needs {what} records of"
                    f" {'classes' if self.metric == 'accuracy' else 'two classes'}: use --best-by loss"
                )

    def _save(self) -> None:
        if self.folder and self._rows and self.journal.chain:
            self.journal.chain.check_in_place()  # else this would be written into somebody else's folder
            self.folder.sync()  # the charges must outlive whatever is released
            write_statement(self)
            best = self._new_best if self.folder.keeps_models else None
            model = None if best is None else self._model_file(best)
            save_state(self.folder, self.state, self.journal, self._rows, model)
            self._new_best = None

    def _model_file(self, weights: Tensor) -> bytes:
        parameters = dict(zip(self.model.names, self.model.split(weights), strict=True))
        return weights_bytes(parameters, {"scheme": self.experiment.scheme.name})

    def _complete_last_row(self) -> None:
        """Metrics and ε for a run that stopped between two evaluations."""
        if not self.history or "loss" in self.history[-1] or "epsilon" in self.history[-1]:
            return
        last = self.history[-1]
        more = self._metrics(self.state.weights) | self._epsilons(last["round"], self.state.most_participations)
        last |= more
        if self._rows and more:
            self._rows.complete(last)

    def _finish(self, seconds: float) -> RunResult:
        if self.state.rounds == 0:
            self.check_budget()
            raise PrivacyError("the budget is spent before the first round was finished: start a new run")
        if self.folder:
            self.folder.write("model.safetensors", self._model_file(self.state.weights))
        return outcome_of(self, seconds)

    def exported(self) -> nn.Module:
        """The trained module, from raw records to outputs."""
        head = self.model.export(self.experiment.model, self.state.weights)
        front_end = self.experiment.front_end
        return head if front_end is None else with_head(front_end, head)

    @property
    def path(self) -> Path | None:
        return self.folder.path if self.folder else None


_BEST = ("round", "accuracy", "balanced_accuracy", "auroc", "loss", "epsilon", "participant_epsilon")
