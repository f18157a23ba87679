"""How a client trains: which optimiser, how many steps, on which batches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from laconic.errors import ConfigError
from laconic.parts import Part, decided, one_of, positive, positive_int
from laconic.privacy.accounting.record_sampling import RecordSampler
from laconic.privacy.accounting.releases import EACH, RECORD, Release
from laconic.privacy.mechanism.clip import check_norm
from laconic.privacy.mechanism.record_noise import NOISES, record_delta_slack, record_grid

if TYPE_CHECKING:
    from laconic.guard.contract import Steps

OPTIMIZERS = ("sgd", "adam")
BALANCES = ("none", "downsample", "oversample", "weights")


@dataclass(frozen=True, kw_only=True)
class LocalTraining(Part):
    """Base: an optimiser, from fresh state in every round, and its step size."""

    local_lr: float
    optimizer: str = "sgd"

    def __post_init__(self) -> None:
        positive(local_lr=self.local_lr)
        one_of(OPTIMIZERS, optimizer=self.optimizer)

    @property
    def private(self) -> bool:
        """Whether what comes out protects every record of the client."""
        return False

    @property
    def record_bound(self) -> float | None:
        """What the gradient of a record is clipped to; None if it is not."""
        return None

    @property
    def about_noise(self) -> str:
        """What private training draws: for the privacy statement."""
        return ""

    @property
    def added_by(self) -> dict[str, str]:
        """Who adds the noise of private training, and what a sum is divided by: for the privacy statement."""
        return {}

    def release(self, **about: Any) -> Release:
        """What a round releases of a record of a client that trains so; `about` is what else a `Release` says."""
        raise NotImplementedError

    def steps_on_grid(self, size: int) -> Steps | None:
        """The private steps of a round as a contract states them, for a model of so many weights; None without any."""
        return None

    def delta_slack(self, size: int, rounds: int) -> float:
        """What the noise sampler's finite precision adds to δ over so many rounds, for a model of so many weights."""
        return 0.0


@dataclass(frozen=True, kw_only=True)
class LocalSGD(LocalTraining):
    """T_gd steps on batches of |B| records (thesis Alg. 2).

    Give `local_steps`, or `epochs` for T_gd = epochs · ⌈|D_k| / |B|⌉ per client. Without `batch_size` a batch is
    the client's whole data set. `balance` says what is done about a rare class (see `train/batches.py`): 'none',
    'downsample', 'oversample' or 'weights'.

    Args:
        local_lr: η, the step size.
        optimizer: 'sgd' or 'adam', from fresh state in every round.
        local_steps: steps of a client in a round.
        epochs: passes over the client's records, instead of steps.
        batch_size: records of a step.
        balance: what is done about a rare class.

    Examples:
        >>> from laconic.train.local import LocalSGD
        >>> import numpy as np
        >>> LocalSGD(local_lr=0.1, epochs=2, batch_size=10).steps_of(np.array([5, 25])).tolist()
        [2, 6]
    """

    local_steps: int | None = None
    epochs: int | None = None
    batch_size: int | None = None
    balance: str = "none"

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of(BALANCES, balance=self.balance)
        if (self.local_steps is None) == (self.epochs is None):
            raise ConfigError("give either local_steps or epochs (--local-steps or --epochs), not both and not neither")
        for name in ("local_steps", "epochs", "batch_size"):
            if getattr(self, name) is not None:
                positive_int(**{name: getattr(self, name)})

    def to_dict(self) -> dict[str, Any]:
        """Without the key 'balance' where nothing is balanced: such schemes keep the fingerprints they always had."""
        data = super().to_dict()
        if self.balance == "none":
            del data["balance"]
        return data

    def batch_of(self, sizes: np.ndarray) -> np.ndarray:
        """The batch size of clients that hold so many records: |B|, but never more than there are."""
        return sizes if self.batch_size is None else np.minimum(sizes, self.batch_size)

    def steps_of(self, sizes: np.ndarray) -> np.ndarray:
        """T_gd of clients that hold so many records."""
        if self.local_steps is not None:
            return np.full(len(sizes), self.local_steps, dtype=np.int64)
        assert self.epochs is not None
        steps: np.ndarray = self.epochs * -(-sizes // self.batch_of(sizes))
        return steps


@dataclass(frozen=True, kw_only=True)
class LocalDPSGD(LocalTraining):
    """T_gd private steps (CHIL'21 Alg. 6): every record's gradient is clipped, and their sum noised.

    w ← w − η/d · (Σ_r ∇f(r; w) / max(1, ‖∇f(r; w)‖₂/S) + G(0, (σ·S)²·I)) over the records r that `records` draws; the
    divisor d is theirs, too. With another optimiser the same noisy gradient goes into that. A σ of None is open. With
    `noise="integer"` the noise is drawn on a grid (`privacy/mechanism/record_noise`), as federations need it.

    Args:
        local_lr: η, the step size.
        optimizer: 'sgd' or 'adam'.
        local_steps: steps of a client in a round.
        clip_norm: S, the bound on one record's gradient.
        noise_multiplier: σ of a step.
        records: which records a step draws, and what it divides by.
        noise: 'continuous' (float32, as in the papers) or 'integer'.

    Examples:
        >>> from laconic.privacy.accounting.record_sampling import PoissonRecords
        >>> from laconic.train.local import LocalDPSGD
        >>> records = PoissonRecords(record_rate=0.1, batch_size=10)
        >>> LocalDPSGD(local_lr=0.1, clip_norm=1.0, noise_multiplier=1.0, records=records).private
        True

    References:
        CHIL'21 Alg. 6; Abadi et al. (CCS 2016).
    """

    local_steps: int = 1
    clip_norm: float
    noise_multiplier: float | None
    records: RecordSampler
    noise: str = "continuous"

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of(NOISES, noise=self.noise)
        positive_int(local_steps=self.local_steps)
        check_norm(self.clip_norm)
        if self.noise_multiplier is not None:
            positive(noise_multiplier=self.noise_multiplier)

    def to_dict(self) -> dict[str, Any]:
        """Without the key 'noise' where it is continuous: such schemes keep the fingerprints they always had."""
        data = super().to_dict()
        if self.noise == "continuous":
            del data["noise"]
        return data

    @property
    def sigma(self) -> float:
        return decided(self.noise_multiplier)

    @property
    def private(self) -> bool:
        return True

    @property
    def record_bound(self) -> float | None:
        return self.clip_norm

    @property
    def about_noise(self) -> str:
        if self.noise == "integer":
            return (
                "the noise of every local step is drawn on integers; what rounding does to the gradients, computed in"
                " float32 and added up in float64, is not accounted for"
            )
        return "the noise is float32, not drawn on integers: its low-order bits are not accounted for"

    @property
    def added_by(self) -> dict[str, str]:
        return {
            "noise_added_by": "every client, in full, in every local step",
            "denominator": "of a step a public constant (as published: the batch's size), of a round the clients in it",
        }

    def release(self, **about: Any) -> Release:
        return Release(
            unit=RECORD,
            added_by=EACH,
            noise_multiplier=self.sigma,
            coins=self.records.record_rate,
            steps=self.local_steps,
            caveat=self.records.caveat,
            **about,
        )

    def steps_on_grid(self, size: int) -> Steps | None:
        from laconic.guard.contract import Steps

        if self.noise != "integer":
            return None
        grid = record_grid(size, self.clip_norm, self.sigma)
        return Steps(
            size=size,
            rate=self.records.record_rate,
            count=self.local_steps,
            clip_norm=self.clip_norm,
            noise_multiplier=self.sigma,
            units=grid.units,
            scale=grid.scale,
        )

    def delta_slack(self, size: int, rounds: int) -> float:
        if self.noise == "continuous":
            return 0.0
        return record_delta_slack(size, rounds * self.local_steps, self.sigma)
