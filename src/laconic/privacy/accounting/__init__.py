"""Samplers, accountants and budgets: who takes part, and the resulting ε.

accountant       `RunAccountant`: ε of a run against two adversaries, by three methods; `Accountant` makes one
budget           `Budget`: limits, and whether one more round fits
calibrate        the smallest noise for a given ε
composed_loss    ε of a loss distribution after many rounds; proof that it is an upper bound
promise          what an ε refers to, in words: unit, adjacency, adversaries
record_events    what a round releases of one record
record_sampling  which records a private step draws: `PerClassPoisson`, `PoissonRecords`, `PublishedBatches`
releases         `Release`: what a phase of a run releases, as data; `compose`: ε of any list of them
sampling         `Poisson`, `FixedSize`, `Cyclic`, `AsPublished`: who takes part, and how it is accounted
tight            the tight method (pld): a closed form, a loss distribution, or dp-accounting's own composition
"""
