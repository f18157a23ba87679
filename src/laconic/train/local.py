"""How a client trains: which optimiser, how many steps, on which batches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from laconic.errors import ConfigError
from laconic.parts import Part, one_of, positive, positive_int

OPTIMIZERS = ("sgd", "adam")
BALANCES = ("none", "downsample", "oversample", "weights")


@dataclass(frozen=True, kw_only=True)
class LocalSGD(Part):
    """T_gd steps on batches of |B| records (thesis Alg. 2), from fresh optimiser state in every round.

    Give `local_steps`, or `epochs` for T_gd = epochs · ⌈|D_k| / |B|⌉ per client. Without `batch_size` a batch is
    the client's whole data set. `balance` says what is done about a rare class (see `train/balance.py`): 'none',
    'downsample', 'oversample' or 'weights'.
    """

    local_lr: float
    local_steps: int | None = None
    epochs: int | None = None
    batch_size: int | None = None
    optimizer: str = "sgd"
    balance: str = "none"

    def __post_init__(self) -> None:
        positive(local_lr=self.local_lr)
        one_of(OPTIMIZERS, optimizer=self.optimizer)
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
