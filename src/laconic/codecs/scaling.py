"""Columns on a common scale, inside the ε: one private sum says how to scale them, and a linear code does it.

A linear model learns fast from columns of mean 0 and spread 1. Mean and spread of a column are facts about the records,
so they come from a noisy sum (`Moments`), which costs a share of ε. It is asked once, before training.

What clients train is not changed by that. With the shift m and the scale s of every column, a record x becomes
x' = s∘(x − m), and a model with the weights w' on (x', c) is one with w = s∘w' and b = c·b' − Σ m_j·w_j on (x, 1). So
with the linear map

    P(w, b) = (s∘(w − b·m), c·b),    Pᵀ(w', b') = (s∘w', c·b' − m·(s∘w')),

the gradient by (w', b') is P of the gradient by (w, b), and a step of w' moves (w, b) by Pᵀ of it. P is a codec
(`Scaled`): vectors are clipped and noised after P, and released weights are for the records as they are.

Scales are such that ‖x'‖² is 1 on average, whatever the table. So one bound fits all: ‖(x', c)‖ is about 1, and a
record's gradient is shorter than that.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from laconic.codecs.base import Codec
from laconic.codecs.queries import Asked, Query
from laconic.data.inputs import Inputs, SparseRows, dense
from laconic.errors import ConfigError, WireError
from laconic.packing import FLOAT32, Encoding
from laconic.parts import non_negative_int, positive, positive_int
from laconic.plan import RoundPlan
from laconic.privacy.accounting.releases import Rounds
from laconic.streams import Stream

SCALING = "scaling"
"""The name of (m, s, c, step) in what clients are told."""
BIAS = 0.25
"""c: the bias takes c² beside the 1 of all columns."""
_SPREAD = 0.5
"""Of a quantity in [−1, 1], before anything is measured: the standard deviation if about 95 % are within."""
_LEAST_SPREAD = 0.05
_LEAST_THERE = 0.2
"""With a smaller part of the records that were declared, a round counts as lost."""


@dataclass(frozen=True, kw_only=True)
class Moments(Query):
    """The first round asks for the mean and the spread of every column, and for the share of each class.

    A record answers with φ = (2x_c − 1, (2x_c − 1)² or x², e_y)/B, a unit with the mean over its records. x_c are the
    first `quantities` columns, which are within [0, 1]; the other columns are 0 or 1. e_y marks the class; for a
    target y that is a quantity it is (1, y). B is at least the largest norm of the vector in front of it, by public
    facts, so ‖φ‖ ≤ 1.

    Args:
        columns: how many columns the records have.
        quantities: how many of them, the first ones, are quantities; the others mark levels, codes or gaps.
        classes: how many; 1 for a quantity within [−1, 1] as the target.
        bound: B.
        rare: columns with a smaller share of ones than this are scaled down, as their noise would outweigh them.
        steepest: the server's steps are shortened by the curvature of the loss, p·(1 − p) for classes with the shares
            p, over this, where that is above 1; see `Scaled`.
        noise_multiplier: σ of this round.

    Examples:
        >>> Moments(columns=7, quantities=2, classes=2, bound=3.0, rare=0.01).cells
        11
    """

    name: ClassVar[str] = "scaling"
    title: ClassVar[str] = "Scaling"

    columns: int
    quantities: int
    classes: int
    bound: float
    rare: float
    steepest: float | None = None

    def __post_init__(self) -> None:
        positive_int(columns=self.columns, classes=self.classes)
        positive(bound=self.bound, rare=self.rare)
        if self.steepest is not None:
            positive(steepest=self.steepest)
        if self.noise_multiplier is not None:
            positive(scaling_noise_multiplier=self.noise_multiplier)

    def rounds(self, after: int) -> Rounds | None:
        return Rounds(after=after, last=after + 1)

    @property
    def cells(self) -> int:
        return self.quantities + self.columns + self._last

    @property
    def _last(self) -> int:
        """The shares of the classes; or the share of all records, and the sum of the targets."""
        return max(2, self.classes)

    @property
    def without(self) -> str:
        return "leave out ⟨scaling⟩"

    def check(self, num_classes: int) -> None:
        if self.classes != num_classes:
            raise ConfigError(
                f"the scaling asks for the shares of {self.classes} classes, and there are {num_classes}"
                " (1: the targets are values)"
            )

    def misfits(self, codec: Codec) -> list[str]:
        if isinstance(codec, Scaled) and (codec.columns, codec.quantities) == (self.columns, self.quantities):
            return []
        return [f"the query Moments is for the codec Scaled with the same columns and quantities: {self.without}"]

    def rows(self, asked: Asked) -> Tensor:
        x = dense(asked.records.inputs).flatten(1).double()
        centred = 2 * x[:, : self.quantities] - 1
        targets = asked.records.targets
        if self.classes == 1:
            values = targets.double().reshape(-1, 1)
            shares = torch.cat([torch.ones_like(values), values], 1)
        else:
            shares = functional.one_hot(targets.long().flatten(), self.classes).double()
        return torch.cat([centred, centred.square(), x[:, self.quantities :].square(), shares], 1) / self.bound

    def found(self, mean: np.ndarray, noise: float) -> dict[str, Any]:
        return {}

    def told(self, mean: np.ndarray, noise: float) -> dict[str, Tensor]:
        """m and s of every column; nothing from a round that was lost.

        Noisy figures are drawn towards what is expected without any. A mean m̂ with the noise variance τ² becomes
        m̂·v/(v + τ²), for quantities whose means spread by v, and a variance likewise. A share f of ones gets the scale
        f^(−1/4)·min(1, f/`rare`)^(1/2): rare columns are lifted, and those that the noise hides are not.
        """
        figures, sd = self._figures(mean, noise)
        if figures is None:
            return {}
        first, squares = figures[: self.quantities], figures[self.quantities : self.quantities + self.columns]
        expected = _SPREAD**2
        means = first * (expected / (expected + sd**2))
        known = 1 / (1 + (2 * sd / expected) ** 2)
        variances = known * (squares[: self.quantities] - means**2) + (1 - known) * expected
        variances = np.maximum(variances, max(_LEAST_SPREAD**2, sd))
        shares = np.clip(squares[self.quantities :], max(sd / 2, 1e-6), 1)
        lifted = shares**-0.25 * np.minimum(1, shares / max(self.rare, 2 * sd)) ** 0.5
        length = math.sqrt(self.quantities + float((lifted**2 * shares).sum()))
        shift = np.concatenate([(means + 1) / 2, np.zeros(len(shares))])
        scale = np.concatenate([2 / np.sqrt(variances), lifted]) / length
        return {SCALING: _told(shift, scale, self._step(figures[-self._last :], sd))}

    def _step(self, last: np.ndarray, sd: float) -> float:
        if self.steepest is None or self.classes == 1:
            return 1.0
        shares = np.maximum(last, max(sd, 1e-4))
        shares = shares / shares.sum()
        return min(1.0, self.steepest / float((shares * (1 - shares)).mean()))

    def start(self, mean: np.ndarray, noise: float, weights: Tensor) -> Tensor:
        """A bias that answers with the shares of the classes, or with the mean of the targets."""
        figures, sd = self._figures(mean, noise)
        if figures is None:
            return weights
        last = figures[-self._last :]
        if self.classes == 1:
            bias = torch.from_numpy(np.clip(last[1:], -1, 1))
        else:
            shares = np.maximum(last, max(sd, 1e-4))  # what the noise hides counts as its size
            logs = torch.from_numpy(np.log(shares / shares.sum()))
            bias = logs[1:] - logs[:1] if len(weights) == self.columns + 1 else logs
        started = weights.clone()
        started[len(weights) - len(bias) :] = bias.to(weights)
        return started

    def _figures(self, mean: np.ndarray, noise: float) -> tuple[np.ndarray | None, float]:
        """The means over all records, and the standard deviation of their noise; none from a round that was lost.

        The number of records was declared, not counted. The shares of the classes sum to the true one's part of it.
        """
        figures, sd = np.asarray(mean, dtype=np.float64) * self.bound, noise * self.bound
        last = figures[-self._last :]
        there = float(last[0] if self.classes == 1 else last.sum())
        if there < max(_LEAST_THERE, 3 * sd * math.sqrt(self._last)):
            return None, sd
        return figures / there, sd / there

    def about(self) -> dict[str, Any]:
        return {
            "bound": self.bound,
            "text": (
                "the first round measures mean and spread of the columns and the shares of the classes, as one noisy"
                " sum; columns are scaled by these figures alone"
            ),
        }


@dataclass(frozen=True, kw_only=True)
class Scaled(Codec):
    """P of the update of one linear layer with a bias: see the module.

    Until other figures are told, they are those that public facts give: quantities within [0, 1] have the mean ½ and
    the spread ¼, and a record has `ones` ones in the other columns.

    Args:
        columns: how many columns the records have.
        quantities: how many of them, the first ones, are quantities within [0, 1].
        ones: how many ones a record has in the others, about.

    Examples:
        >>> Scaled(columns=3, quantities=1, ones=2).code_size(8)
        8
    """

    shared_name: ClassVar[str] = SCALING
    shared_packing: ClassVar[Encoding] = FLOAT32

    columns: int
    quantities: int
    ones: int

    def __post_init__(self) -> None:
        positive_int(columns=self.columns)
        non_negative_int(quantities=self.quantities, ones=self.ones)
        if self.quantities > self.columns:
            raise ConfigError(f"{self.quantities} of {self.columns} columns cannot be quantities")

    def code_size(self, size: int) -> int:
        return size

    def shared_size(self, size: int) -> int:
        return 2 * self.columns + 2

    def check_shapes(self, shapes: Sequence[Sequence[int]]) -> None:
        outputs = shapes[-1][0] if len(shapes) == 2 and len(shapes[-1]) == 1 else 0
        if [list(shape) for shape in shapes] != [[outputs, self.columns], [outputs]]:
            told = ", ".join("×".join(map(str, shape)) for shape in shapes)
            raise ConfigError(
                f"⟨scaling⟩ is for a model of one linear layer with a bias on {self.columns} columns, and this one has"
                f" weights of the shapes {told}: use ⟨model⟩ logistic, or leave out ⟨scaling⟩"
            )

    def check_shared(self, values: Tensor, size: int) -> None:
        """Columns that are no quantities have no shift: with one, sparse records would be written out in full."""
        sound = bool(values.isfinite().all()) and bool((values[self.columns :] > 0).all())
        if not sound or bool(values[self.quantities : self.columns].any()):
            raise WireError(
                "the scaling that the server tells is not one: scales must be above 0, and only quantities are shifted"
            )

    def encode(self, update: Tensor, plan: RoundPlan, streams: Sequence[Stream]) -> Tensor:
        weights, bias = self._split(update)
        shift, scale, constant, _ = self._figures(plan, update)
        return torch.cat([((weights - bias[..., None] * shift) * scale).flatten(-2), constant * bias], -1)

    def decode(self, code: Tensor, size: int, plan: RoundPlan) -> Tensor:
        """Pᵀ of the mean code; shorter where the loss is known to be steep."""
        weights, bias = self._split(code)
        shift, scale, constant, step = self._figures(plan, code)
        weights = weights * scale
        return step * torch.cat([weights.flatten(-2), constant * bias - (weights * shift).sum(-1)], -1)

    def of_inputs(self, inputs: Inputs, plan: RoundPlan) -> Inputs:
        """(x', c) of every record."""
        shift, scale, constant, _ = self._figures(plan, torch.zeros(0))
        if not isinstance(inputs, SparseRows):
            table = dense(inputs).flatten(1)
            last = table.new_full((len(table), 1), float(constant))
            return torch.cat([(table - shift.to(table)) * scale.to(table), last], 1)
        import scipy.sparse

        # Columns with a shift have no zeros afterwards. They are the first ones.
        shifted = int(shift.nonzero().max()) + 1 if bool(shift.any()) else 0
        rows = inputs.to_scipy()
        first = (rows[:, :shifted].toarray() - shift[:shifted].numpy()) * scale[:shifted].numpy()
        others = rows[:, shifted:].multiply(scale[shifted:].numpy()[None, :])
        constants = np.full((len(inputs), 1), float(constant), dtype=np.float32)
        parts = [scipy.sparse.csr_array(first), others, scipy.sparse.csr_array(constants)]
        return SparseRows.from_scipy(scipy.sparse.hstack(parts, format="csr"))

    def _split(self, update: Tensor) -> tuple[Tensor, Tensor]:
        outputs = update.shape[-1] // (self.columns + 1)
        weights, bias = update[..., : outputs * self.columns], update[..., outputs * self.columns :]
        return weights.reshape(*update.shape[:-1], outputs, self.columns), bias

    def _figures(self, plan: RoundPlan, like: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """(m, s, c, the factor of a step)."""
        told = plan.shared.get(SCALING)
        values = (self._usual() if told is None else told).to(like)
        return values[: self.columns], values[self.columns : -2], values[-2], values[-1]

    def _usual(self) -> Tensor:
        ones = self.columns - self.quantities
        length = math.sqrt(max(1, self.quantities + min(self.ones, ones)))
        shift = np.concatenate([np.full(self.quantities, 0.5), np.zeros(ones)])
        scale = np.concatenate([np.full(self.quantities, 2 / _SPREAD), np.ones(ones)]) / length
        return _told(shift, scale, 1.0)


def _told(shift: np.ndarray, scale: np.ndarray, step: float) -> Tensor:
    return torch.from_numpy(np.concatenate([shift, scale, [BIAS, step]])).float()


def largest_answer(*, quantities: int, ones: int, classes: int) -> float:
    """B of `Moments`: a record has so many quantities and at most so many ones in the other columns."""
    return math.sqrt(2 * quantities + ones + (2 if classes == 1 else 1))
