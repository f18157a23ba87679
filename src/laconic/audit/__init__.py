"""Audits: lower bounds on ε from canary clients, beside what the accountant claims.

audit     `audit_experiment`: all of an audit, each part with its share of the error
bounds    from scores of canaries to bounds on ε or μ: many independent runs, or correct guesses in one run
canaries  clients whose code is known, in or out by a coin, and how they stand among an experiment's clients
checks    noise, clip and sampler against what the accountant assumes, each with its false-alarm rate
result    bounds, checks and their verdicts
runs      many short runs with a client in or out, or one run of the experiment itself, and their bounds
setups    the federations of an audit, and what was seen of each canary in every round
"""
