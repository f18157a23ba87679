"""From what training says to what may leave: any vector is bounded, put on the grid and noised.

The bound and the noise are those of the contract. Training is not believed: its vector may hold anything, also numbers
that are none. Where the records cannot be used there is no vector at all, and noise alone leaves.

One thing must be believed: where units inside a node are protected, that the sum which training hands over has a part
of the bounded norm, and no more, of every unit that a coin has drawn. A sum cannot be clipped again; and clipping the
parts here would help little, since training that lies could write one patient into the parts of all others. So of such
rounds the guard answers for the noise, the masks and what is charged. Training that lies can lay bare the records of
its own node, and no others: the noise in the sum stays whole.
"""

from __future__ import annotations

import numpy as np

from laconic.errors import PrivacyError
from laconic.guard.contract import ENTRIES, L2, LARGEST_SCALE, MARKS, PARTS, Release, Steps
from laconic.guard.noise import (
    MEAN_BITS,
    Entropy,
    Source,
    clip_entries,
    clip_l2,
    clip_marks,
    draw_around,
    fixed_point,
    noisy_residues,
)

_LARGEST_STEP = LARGEST_SCALE * 2**MEAN_BITS
"""Grid units that a coordinate of a step's sum is cut to: integers of 64 bits hold it and its noise, in 256ths."""


def bounded(release: Release, vector: np.ndarray | None) -> np.ndarray:
    """The vector within the bound of the contract, in float32; zeros for none.

    It is a copy: what changes in the vector while it is being bounded must change nothing.
    """
    if vector is None:
        return np.zeros(release.code_size, dtype=np.float32)
    with np.errstate(over="ignore"):
        code = np.array(vector, dtype=np.float32, order="C", subok=False)
    if code.shape != (release.code_size,):
        raise PrivacyError(f"training gave a vector of shape {code.shape}; a code has {release.code_size} values")
    if release.clip == L2:
        return clip_l2(code, release.bound)
    if release.clip == ENTRIES:
        return clip_entries(code)
    if release.clip == MARKS:
        return clip_marks(code, release.bound)
    raise PrivacyError("nothing bounds a code of this kind of round, so no noise protects it")


def summed(release: Release, total: np.ndarray | None) -> np.ndarray:
    """The sum of the parts of units, in 256ths of grid units (int64); zeros for none. Any whole numbers are taken."""
    if total is None:
        return np.zeros(release.code_size, dtype=np.int64)
    parts = np.array(total, order="C", subok=False)
    if parts.dtype != np.int64 or parts.shape != (release.code_size,):
        raise PrivacyError(
            f"training gave a sum of shape {parts.shape} and type {parts.dtype}; a code has {release.code_size} values"
            " of int64"
        )
    return parts


def residues(release: Release, vector: np.ndarray | None, *, share: float, source: Source | None = None) -> np.ndarray:
    """What a node adds to a masked sum: its code on the grid with a share of the noise, mod 2^bits (int64).

    `vector` is a code, or the sum of the parts of units. `share` is the scale of the node's share
    (`Contract.share_scale`). `source` is for tests alone.
    """
    if not release.units:
        raise PrivacyError("there is no noise in this kind of round, so nothing can be added to a masked sum")
    if release.clip == PARTS:
        fixed = summed(release, vector)
    else:
        fixed = fixed_point(bounded(release, vector), release.units, whole=release.whole)
    noisy: np.ndarray = noisy_residues(fixed, share, release.bits, source or Entropy(), whole=release.whole)
    return noisy


def noisy_step(steps: Steps, total: np.ndarray | None, *, source: Source | None = None) -> np.ndarray:
    """The sum of a step's clipped gradients with the step's noise, in float32; of none the noise alone.

    A coordinate is cut to what the integers hold, which moves neighbouring sums no further apart.
    """
    sums = np.zeros(steps.size) if total is None else np.array(total, dtype=np.float64, order="C", subok=False)
    if sums.shape != (steps.size,):
        raise PrivacyError(f"training gave a sum of shape {sums.shape}; a gradient has {steps.size} values")
    with np.errstate(over="ignore"):
        means = np.nan_to_num(sums * steps.units, nan=0.0).clip(-_LARGEST_STEP, _LARGEST_STEP)
        drawn = draw_around(fixed_point(means, 1.0, whole=False), steps.scale, source or Entropy())
        noisy: np.ndarray = (drawn / steps.units).astype(np.float32)
    return noisy
