"""Engines: a `Task` in, `Updates` out; one client after another, or many at once.

choose        which engine trains, by name or by rule
cohort        `CohortAtOnce`: blocks of clients in fixed memory, one vectorised step for all
crew          parallel workers: threads, each with its own core and module
engine        what an engine is: a `Task` in, `Updates` out
estimate      how large a model's operations are, and which layer is not done for all clients at once
joint         `JointCohort`: clients of several runs as one cohort
one_by_one    `OneByOne`: one client after another on flat vectors
per_record    `PerRecord`: the engine of record-level privacy
precision     TF32 or float32 products on a GPU
sparse_first  `SparseFirst`: the engine for sparse records
"""
