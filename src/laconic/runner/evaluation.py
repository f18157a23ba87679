"""How good the weights of a round are: metrics, the one that decides, and how the model does by class."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from laconic.adversary.attack import Attack
from laconic.clients.base import Clients
from laconic.confidence import wilson
from laconic.data.population import Records
from laconic.errors import ConfigError
from laconic.experiment.experiment import Experiment
from laconic.experiment.prior import Prior
from laconic.metrics import CLIENTS, HELD_OUT, METRICS, TEST, columns
from laconic.privacy.released import Row
from laconic.runner.judged import Answers
from laconic.store.checkpoint import RunState
from laconic.train.engines.engine import products_in
from laconic.train.losses import binary_cross_entropy, cross_entropy

CHANCE = 0.015
"""A best accuracy no farther than this above the share of the largest class: nothing was learnt."""


class Confusion:
    """Counts of (class, predicted class), batch by batch."""

    def __init__(self, num_classes: int) -> None:
        self._counts: Tensor | int = 0
        self._num_classes = num_classes

    def add(self, outputs: Tensor, targets: Tensor) -> None:
        predicted = outputs.argmax(1) if outputs.ndim == 2 else (outputs > 0).to(torch.int64)
        pairs = targets * self._num_classes + predicted
        self._counts = self._counts + torch.bincount(pairs, minlength=self._num_classes**2)

    @property
    def shares(self) -> list[list[float | None]]:
        """Of each class, the share that is taken for each; None for a class without records."""
        if isinstance(self._counts, int):
            return []
        counts = self._counts.reshape(self._num_classes, -1).double()
        found = (counts / counts.sum(1, keepdim=True)).tolist()
        return [[None if share != share else share for share in row] for row in found]

    def metrics(self, attack: Attack) -> dict[str, Any]:
        """The accuracy of every class; of the attacked one; and of the attack, the share taken for its target."""
        shares = self.shares
        if not shares:
            return {}
        found: dict[str, Any] = {"class_accuracies": [row[label] for label, row in enumerate(shares)]}
        if attack.backdoor is not None:
            source, target = attack.backdoor
            found |= {"class_accuracy": shares[source][source], "attack_accuracy": shares[source][target]}
        return found


def majority_rate(targets: Tensor) -> float:
    """The accuracy of always saying the same: the share of the largest class."""
    return float(torch.bincount(targets).max()) / len(targets)


def last_rounds(history: list[Row], count: int = 10) -> dict[str, Any]:
    """Minimum and mean of each metric over the last rounds that have it: the best round hides what oscillates."""
    found: dict[str, Any] = {}
    for name in ("accuracy", "class_accuracy", "attack_accuracy"):
        values = [row[name] for row in history if row.get(name) is not None][-count:]
        if values:
            found[name] = {"min": min(values), "mean": sum(values) / len(values), "rounds": len(values)}
    return found


MOST_CLASSES = 100
"""A confusion matrix of more classes is not kept: it could not be read."""
_ROC_POINTS = 101
_BINS = 10


def classified_figures(
    outputs: np.ndarray, targets: np.ndarray, *, names: Sequence[str] = (), shifts: Sequence[float] | None = ()
) -> dict[str, Any] | None:
    """Counts and curves of outputs (records, classes), or (records,) for two classes; None where there is nothing.

    With `shifts` added the outputs stand for probabilities; None: they do not.
    """
    if targets.dtype.kind not in "iu" or targets.ndim != 1 or outputs.ndim > 2 or not np.isfinite(outputs).all():
        return None
    if outputs.ndim == 1:
        outputs = np.stack([np.zeros_like(outputs), outputs], axis=1)
    classes = outputs.shape[1]
    if not len(targets) or targets.min() < 0 or targets.max() >= classes:
        return None
    predicted = outputs.argmax(1)
    found: dict[str, Any] = {
        "records": len(targets),
        "classes": [names[c] if c < len(names) else str(c) for c in range(classes)],
    }
    if classes <= MOST_CLASSES:
        pairs = np.bincount(targets * classes + predicted, minlength=classes**2)
        found["confusion"] = pairs.reshape(classes, classes).tolist()
    if classes == 2 and len(np.unique(targets)) == 2:
        found["roc"] = _roc(outputs[:, 1] - outputs[:, 0], targets)
    if shifts is not None:
        found["calibration"] = _calibration(outputs + np.asarray(shifts or 0.0), targets, predicted)
    return found


def _roc(scores: np.ndarray, targets: np.ndarray) -> dict[str, list[float]]:
    """(false positive rate, true positive rate) for falling thresholds; records of one score go together."""
    order = np.argsort(-scores, kind="stable")
    ends = np.append(np.flatnonzero(np.diff(scores[order])), len(scores) - 1)
    hits = np.cumsum(targets[order])[ends]
    true = np.append(0.0, hits / hits[-1])
    false = np.append(0.0, (ends + 1 - hits) / (ends[-1] + 1 - hits[-1]))
    if len(true) > _ROC_POINTS:
        wanted = np.linspace(0, 2, _ROC_POINTS)
        at = np.unique(np.minimum(np.searchsorted(true + false, wanted), len(true) - 1))
        true, false = true[at], false[at]
    return {"false_positive_rate": _rounded(false), "true_positive_rate": _rounded(true)}


def _calibration(outputs: np.ndarray, targets: np.ndarray, predicted: np.ndarray) -> dict[str, Any]:
    """Of records with about the same probability, the mean of it and how often it came true.

    Of two classes it is that of the second one, otherwise that of the predicted class. The error is the mean distance
    of the two over all records (expected calibration error). The ten bins have about equally many records: with bins of
    equal width those of a rare outcome would all be in one.
    """
    shifted = np.exp(outputs - outputs.max(1, keepdims=True))
    probabilities = shifted / shifted.sum(1, keepdims=True)
    if outputs.shape[1] == 2:
        stated, true, of = probabilities[:, 1], targets == 1, "second class"
    else:
        stated, true, of = probabilities.max(1), predicted == targets, "predicted class"
    bins = np.searchsorted(np.percentile(stated, np.linspace(0, 100, _BINS + 1)[1:-1]), stated)
    rows = []
    for number in np.unique(bins).tolist():
        inside = bins == number
        mean, share = float(stated[inside].mean()), float(true[inside].mean())
        low, high = wilson(share, int(inside.sum()))
        ends = {"low": round(low, 4), "high": round(high, 4)}
        rows.append({"records": int(inside.sum()), "stated": round(mean, 4), "true": round(share, 4)} | ends)
    error = sum(row["records"] * abs(row["stated"] - row["true"]) for row in rows) / len(targets)
    return {"of": of, "bins": rows, "error": round(error, 4)}


def _rounded(values: np.ndarray) -> list[float]:
    return [round(value, 4) for value in values.tolist()]


class Evaluation:
    """Evaluates weights on the server's records. It sets a state's best round and its count of early stopping."""

    def __init__(self, experiment: Experiment, clients: Clients) -> None:
        self._experiment, self._clients = experiment, clients
        self._check_metric()

    @functools.cached_property
    def _test(self) -> Records | None:
        return self._clients.seen(self._experiment.test)

    @functools.cached_property
    def _holdout(self) -> Records | None:
        return self._clients.seen(self._experiment.holdout)

    @functools.cached_property
    def metric(self) -> str:
        """The metric by which the best round is chosen, as rows call it."""
        wanted = self._experiment.best_by.replace("-", "_")
        some = self._experiment.test or self._experiment.holdout
        if wanted == "auto":
            wanted = "loss" if some is None or some.targets.is_floating_point() else "accuracy"
        return wanted

    def _check_metric(self) -> None:
        """Refuse a metric that the records cannot have, before anything is charged."""
        for what, records in (("test", self._experiment.test), ("held-out", self._experiment.holdout)):
            if records is None or self.metric == "loss":
                continue
            values = records.targets.is_floating_point()
            needed = (
                "quantities"
                if METRICS[self.metric].of_values
                else "classes"
                if self.metric == "accuracy"
                else "two classes"
            )
            classes = 0 if values else len(torch.unique(records.targets))
            fits = {"quantities": values, "classes": classes > 0, "two classes": classes == 2}
            if not fits[needed]:
                raise ConfigError(
                    f"⟨best-by⟩ {self._experiment.best_by} needs {what} records of {needed}: use ⟨best-by⟩ loss"
                )

    def metrics(self, weights: Tensor) -> dict[str, Any]:
        """Those of the test records, and of the held-out ones with `holdout_` before their names."""
        row: Row = {}
        model, test, holdout = self._clients.model, self._test, self._holdout
        with products_in(self._experiment.precision, self._clients.device):
            if test:
                whose = None if self._experiment.scheme.private else self._experiment.test_clients
                row |= self._tested(weights, test, whose)
            if holdout:
                held = model.evaluate(weights, holdout.inputs, holdout.targets)
                row |= {f"holdout_{name}": value for name, value in held.items()}
        unit = self._experiment.target_unit
        return row | {
            name: row[name] * unit
            for name, metric in columns(TEST, HELD_OUT).items()
            if metric.in_units and name in row
        }

    def _tested(self, weights: Tensor, test: Records, whose: np.ndarray | None) -> dict[str, Any]:
        """Of an attacked run by class, too. Classes that honest clients do not have count in none of the others."""
        model, attack = self._clients.model, self._experiment.attack
        if attack is None or test.targets.is_floating_point():
            seen = OneClass()
            row = model.evaluate(weights, test.inputs, test.targets, clients=whose, watch=seen.add)
            return row | seen.found(test.targets)
        confusion = Confusion(model.num_classes)
        counted, whose = self.counted, None if whose is None else whose[self._held.cpu().numpy()]
        row = model.evaluate(weights, counted.inputs, counted.targets, clients=whose, watch=confusion.add)
        others = self._others
        if len(others.targets):
            model.evaluate(weights, others.inputs, others.targets, watch=confusion.add)
        return row | confusion.metrics(attack)

    @functools.cached_property
    def _held(self) -> Tensor:
        """Which test records are of classes that honest clients have."""
        attack, test = self._experiment.attack, self._test
        assert attack is not None and test is not None
        dropped = torch.tensor(attack.dropped(malicious=False), dtype=test.targets.dtype, device=test.targets.device)
        return ~torch.isin(test.targets, dropped)

    @functools.cached_property
    def counted(self) -> Records:
        """The test records on which an attacked run's accuracy is measured."""
        assert self._test is not None
        return self._test if bool(self._held.all()) else self._test.some(torch.nonzero(self._held)[:, 0])

    @functools.cached_property
    def _others(self) -> Records:
        assert self._test is not None
        return self._test.some(torch.nonzero(~self._held)[:, 0])

    def answers(self, weights: Tensor) -> Answers | None:
        """What the model says about the test records; None where there are none."""
        e, test, model = self._experiment, self._test, self._clients.model
        if test is None:
            return None
        outputs: list[Tensor] = []
        with products_in(e.precision, self._clients.device):
            outputs += [part.double().cpu() for part in model.outputs(weights, test.inputs)]
        states_odds = model.loss in (cross_entropy, binary_cross_entropy) and not test.targets.is_floating_point()
        return Answers(
            outputs=torch.cat(outputs).numpy(),
            targets=test.targets.cpu().numpy(),
            names=e.class_names,
            shifts=Prior.of(e.scheme).shifts(model.num_classes) if states_odds else (),
            unit=e.target_unit,
            subgroups=e.subgroups,
        )

    def note(self, row: Row, state: RunState) -> bool:
        """Write the best round, and the progress that patience looks at, into the state; True if it is the best round.

        A vote leaves the weights as they are, so that they do not improve says nothing: patience begins after it.
        """
        best = "loss" in row and (state.best is None or self._better(row, state.best))
        if best:
            state.best = {"score": self._score(row)} | {k: row[k] for k in row if k in (*_BEST, *columns(TEST))}
        held = self._progress(row)
        if held is not None:
            better = state.best_holdout is None or held > state.best_holdout
            state.stale = 0 if better else state.stale + 1
            state.best_holdout = held if better else state.best_holdout
        return best

    def _progress(self, row: Row) -> float | None:
        """The figure that early stopping compares: the clients' own, if they measure one, else the held-out one.

        What clients measured was released, so to stop on it costs nothing more. Where noise hides it, it says nothing.
        """
        evaluations = self._experiment.scheme.evaluations
        if evaluations.every:
            found = row.get(CLIENTS + evaluations.metric)
            return None if found is None else float(-found if METRICS[evaluations.metric].smaller_is_better else found)
        if "holdout_loss" not in row or "vote" in row:
            return None
        return self._score({k.removeprefix("holdout_"): v for k, v in row.items() if k.startswith("holdout_")})

    def _better(self, row: Row, best: Row) -> bool:
        """Whether a round beats the best one so far.

        A model that takes everything for one class has the same accuracy in every round, often a high one. Such rounds
        are compared by their loss, and by accuracy they lose to any other.
        """
        if self.metric in ("accuracy", "balanced_accuracy") and ONE_CLASS in row and ONE_CLASS in best:
            return bool(row["loss"] < best["loss"])
        if self.metric == "accuracy" and (ONE_CLASS in row) != (ONE_CLASS in best):
            return ONE_CLASS in best
        return self._score(row) > float(best["score"])

    def _score(self, metrics: dict[str, Any]) -> float:
        """Larger is better; none (training diverged) or NaN is worst."""
        score = metrics.get(self.metric, np.nan)
        return -np.inf if np.isnan(score) else float(-score if METRICS[self.metric].smaller_is_better else score)


class OneClass:
    """Sees outputs, and says whether all of them name the same class."""

    def __init__(self) -> None:
        self._ends: list[Tensor] = []

    def add(self, outputs: Tensor, targets: Tensor) -> None:
        if targets.is_floating_point() or outputs.ndim > 2 or not len(outputs):
            return
        classes = outputs.argmax(1) if outputs.ndim == 2 else (outputs > 0).to(torch.int64)
        self._ends.append(torch.stack([classes.min(), classes.max()]))

    def found(self, targets: Tensor) -> dict[str, int]:
        """The class that all are taken for, if the records are of several; nothing else."""
        if not self._ends:
            return {}
        low, high = (int(end) for end in (torch.stack(self._ends)[:, 0].min(), torch.stack(self._ends)[:, 1].max()))
        return {ONE_CLASS: low} if low == high and bool((targets != targets[0]).any()) else {}


ONE_CLASS = "one_class"
_BEST = ("round", ONE_CLASS, "class_accuracies", "epsilon", "participant_epsilon")
"""What the best round's row keeps besides its metrics."""
