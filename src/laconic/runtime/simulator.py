"""The simulator: all clients of a federation on one machine, one round after another."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from laconic.data.population import Records
from laconic.errors import ConfigError, PrivacyError, RunFolderError
from laconic.measure.ledger import Ledger
from laconic.packing import integers
from laconic.plan import RoundPlan
from laconic.privacy.accountant import largest
from laconic.round import (
    client_messages,
    client_weight,
    downlink_encoding,
    noise_stream,
    plan_round,
    release_stream,
    server_step,
    uplink_encoding,
)
from laconic.runtime import wire
from laconic.runtime.checkpoint import RunState, load_state, save_state, save_weights
from laconic.runtime.devices import choose_device, environment_of
from laconic.runtime.experiment import Experiment
from laconic.runtime.folder import RunFolder
from laconic.runtime.identity import check_identity, identity_of
from laconic.runtime.journal import Journal
from laconic.runtime.outcome import RunResult, outcome_of, write_statement
from laconic.streams import Streams
from laconic.train.engine import CohortAtOnce, Task, choose_engine
from laconic.train.flat import FlatModel
from laconic.train.importance import accumulated_gradient

Observer = Callable[[dict[str, Any]], None]
"""Called with every round's row."""


@dataclass
class Simulation:
    """A run in progress. `run()` goes on from wherever the folder says it stopped."""

    experiment: Experiment
    folder: RunFolder | None = None
    observer: Observer = field(default=lambda row: None)

    def __post_init__(self) -> None:
        e = self.experiment
        self.device = choose_device(e.device)
        first = e.population.records(0)
        example = (first.inputs[:2].cpu(), first.targets[:2].cpu())
        self.model = FlatModel(e.model, example=example, loss=e.loss).to(self.device)
        for records in (first, e.test, e.holdout, e.public):
            if records is not None:
                self.model.check_classes(records.targets)
        self.engine = choose_engine(e.engine, self.model, self.device, example, e.chunk)
        self.population = e.population.to(self.device)
        self.streams = Streams(e.seed)
        self.accountant = e.accountant
        self.code_size = e.scheme.codec.code_size(self.model.size)
        self.down_size = e.scheme.codec.downlink_size(self.model.size)
        chunk = self.engine.chunk if isinstance(self.engine, CohortAtOnce) else None
        self.environment = environment_of(self.device, self.engine.name, chunk)
        self.test = e.test and Records(*(t.to(self.device) for t in e.test))
        self.holdout = e.holdout and Records(*(t.to(self.device) for t in e.holdout))
        self.ledger = Ledger()
        self.history: list[dict[str, Any]] = []
        self.stop_reason = "rounds"
        self._mask: tuple[Tensor | None, Tensor | None] = (None, None)
        self._committing = False

    def run(self) -> RunResult:
        """Train until the rounds, the budget or the patience is used up."""
        if self.folder:
            check_identity(self.folder, identity_of(self.experiment, self.model))
        self.journal = Journal(self.folder, self.environment)
        self.state = self._restored() or self._fresh()
        self._refuse_spent_budget()
        started, saved = time.monotonic(), time.monotonic()
        try:
            for number in range(self.state.rounds + 1, self.experiment.rounds + 1):
                if not self._one_round(number):
                    break
                if time.monotonic() - saved > self.experiment.checkpoint_seconds:
                    self._save()
                    saved = time.monotonic()
        except KeyboardInterrupt:
            if not self._committing:  # else the state is half of one round: the last checkpoint counts
                self._save()
            raise
        self._save()
        return self._finish(time.monotonic() - started)

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
        if finished and next_round <= self.experiment.rounds and not self._within_budget(self._plan(next_round)):
            raise PrivacyError(
                f"the privacy budget of {self.path} is spent after round {self.state.rounds}: its results are there;"
                " start a new run with another --out to spend more"
            )

    def _one_round(self, number: int) -> bool:
        """One round; False if it must not be started. The state changes only at the end, in one go."""
        started = time.perf_counter()
        e, state = self.experiment, self.state
        if e.patience is not None and state.stale >= e.patience:
            self.stop_reason = "patience"
            return False
        plan = self._plan(number)
        if not self._within_budget(plan):
            self.stop_reason = "budget"
            return False
        if self.accountant is not None:
            self.journal.charge(plan)
        row: dict[str, Any] = {"round": number, "attempt": plan.attempt, "cohort": len(plan.cohort)}
        weights, rule, up, down = self._trained(plan)
        if not plan.viable:
            row["discarded"] = f"{len(plan.cohort)} clients, {plan.least_cohort} are needed to carry the noise"
        newcomers = sum(client not in state.participations for client in plan.cohort.tolist())
        once = [self._shared_bytes()] * newcomers if up and state.shared else []
        traffic = self.ledger.row(round=number, up=up, down=down, once=once)
        row |= traffic | {"seconds": round(time.perf_counter() - started, 4)}
        most = max([state.most_participations, *(state.participations.get(c, 0) + 1 for c in plan.cohort.tolist())])
        if number % e.eval_every == 0 or number == e.rounds:
            row |= self._metrics(weights) | self._epsilons(number, most)

        self._committing = True
        state.weights, state.rule, state.rounds = weights, rule, number
        state.take_part(plan.cohort)
        self.ledger.add(traffic)
        self._record(row)
        self._committing = False
        self.observer(row)
        return True

    def _trained(self, plan: RoundPlan) -> tuple[Tensor, dict[str, Tensor], list[int], list[int]]:
        """(new weights, new rule state, bytes of each message up, and down)."""
        e, state = self.experiment, self.state
        if not plan.viable and not e.scheme.private:
            return state.weights, state.rule, [], []
        total, total_weight = torch.zeros(self.code_size, device=self.device), 0.0
        up: list[int] = []
        down: list[int] = []
        if plan.viable:
            total, total_weight, up, down = self._collect(plan)
        weights, rule = server_step(
            e.scheme,
            plan,
            total,
            survivors=len(up) if not e.scheme.pooled else 1,
            total_weight=total_weight,
            weights=state.weights,
            state=state.rule,
            stream=release_stream(self.streams, plan),
        )
        return weights, rule, up, down

    def _plan(self, number: int) -> RoundPlan:
        e = self.experiment
        cap = e.budget.max_participations if e.budget else None
        exhausted = [] if cap is None else [c for c, count in self.state.participations.items() if count >= cap]
        return plan_round(
            e.scheme,
            e.sampler,
            streams=self.streams,
            round=number,
            attempt=self.journal.attempt_of(number),
            num_clients=self.population.num_clients,
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
        taken = self.state.participations
        most = max([taken.get(c, 0) + 1 for c in plan.cohort.tolist()] + [self.state.most_participations])
        fits = charged <= self._most_rounds or budget.released_fits(self.accountant, charged, most)
        return fits and budget.participant_fits(self.accountant, most)

    @functools.cached_property
    def _most_rounds(self) -> int:
        """How many rounds the released budget allows, up to those planned: found once, since ε is slow to compute."""
        budget, accountant = self.experiment.budget, self.accountant
        assert budget is not None and accountant is not None
        if budget.epsilon is None:
            return self.experiment.rounds
        return largest(lambda rounds: budget.released_fits(accountant, rounds, rounds), self.experiment.rounds)

    def first_codes(self, number: int) -> Iterator[Tensor]:
        """The codes that the cohort of a round would send from the initial weights: for choosing a threshold."""
        self.journal = Journal(None, self.environment)
        self.state = self._fresh()
        plan = self._plan(number)
        for _, codes, _ in self._codes(plan):
            yield codes

    def _codes(self, plan: RoundPlan) -> Iterator[tuple[np.ndarray, Tensor, list[float]]]:
        """(clients, their codes, how much each counts), chunk by chunk."""
        e = self.experiment
        task = Task(
            train=e.scheme.train,
            weights=self.state.weights,
            population=self.population,
            clients=plan.cohort,
            streams=self.streams,
            path=("batches", plan.round, plan.attempt),
            trained=self._trained_mask(plan),
        )
        for chunk in self.engine.updates(task):
            noise = [noise_stream(self.streams, plan, int(c)) for c in chunk.clients]
            codes = client_messages(e.scheme, plan, chunk.updates, streams=noise)
            yield chunk.clients, codes, [client_weight(e.scheme, int(size)) for size in chunk.num_records]

    def _collect(self, plan: RoundPlan) -> tuple[Tensor, float, list[int], list[int]]:
        """Train the cohort and add up its messages; (sum, weight in it, bytes up, bytes down)."""
        scheme = self.experiment.scheme
        up_size = wire.message_size(self.code_size, uplink_encoding(scheme, self.code_size, plan))
        down_size = wire.message_size(self.down_size, downlink_encoding(scheme))
        total, total_weight = torch.zeros(self.code_size, device=self.device), 0.0
        up: list[int] = []
        down: list[int] = []
        for clients, codes, counts in self._codes(plan):
            if not scheme.pooled:
                if not up:
                    self._check_counted(plan, int(clients[0]), codes[0], counts[0])
                up += [up_size] * len(counts)
                down += [down_size] * len(counts)
            total += torch.tensor(counts, device=self.device) @ codes
            total_weight += sum(counts)
        return total, total_weight, up, down

    def _check_counted(self, plan: RoundPlan, client: int, code: Tensor, weight: float) -> None:
        """Serialise one message of each direction for real: the ledger's count must be its length."""
        scheme, down = self.experiment.scheme, self.state.weights[: self.down_size]
        up_as, down_as = uplink_encoding(scheme, self.code_size, plan), downlink_encoding(scheme)
        for kind, values, encoding in (("code", code, up_as), ("weights", down, down_as)):
            message = wire.Message(kind, plan.round, plan.attempt, client, weight, plan.fingerprint, values)
            assert len(wire.encode(message, encoding)) == wire.message_size(values.numel(), encoding)

    def _shared_bytes(self) -> int:
        """What a client is told once: the kept coordinates, as integers of 32 bits."""
        return sum(wire.message_size(values.numel(), integers(32)) for values in self.state.shared.values())

    def _trained_mask(self, plan: RoundPlan) -> Tensor | None:
        """A 0/1 mask of the weights that move; kept while the support stays the same."""
        support = self.experiment.scheme.codec.support(self.model.size, plan)
        if support is None:
            return None
        if self._mask[0] is not support:
            mask = torch.zeros(self.model.size, device=self.device)
            mask[support.to(self.device)] = 1
            self._mask = (support, mask)
        return self._mask[1]

    def _metrics(self, weights: Tensor) -> dict[str, Any]:
        row: dict[str, Any] = {}
        if self.test:
            row |= self.model.evaluate(weights, self.test.inputs, self.test.targets)
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
        if "loss" in row and (state.best is None or _score(row) > state.best["score"]):
            state.best = {"score": _score(row)} | {k: row[k] for k in row if k in _BEST}
            if self.folder:
                self._write_weights("best.safetensors")
        if "holdout_loss" in row:
            held = _score({k.removeprefix("holdout_"): v for k, v in row.items() if k.startswith("holdout_")})
            better = state.best_holdout is None or held > state.best_holdout
            state.stale = 0 if better else state.stale + 1
            state.best_holdout = held if better else state.best_holdout
        self.history.append(row)
        if self.folder:
            self.folder.append("rounds.jsonl", row)

    def _fresh(self) -> RunState:
        e = self.experiment
        rule = e.scheme.rule.init(self.model.size, self.code_size, self.device)
        run_seed = self.streams.key("public") & (2**63 - 1)
        shared = e.scheme.codec.shared(self.model.size, run_seed, self._importance)
        state = RunState(weights=self.model.initial.clone(), rule=rule, shared=shared)
        if self.folder:
            self.folder.replace_rows("rounds.jsonl", [])
        self._count_participations(state)
        return state

    def _importance(self, steps: int) -> Tensor:
        e = self.experiment
        if e.public is None:
            raise ConfigError(
                f"{e.scheme.name} chooses its weights with public data: give --public-dataset NAME,"
                " or --public-records N to set some training records aside"
            )
        return accumulated_gradient(self.model, e.scheme.train, e.public, steps)

    def _count_participations(self, state: RunState) -> None:
        """From the journal, so that no resume counts one twice or loses one."""
        if self.accountant is not None:
            state.participations = {}
            for cohort in self.journal.released(state.rounds):
                state.take_part(cohort)

    def _restored(self) -> RunState | None:
        if self.folder is None:
            return None
        state = load_state(self.folder, self.model.size, self.device)
        if state is None:
            return None
        rows = [row for row in self.folder.rows("rounds.jsonl") if row["round"] <= state.rounds]
        if len(rows) != state.rounds:
            raise RunFolderError(
                f"{self.folder.path}/rounds.jsonl has {len(rows)} rows, but the checkpoint is of round {state.rounds}:"
                " it was edited or damaged; start a new run"
            )
        self.folder.replace_rows("rounds.jsonl", rows)
        for row in rows:
            self.history.append(row)
            self.ledger.add(row)
        if self.accountant is not None and not self.journal.covers(state.rounds):
            raise RunFolderError(
                f"{self.folder.path}/charges.jsonl lacks charges of finished rounds: it was edited or damaged;"
                " restore it or start a new run"
            )
        self._count_participations(state)
        return state

    def _save(self) -> None:
        if self.folder:
            self.folder.sync()
            write_statement(self)
            save_state(self.folder, self.state)

    def _write_weights(self, name: str) -> None:
        assert self.folder is not None
        parameters = dict(zip(self.model.names, self.model.split(self.state.weights), strict=True))
        save_weights(self.folder, name, parameters, {"scheme": self.experiment.scheme.name})

    def _finish(self, seconds: float) -> RunResult:
        if self.state.rounds == 0:
            self.check_budget()
            raise PrivacyError("the budget is spent before the first round was finished: start a new run")
        if self.folder:
            self._write_weights("model.safetensors")
        last = self.history[-1]
        if "loss" not in last and "epsilon" not in last:  # stopped between two evaluations
            most = self.state.most_participations
            last |= self._metrics(self.state.weights) | self._epsilons(last["round"], most)
            if self.folder:
                self.folder.replace_rows("rounds.jsonl", self.history)
        return outcome_of(self, seconds)

    def exported(self) -> nn.Module:
        return self.model.export(self.experiment.model, self.state.weights)

    @property
    def path(self) -> Path | None:
        return self.folder.path if self.folder else None


_BEST = ("round", "accuracy", "loss", "epsilon", "participant_epsilon")


def _score(metrics: dict[str, float]) -> float:
    """Accuracy where there is one, else the negative loss; larger is better, NaN is worst."""
    score = metrics.get("accuracy", -metrics["loss"])
    return -np.inf if np.isnan(score) else score
