"""An estimate of ε without a proof, from the cosines of canaries in one run (after Andrew et al. 2023).

The score of a canary is the cosine between its direction and what was released. In high dimensions it is nearly normal,
with and without the canary. The distance of the two means in units of the standard deviation is taken for the μ of a
Gaussian mechanism, and its ε at δ is the estimate. It is no bound: neither the fit nor the sampling error is accounted
for. (The paper fits two variances. From some hundred canaries that makes the tails, and so an ε at a small δ, unstable;
here there is one.)
"""

from __future__ import annotations

import numpy as np

from laconic.audit.two_worlds import gdp_epsilon

_FEWEST = 10


def fitted_epsilon(scores: np.ndarray, coins: np.ndarray, delta: float) -> float | None:
    """The estimate; None with too few canaries that were in, or out."""
    inside, outside = scores[coins], scores[~coins]
    if min(len(inside), len(outside)) < _FEWEST:
        return None
    pooled = np.concatenate([inside - inside.mean(), outside - outside.mean()])
    spread = np.sqrt((pooled**2).sum() / (len(pooled) - 2))
    return gdp_epsilon(float((inside.mean() - outside.mean()) / spread), delta) if spread > 0 else None
