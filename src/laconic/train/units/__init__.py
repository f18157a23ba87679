"""The exact sum of clipped gradients of units: what an owner's records add to a masked sum.

sums       `UnitSums` and `unit_terms`: choose how, for a model and an owner's records; `answer_terms`: to queries
rounding   a code clipped and put on the grid of the noise; sums and exponentials with the same bits in every order
linear     one linear layer: norms of outer products, and no gradient is ever written down
tables     the records of a linear layer as whole numbers, dense or sparse, so that products are exact
groups     which records belong to which unit
networks   any model: gradients of single records, some at a time
ghost      dense and convolutional layers: one backward pass for many records, and no gradients of dense layers
"""

from __future__ import annotations

from laconic.train.units.sums import UnitSums, answer_terms, unit_terms

__all__ = ["UnitSums", "answer_terms", "unit_terms"]
