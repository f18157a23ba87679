"""Noisy gradient descent on a linear model in plain torch: the mechanism of `fl-std-dp` with `--unit record`.

Noise is continuous, and of the same μ as that of the run that `auto` makes. Settings are drawn from ranges that contain
what is published for such models, and what `auto` can choose.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np
import torch
from scipy.stats import rankdata
from torch import Tensor
from torch.nn import functional

from benchmarks.auto.tables import Table


@dataclass(frozen=True)
class Setting:
    """One way to train. `clip` is in units of the records' norm, `reach` is η·T/(1 − ρ) in units of 1/norm²."""

    scale: str
    lift: float
    clip: float
    rounds: int
    reach: float
    momentum: float
    averaged: float


def settings(count: int, seed: int) -> list[Setting]:
    """So many, drawn at random."""
    rng = np.random.default_rng(seed)
    return [
        Setting(
            scale=str(rng.choice(["range", "measured"])),
            lift=float(rng.choice([0.0, 0.25])),
            clip=float(rng.choice([0.1, 0.3, 0.7, 1.0, 3.0])),
            rounds=int(rng.choice([10, 20, 40, 80])),
            reach=float(10 ** rng.uniform(1, 5)),
            momentum=float(rng.choice([0.0, 0.5, 0.9])),
            averaged=float(rng.choice([0.0, 0.3])),
        )
        for _ in range(count)
    ]


def score(scores: np.ndarray, targets: np.ndarray, classes: int) -> float:
    """AUROC of two classes, accuracy of many, R² of a quantity."""
    if not np.isfinite(scores).all():
        return 0.0
    if classes == 1:
        return float(1 - ((scores[:, 0] - targets) ** 2).mean() / targets.var())
    if classes > 2:
        return float((scores.argmax(1) == targets).mean())
    ranks, positives = rankdata(scores[:, 0]), int(targets.sum())
    return float(
        (ranks[targets == 1].sum() - positives * (positives + 1) / 2) / (positives * (len(targets) - positives))
    )


def tried(table: Table, setting: Setting, mu: float, seed: int) -> float:
    """The result on the test records, with one draw of the noise."""
    rng = np.random.default_rng([seed, 7])
    share = 0.1 if setting.scale == "measured" else 0.0
    shift, scale = _scaling(table, setting, mu * np.sqrt(share), rng)
    inputs, tested = ((on_device(x) - shift) * scale for x in (table.inputs, table.test_inputs))
    norm = float((inputs.square().sum(1).mean() + 1).sqrt())
    inputs = _with_one(inputs / norm, 1 / norm)
    weights = _descended(inputs, table, setting, mu * np.sqrt(1 - share), seed)
    return score((_with_one(tested / norm, 1 / norm) @ weights).cpu().numpy(), table.test_targets, table.classes)


@functools.lru_cache(maxsize=4)
def _kept(address: int, shape: tuple[int, ...]) -> list[Tensor]:
    return []


def on_device(values: np.ndarray) -> Tensor:
    """The same on a GPU if there is one; the last few tables stay there."""
    kept = _kept(id(values), values.shape)
    if not kept:
        kept.append(torch.from_numpy(values).to("cuda" if torch.cuda.is_available() else "cpu"))
    return kept[0]


def _with_one(inputs: Tensor, one: float) -> Tensor:
    return torch.cat([inputs, inputs.new_full((len(inputs), 1), one)], 1)


def _scaling(table: Table, setting: Setting, mu: float, rng: np.random.Generator) -> tuple[Tensor, Tensor]:
    """Shift and scale of every column: by ranges, or by a noisy sum."""
    columns, first = table.inputs.shape[1], table.quantities
    shift, scale = np.zeros(columns), np.ones(columns)
    shift[:first], scale[:first] = 0.5, 4.0
    inputs = on_device(table.inputs)
    if setting.scale == "measured":
        bound = np.sqrt(2 * first + table.ones + 1)
        noise = bound / (mu * len(table.inputs))
        means = inputs[:, :first].mean(0).cpu().numpy() + rng.normal(0, noise, first)
        squares = inputs.square().mean(0).cpu().numpy() + rng.normal(0, noise, columns)
        shift[:first] = means
        scale[:first] = 1 / np.sqrt(np.clip(squares[:first] - means**2, max(0.0025, noise), None))
        scale[first:] = np.clip(squares[first:], max(noise, 1e-3), 1) ** -setting.lift
    return torch.from_numpy(shift).to(inputs), torch.from_numpy(scale).to(inputs)


def _descended(inputs: Tensor, table: Table, setting: Setting, mu: float, seed: int) -> Tensor:
    count, outputs = len(inputs), table.classes if table.classes > 2 else 1
    generator = torch.Generator(inputs.device).manual_seed(seed)
    if table.classes > 2:
        wanted = functional.one_hot(torch.from_numpy(table.targets).long(), table.classes).to(inputs)
    else:
        wanted = torch.from_numpy(table.targets)[:, None].to(inputs)
    norms = inputs.norm(dim=1, keepdim=True)
    weights = inputs.new_zeros(inputs.shape[1], outputs)
    velocity, total, summed = torch.zeros_like(weights), torch.zeros_like(weights), 0
    step = setting.reach * (1 - setting.momentum) / setting.rounds
    std = float(np.sqrt(setting.rounds) / mu * setting.clip)
    last = max(1, round(setting.averaged * setting.rounds))
    for number in range(setting.rounds):
        found = inputs @ weights
        if table.classes == 1:
            errors = 2 * (found - wanted)
        elif table.classes == 2:
            errors = found.sigmoid() - wanted
        else:
            errors = found.softmax(1) - wanted
        lengths = errors.norm(dim=1, keepdim=True) * norms
        errors *= (setting.clip / lengths.clamp(min=1e-9)).clamp(max=1)
        noise = torch.randn(weights.shape, generator=generator, device=weights.device) * std
        velocity = setting.momentum * velocity + (inputs.T @ errors + noise) / count
        weights = weights - step * velocity
        if number >= setting.rounds - last:
            total, summed = total + weights, summed + 1
    return total / summed
