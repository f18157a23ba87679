"""The last model on test records: how sure its figures are, whether it is better than chance, and for whom it is good.

No ε covers what is said here. It is said of the test records alone, and without the noise that training has.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from laconic.confidence import (
    LEVEL,
    Figure,
    brier,
    by_luck,
    calibration_intercept,
    calibration_slope,
    proportion,
)
from laconic.data.federated import Subgroup
from laconic.metrics import METRICS

_ALPHA = (1 - LEVEL) / 2
_FLAGGED = (0.01, 0.05, 0.1, 0.2, 0.5)
"""Shares of the records that are flagged, for which a threshold is looked up."""
_LEAST, _MOST_GROUPS = 20, 12
"""Records of a subgroup that is judged by itself, and how many of them there are at most; the others go together."""


@dataclass(frozen=True, kw_only=True)
class Answers:
    """What the model says about the test records, and what is true.

    `outputs` are (records, classes), or (records,) for a single logit or a value. `shifts` are added to the logits of
    the classes before they are taken for probabilities (`Prior.shifts`); none: they do not stand for probabilities. An
    error of 1 is `unit` in the user's unit.
    """

    outputs: np.ndarray
    targets: np.ndarray
    names: Sequence[str] = ()
    shifts: Sequence[float] = ()
    unit: float = 1.0
    subgroups: Mapping[str, Subgroup] = field(default_factory=dict)

    @property
    def usable(self) -> bool:
        some = len(self.targets) > 0 and self.targets.ndim == 1 and self.outputs.ndim <= 2
        if not some or not np.isfinite(self.outputs).all():
            return False
        if self.quantity:
            return self.outputs.ndim == 1
        return bool(self.targets.min() >= 0 and self.targets.max() < self.num_classes)

    @property
    def quantity(self) -> bool:
        return self.targets.dtype.kind == "f"

    @property
    def num_classes(self) -> int:
        return 2 if self.outputs.ndim == 1 else self.outputs.shape[1]

    @property
    def logits(self) -> np.ndarray:
        """(records, classes)."""
        if self.outputs.ndim == 2:
            return self.outputs
        return np.stack([np.zeros_like(self.outputs), self.outputs], axis=1)

    @property
    def scores(self) -> np.ndarray:
        """Of two classes, how much speaks for the second one; of a quantity, its value."""
        return self.outputs if self.outputs.ndim == 1 else self.outputs[:, 1] - self.outputs[:, 0]

    @property
    def log_odds(self) -> np.ndarray:
        """Of the second of two classes, as `laconic predict` states them."""
        return self.scores + (self.shifts[1] - self.shifts[0])

    def some(self, rows: np.ndarray) -> Answers:
        return Answers(
            outputs=self.outputs[rows], targets=self.targets[rows], names=self.names, shifts=self.shifts, unit=self.unit
        )

    def named(self, label: int) -> str:
        return self.names[label] if label < len(self.names) else str(label)


def judged(answers: Answers) -> dict[str, Any] | None:
    """For the summary: figures with their intervals, and in words whether they are better than chance."""
    if not answers.usable:
        return None
    better, words = against_chance(answers)
    return {
        "records": len(answers.targets),
        "level": LEVEL,
        "figures": {name: list(figure) for name, figure in figures(answers).items()},
        "better": better,
        "words": words,
    }


def in_detail(answers: Answers) -> dict[str, Any]:
    """For the report: calibration, thresholds and subgroups."""
    if not answers.usable:
        return {}
    found: dict[str, Any] = {}
    if not answers.quantity and answers.num_classes == 2 and len(answers.shifts):
        found["probabilities"] = _probabilities(answers)
    if not answers.quantity and answers.num_classes == 2 and len(np.unique(answers.targets)) == 2:
        found["thresholds"] = thresholds(answers)
    if answers.subgroups:
        found["subgroups"] = {column: list(_by_group(answers, group)) for column, group in answers.subgroups.items()}
    return found


def figures(answers: Answers) -> dict[str, Figure]:
    """Every registered metric that has an interval, and accuracy."""
    targets = answers.targets
    found: dict[str, Figure] = {}
    if not answers.quantity:
        right = proportion(int((answers.logits.argmax(1) == targets).sum()), len(targets))
        found |= {} if right is None else {"accuracy": right}
        if answers.num_classes != 2 or len(np.unique(targets)) != 2:
            return found
    for name, metric in METRICS.items():
        compute = metric.of_values if answers.quantity else metric.of_scores
        if compute is None or metric.interval is None or (answers.quantity and not np.ptp(targets)):
            continue
        unit = answers.unit if metric.in_units else 1.0
        value, (low, high) = compute(answers.scores, targets), metric.interval(answers.scores, targets)
        found[name] = Figure(unit * value, unit * low, unit * high)
    return found


def against_chance(answers: Answers) -> tuple[bool | None, str]:
    """(whether the model is better than what needs no model, the same in words); None where it cannot be told.

    Two classes: the interval of the AUROC lies above 0.5, or decisions beat the most frequent class. Several classes:
    the latter. A quantity: the interval of R² lies above 0. Decisions are compared where they differ from always
    saying the most frequent class, by the exact sign test (McNemar), one-sided at half of what the intervals leave out.
    """
    known, count = figures(answers), f"{len(answers.targets):,} test records"
    if answers.quantity:
        if "r2" not in known:
            return None, f"all {count} have the same value: nothing tells how good the model is"
        r2 = known["r2"]
        said = f"R² {_with_ends(r2)} on {count}"
        if r2.low > 0:
            return True, f"better than always saying the mean: {said}"
        return False, f"not better than always saying the mean: {said}, where the mean has 0"
    counts = np.bincount(answers.targets, minlength=answers.num_classes)
    most, share = int(counts.argmax()), float(counts.max() / counts.sum())
    if share == 1:
        return None, f"all {count} are of one class: nothing tells how good the model is"
    said_class = answers.logits.argmax(1)
    other = said_class != most
    better = int((other & (said_class == answers.targets)).sum())
    worse = int((other & (answers.targets == most)).sum())
    decides = by_luck(better, worse) < _ALPHA
    always = f"always saying {_answer(answers, most)}"
    accuracy = f"accuracy {_with_ends(known['accuracy'])} against {share:.3f}"
    if "auroc" not in known:
        said = f"{always}: {accuracy}, on {count}"
        return decides, f"better than {said}" if decides else f"not better than {said}"
    area = known["auroc"]
    ranks = f"AUROC {_with_ends(area)}"
    if area.low > 0.5 and decides:
        return True, f"better than chance and than {always}: {ranks}, {accuracy}, on {count}"
    if area.low > 0.5:
        return True, (
            f"better than chance at telling who is more likely ({ranks} on {count}), but its yes or no is not right"
            f" more often than {always} ({accuracy}): choose another threshold"
        )
    if decides:
        return True, f"better than {always}: {accuracy}, on {count}; {ranks}, where chance has 0.5"
    worse_than = "worse than chance" if area.high < 0.5 else "not better than chance"
    return False, f"not better than {always}, and {worse_than}: {accuracy}, {ranks} where chance has 0.5, on {count}"


def _answer(answers: Answers, label: int) -> str:
    """'no' and 'yes' of an outcome; else the name of the class."""
    name = answers.named(label)
    if answers.num_classes == 2 and answers.named(0) == f"not {answers.named(1)}":
        return "yes" if label else "no"
    return f"'{name}'"


def _with_ends(figure: Figure) -> str:
    return f"{figure.value:.3f} ({figure.low:.3f} to {figure.high:.3f})"


def _probabilities(answers: Answers) -> dict[str, Any]:
    """How far the stated probabilities of the second class can be believed."""
    log_odds, targets = answers.log_odds, answers.targets
    stated = 1 / (1 + np.exp(-np.clip(log_odds, -700, 700)))
    share = float(targets.mean())
    slope, intercept = calibration_slope(log_odds, targets), calibration_intercept(log_odds, targets)
    return {
        "brier": list(brier(stated, targets)),
        "brier_of_the_share": share * (1 - share),
        "slope": None if slope is None else list(slope),
        "intercept": None if intercept is None else list(intercept),
        "mean": float(stated.mean()),
        "true": share,
    }


def thresholds(answers: Answers) -> list[dict[str, Any]]:
    """Sensitivity, specificity and predictive values where the probability is above ½, and where the 1, 5, 10, 20 and
    50 % most likely records are flagged. Records of one score are flagged together."""
    scores, targets = answers.log_odds if len(answers.shifts) else answers.scores, answers.targets
    wanted = [0.0] if len(answers.shifts) else []
    order = np.sort(scores)[::-1]
    wanted += [float(order[max(1, round(share * len(order))) - 1]) for share in _FLAGGED]
    rows = []
    for threshold in dict.fromkeys(wanted):
        flagged = scores >= threshold
        hits, alarms = int((flagged & (targets == 1)).sum()), int(flagged.sum())
        ill, well = int((targets == 1).sum()), int((targets == 0).sum())
        rows.append(
            {
                "probability": float(1 / (1 + np.exp(-np.clip(threshold, -700, 700)))) if len(answers.shifts) else None,
                "flagged": alarms / len(targets),
                "sensitivity": _listed(proportion(hits, ill)),
                "specificity": _listed(proportion(well - (alarms - hits), well)),
                "ppv": _listed(proportion(hits, alarms)),
                "npv": _listed(proportion(well - (alarms - hits), len(targets) - alarms)),
            }
        )
    return sorted(rows, key=lambda row: -row["flagged"])


def _listed(figure: Figure | None) -> list[float] | None:
    return None if figure is None else list(figure)


def _by_group(answers: Answers, group: Subgroup) -> Iterator[dict[str, Any]]:
    """The groups that are large enough, the largest first; all others together."""
    counts = np.bincount(group.numbers[group.numbers >= 0], minlength=len(group.names))
    chosen = [int(n) for n in np.argsort(-counts, kind="stable")[:_MOST_GROUPS] if counts[n] >= _LEAST]
    chosen = sorted(chosen) if group.ordered else chosen
    parts = [(group.names[number], group.numbers == number) for number in chosen]
    rest = ~np.isin(group.numbers, chosen)
    if rest.any():
        parts.append(("all others, and no value", rest))
    for name, rows in parts:
        some = answers.some(rows)
        row: dict[str, Any] = {"group": name, "records": len(some.targets)}
        if len(some.targets) >= _LEAST:
            row["figures"] = {metric: list(figure) for metric, figure in figures(some).items()}
            if not answers.quantity and answers.num_classes == 2:
                row["true"] = float(some.targets.mean())
                if len(some.shifts):
                    row["mean"] = float((1 / (1 + np.exp(-np.clip(some.log_odds, -700, 700)))).mean())
        yield row
