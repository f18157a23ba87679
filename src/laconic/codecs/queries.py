"""Queries: in some rounds clients answer a question about their own records instead of training.

An answer is a vector of norm 1 at most. It is bounded, noised and summed as any other code, and the server reads what
it wants to know off the noisy mean of the answers. So a new kind of private release is one class: in which rounds what
is asked, how a client answers, and how the mean is read. Accounting, calibration, statement, offer and report follow
from the rounds and the bound. `Evaluations` are the query that comes with Laconic.

*Evaluations.* Clients measure the weights on records that they never train on, and send cells. A cell is a share of a
client's held-out records: those classified rightly and wrongly, or, for the AUROC, those of each class with each range
of scores. Shares are at least 0 and add up to 1, so ‖cells‖₂ ≤ 1 for any weights and records:
that is the sensitivity. The server reads the metrics off the noisy mean of the cells. All clients count alike.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from laconic.codecs.base import Codec
from laconic.errors import ConfigError
from laconic.metrics import CLIENTS
from laconic.parts import Part, non_negative_int, one_of, positive
from laconic.plan import RoundPlan
from laconic.privacy.accounting.releases import EVALUATIONS, Rounds
from laconic.streams import Stream

if TYPE_CHECKING:
    from laconic.data.population import Records


class Asked(NamedTuple):
    """What a client may look at when it answers. None of it leaves the client but the answer.

    Args:
        records: those that the client trains on, or those that it set aside for queries with `held_out`.
        outputs: of the model with the weights of the round, for these records.
        loss: per record, from outputs and targets.
    """

    records: Records
    outputs: Callable[[], Tensor]
    loss: Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True, kw_only=True)
class Query(Part):
    """What clients are asked in some rounds instead of training.

    Add one to a scheme with `replace(scheme, queries=(…,))`. A subclass has a field `noise_multiplier`, which is None
    where the noise is that of training.

    Examples:
        >>> from dataclasses import replace
        >>> scheme = laconic.schemes.fl_std_dp(clip_norm=0.5, noise_multiplier=1.0, local_lr=0.1, local_steps=5)
        >>> replace(scheme, evaluations=laconic.Evaluations(every=5)).asked[0].name
        'evaluations'
    """

    name: ClassVar[str]
    """The phase's name, in plural: "evaluations"."""
    title: ClassVar[str]
    """The heading of its lines in reports."""
    held_out: ClassVar[bool] = False
    """Whether it is answered from records that a client sets aside and never trains on."""

    noise_multiplier: float | None = None

    def rounds(self, after: int) -> Rounds | None:
        """In which rounds it is asked, after so many votes; None: never."""
        raise NotImplementedError

    @property
    def cells(self) -> int:
        """How many values an answer has."""
        raise NotImplementedError

    @property
    def without(self) -> str:
        """How to do without it: the end of an error."""
        return f"leave out the query {type(self).__name__}"

    @property
    def idle_noise(self) -> str:
        """What is wrong where it has noise of its own and the scheme has none."""
        return f"there is no noise, so that of the query {type(self).__name__} means nothing: use a scheme in -dp"

    def check(self, num_classes: int) -> None:
        """Refuse a model of so many classes, if the query means nothing for it. 1: the targets are values."""

    def misfits(self, codec: Codec) -> list[str]:
        """Why it means nothing beside this codec of training."""
        return []

    @property
    def by_record(self) -> bool:
        """Whether single records answer, so that records or patients inside clients can be protected."""
        return type(self).rows is not Query.rows

    def rows(self, asked: Asked) -> Tensor:
        """What every record answers, (records, cells). A unit, or a client, answers with the mean of its records."""
        raise NotImplementedError

    def answer(self, asked: Asked) -> Tensor:
        """One client's answer, (cells,). A norm above 1 is clipped to 1."""
        return self.rows(asked).mean(0).float()

    def found(self, mean: np.ndarray, noise: float) -> dict[str, Any]:
        """What the mean answer says, for the round's row, by names that `laconic.metrics` knows.

        `noise` is the standard deviation of each value, a public number.
        """
        raise NotImplementedError

    def told(self, mean: np.ndarray, noise: float) -> dict[str, Tensor]:
        """What clients are told from now on, read off the noisy mean; nothing if it changes nothing."""
        return {}

    def start(self, mean: np.ndarray, noise: float, weights: Tensor) -> Tensor:
        """The weights with which training goes on."""
        return weights

    def about(self) -> dict[str, Any]:
        """What a statement says of it besides rounds, noise and cost, with a `text` that begins with its subject."""
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class Answers(Codec):
    """The code of a query's rounds: the answer, as it is. Weights travel down as for the codec of training."""

    query: Query
    trained: Codec

    def code_size(self, size: int) -> int:
        return self.query.cells

    def downlink_size(self, size: int) -> int:
        return self.trained.downlink_size(size)

    def changing(self, size: int, plan: RoundPlan) -> Tensor | None:
        return self.trained.changing(size, plan)

    def encode(self, update: Tensor, plan: RoundPlan, streams: Sequence[Stream]) -> Tensor:
        return update

    def decode(self, code: Tensor, size: int, plan: RoundPlan) -> Tensor:
        """Answers move no weight."""
        return code.new_zeros(size)


METRICS = ("accuracy", "auroc", "loss")
_FURTHEST = 6.0
"""Scores are log-odds; what is beyond ±6 is in the outermost ranges."""
_CLEAR = 3.0
"""How many standard deviations of its noise the number of records in a sum must have for a metric to be told."""


@dataclass(frozen=True, kw_only=True)
class Evaluations(Query):
    """Every so many rounds one is an evaluation; 0: none ever is.

    Args:
        every: rounds with a number divisible by it are evaluations.
        metric: 'accuracy', 'auroc' (two classes; with accuracy and balanced accuracy) or 'loss'.
        bins: for the AUROC, ranges of scores.
        largest_loss: where the loss of a record is cut off.
        noise_multiplier: σ of the evaluations; None: that of training.

    Examples:
        >>> from dataclasses import replace
        >>> scheme = laconic.schemes.fl_std_dp(clip_norm=0.5, noise_multiplier=1.0, local_lr=0.1, local_steps=5)
        >>> measured = replace(scheme, evaluations=laconic.Evaluations(every=5, metric="auroc"))
        >>> measured.evaluates(10), measured.num_evaluations(20), measured.evaluations.cells
        (True, 4, 32)
    """

    name: ClassVar[str] = EVALUATIONS
    title: ClassVar[str] = "Evaluations"
    held_out: ClassVar[bool] = True

    every: int = 0
    metric: str = "accuracy"
    bins: int = 16
    largest_loss: float = 5.0
    noise_multiplier: float | None = None

    def __post_init__(self) -> None:
        non_negative_int(evaluate_every=self.every)
        if self.every == 1:
            raise ConfigError("⟨evaluate-every⟩ 1 leaves no round to train in: use 2 or more")
        one_of(METRICS, evaluate_metric=self.metric)
        positive(evaluate_largest_loss=self.largest_loss)
        if isinstance(self.bins, bool) or not isinstance(self.bins, int) or not (2 <= self.bins <= 1024):
            raise ConfigError(f"evaluate_bins must be a whole number from 2 to 1024, not {self.bins!r}")
        if self.bins % 2:
            raise ConfigError(f"evaluate_bins must be even, so that one edge is where classes change, not {self.bins}")
        if self.noise_multiplier is not None:
            positive(evaluation_noise_multiplier=self.noise_multiplier)

    def rounds(self, after: int) -> Rounds | None:
        return Rounds(after=after, every=self.every) if self.every else None

    @property
    def without(self) -> str:
        return "leave out ⟨evaluate-every⟩"

    @property
    def idle_noise(self) -> str:
        return "there is no noise, so ⟨evaluation-noise-multiplier⟩ means nothing: use a scheme in -dp"

    @property
    def cells(self) -> int:
        """How many values a client sends."""
        return 2 * self.bins if self.metric == "auroc" else 2

    def check(self, num_classes: int) -> None:
        """Refuse a metric that so many classes do not have. 1: the targets are values."""
        if self.every and self.metric != "loss" and num_classes == 1:
            raise ConfigError(f"⟨evaluate-metric⟩ {self.metric} takes classes, and the targets are values: use loss")
        if self.every and self.metric == "auroc" and num_classes > 2:
            raise ConfigError(
                f"⟨evaluate-metric⟩ auroc takes two classes, and there are {num_classes}: use accuracy or loss"
            )

    def answer(self, asked: Asked) -> Tensor:
        return self.measure(asked.outputs(), asked.records.targets, asked.loss)

    def rows(self, asked: Asked) -> Tensor:
        """The cell of every record, or of its loss the two shares."""
        targets, outputs = asked.records.targets, asked.outputs()
        if self.metric == "loss":
            losses = asked.loss(outputs, targets).double().nan_to_num(self.largest_loss, posinf=self.largest_loss)
            shares = losses.clamp(0, self.largest_loss) / self.largest_loss
            return torch.stack([shares, 1 - shares], 1)
        return functional.one_hot(self._cell_numbers(outputs, targets), self.cells).double()

    def found(self, mean: np.ndarray, noise: float) -> dict[str, Any]:
        metrics = self.metrics(mean, noise)
        said = self.metric if metrics else f"{self.metric}: hidden by the noise"
        return {"evaluation": said} | {CLIENTS + name: value for name, value in metrics.items()}

    def about(self) -> dict[str, Any]:
        return {"metric": self.metric, "every": self.every}

    def measure(self, outputs: Tensor, targets: Tensor, loss: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
        """The cells of one client's records, (cells,); zeros if it has none."""
        counts = torch.zeros(self.cells, dtype=torch.float64)
        if not len(targets):
            return counts.float()
        if self.metric == "loss":
            losses = loss(outputs, targets).double().nan_to_num(self.largest_loss, posinf=self.largest_loss)
            mean = float((losses.clamp(0, self.largest_loss) / self.largest_loss).mean())
            return torch.tensor([mean, 1 - mean])
        counts += torch.bincount(self._cell_numbers(outputs, targets).cpu(), minlength=self.cells)[: self.cells]
        return (counts / len(targets)).float()

    def _cell_numbers(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """In which cell each record counts."""
        if targets.is_floating_point() or targets.ndim != 1:
            raise ConfigError(f"⟨evaluate-metric⟩ {self.metric} takes classes, and these targets are values: use loss")
        if self.metric == "accuracy":
            guessed = outputs.argmax(1) if outputs.ndim == 2 else (outputs > 0).to(torch.int64)
            return (guessed != targets).to(torch.int64)
        scores = outputs[:, 1] - outputs[:, 0] if outputs.ndim == 2 else outputs
        place = (scores.double().nan_to_num(0.0).clamp(-_FURTHEST, _FURTHEST) / _FURTHEST + 1) / 2 * self.bins
        return targets.clamp(0, 1) * self.bins + place.floor().clamp(0, self.bins - 1).to(torch.int64)

    def metrics(self, cells: np.ndarray, noise: float = 0.0) -> dict[str, float]:
        """What the mean cells say, and the noise of the chosen metric; nothing if noise hides how many were measured.

        `noise` is the standard deviation of each cell. That of a metric f is ‖∇f‖₂ times as much, to first order.
        """
        cells = np.asarray(cells, dtype=np.float64)
        classes = cells.reshape(2, -1).sum(1) if self.metric == "auroc" else cells.sum(keepdims=True)
        # The spread of the sum of so many cells.
        if not (classes > max(_CLEAR * noise * np.sqrt(len(cells) / len(classes)), 1e-9)).all():
            return {}
        found = self._metrics(cells)
        if noise:
            step = 1e-4
            slopes = [
                (self._metrics(cells + step * unit)[self.metric] - self._metrics(cells - step * unit)[self.metric])
                / (2 * step)
                for unit in np.eye(len(cells))
            ]
            found["noise"] = float(noise * np.linalg.norm(slopes))
        return found

    def _metrics(self, cells: np.ndarray) -> dict[str, float]:
        if self.metric != "auroc":
            share = float(cells[0] / cells.sum())
            return {self.metric: share * self.largest_loss if self.metric == "loss" else share}
        negative, positive_ = cells.reshape(2, -1)
        below = np.concatenate([[0.0], np.cumsum(negative)[:-1]])
        pairs = float(positive_ @ (below + negative / 2))
        half = self.bins // 2
        rates = [negative[:half].sum() / negative.sum(), positive_[half:].sum() / positive_.sum()]
        return {
            "auroc": pairs / float(negative.sum() * positive_.sum()),
            "accuracy": float((negative[:half].sum() + positive_[half:].sum()) / cells.sum()),
            "balanced_accuracy": float(np.mean(rates)),
        }
