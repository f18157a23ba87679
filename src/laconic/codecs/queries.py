"""Queries: in some rounds clients answer a question about their own records instead of training.

An answer is a vector of norm 1 at most. It is bounded, noised and summed as any other code, and the server reads what
it wants to know off the noisy mean of the answers. So a new kind of private release is one class: in which rounds what
is asked, how a client answers, and how the mean is read. Accounting, calibration, statement, offer and report follow
from the rounds and the bound. `Evaluations` are the query that comes with Laconic.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
from torch import Tensor

from laconic.codecs.base import Codec
from laconic.parts import Part
from laconic.plan import RoundPlan
from laconic.privacy.accounting.releases import Rounds
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

    def answer(self, asked: Asked) -> Tensor:
        """One client's answer, (cells,). A norm above 1 is clipped to 1."""
        raise NotImplementedError

    def found(self, mean: np.ndarray, noise: float) -> dict[str, Any]:
        """What the mean answer says, for the round's row, by names that `laconic.metrics` knows.

        `noise` is the standard deviation of each value, a public number.
        """
        raise NotImplementedError

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
