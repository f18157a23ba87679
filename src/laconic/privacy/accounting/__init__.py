"""Samplers, accountants and budgets: who takes part, and the resulting ε.

accountant       `RunAccountant`: ε of a run against two adversaries, by three methods; `Promise`: whom it protects
budget           `Budget`: limits, and whether one more round fits; the smallest noise for a given ε
record_sampling  which records a private step draws: `PoissonRecords` and others; what it releases of one record
releases         `Release`: what a phase of a run releases, as data; `compose`: ε of any list of them
sampling         `Poisson`, `FixedSize`, `Cyclic`, `AsPublished`: who takes part, and how it is accounted
tight            the tight method (pld): a closed form, a loss distribution, dp-accounting's own composition
"""
