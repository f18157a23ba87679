"""Which settings to run, from what can be had and what is promised; nothing is trained.

answer    `advise`: the best settings, what binds, what relaxing would buy, and the command
command   a setting as a `laconic run` command
exact     a setting as the run itself would account for it: both ε, bits and bytes
noise     the smallest σ of many settings at once, by the accountants
question  `Question`: clients, weights, ε, bytes, and who must not learn
search    every setting worth a look, and the best of them
setting   `Setting`: cohort, rounds, participations, step, and what follows from them
steps     signal and noise in the sum of all steps
worth     how the settings are ranked: a model of the error, fitted to runs
"""
