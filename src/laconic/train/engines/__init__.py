"""Engines: a `Task` in, `Updates` out; one client after another, or many at once.

choose         which engine trains, by name or by rule
cohort         `CohortAtOnce`: blocks of clients in fixed memory, one vectorised step for all
engine         what an engine is: a `Task` in, `Updates` out; workers, optimisers and precision for all of them
joint          `JointCohort`: clients of several runs as one cohort
linear_cohort  `LinearCohort`: linear models of small clients at once, with the same bits in every cohort
one_by_one     `OneByOne`: one client after another on flat vectors
per_record     `PerRecord`: the engine of record-level privacy; sums of per-record clipped gradients
sparse_first   `SparseFirst`: the engine for sparse records
"""
