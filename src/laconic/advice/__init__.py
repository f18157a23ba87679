"""Which settings to run, from what can be had and what is promised; nothing is trained.

answer    `advise`: the best settings with both ε, bits and bytes; what binds, what relaxing would buy, the command
inside    patients in the place of whole clients: proposed where clients are few
question  `Question`: clients, weights, ε, bytes, and who must not learn; `Setting`: what is chosen and what follows
ranking   how the settings are ranked: signal and noise of all steps, and a model of the error, fitted to runs
search    every setting within the limits, the smallest σ of each, and the best of them
"""
