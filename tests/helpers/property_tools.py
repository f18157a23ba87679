"""A small task with a planted property: two inputs say the label, four others whether a record has the property."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from laconic.data.population import Records
from laconic.scheme import Scheme
from laconic_studies.inference.property import PropertyAttack, PropertyInference, PropertyResult
from laconic_studies.inference.property_data import Batches, dealt

NUM_FEATURES = 12
TRAIN = {"local_lr": 0.1, "local_steps": 1}


def planted(count: int = 6000, *, strength: float = 2.0, seed: int = 0) -> tuple[Records, np.ndarray]:
    """Records and whether each has the property, which is independent of the label."""
    rng = np.random.default_rng(seed)
    inputs = rng.normal(size=(count, NUM_FEATURES)).astype(np.float32)
    targets, has = (inputs[:, :2].sum(1) > 0).astype(np.int64), rng.integers(0, 2, count)
    inputs[:, 2:6] += strength * has[:, None].astype(np.float32)
    return Records(torch.from_numpy(inputs), torch.from_numpy(targets)), has


def small_model() -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(NUM_FEATURES, 8), nn.ReLU(), nn.Linear(8, 2))


def settings(**changes: object) -> PropertyInference:
    usual = {"warm_up": 2, "rounds": 80, "share": 0.5, "emulate_every": 2, "classifiers": ("logistic",)}
    return PropertyInference(**(usual | changes))  # type: ignore[arg-type]


def attacked(
    scheme: Scheme, how: PropertyInference, *, strength: float = 2.0, has: np.ndarray | None = None
) -> PropertyResult:
    """The attack on the planted property, or on another labelling of the same records."""
    records, truth = planted(strength=strength)
    holdings = dealt(
        truth if has is None else has,
        participants=how.participants,
        records=16,
        public_records=20,
        rng=np.random.default_rng(1),
    )
    batches = Batches(holdings, records.targets.numpy(), records=16, match_labels=False)
    return PropertyAttack(scheme, small_model(), records, batches, how).run()
