"""Audits: lower bounds on ε from canary clients, beside what the accountant claims.

audit       `audit_experiment`: all of an audit, each part with its share of the error
canaries    clients whose code is known, in or out by a coin: where they point, and what they send
checks      noise, clip and sampler against what the accountant assumes, each with its false-alarm rate
fitted      an estimate of ε from fitted scores, without a proof
intervals   the bounds of Clopper and Pearson
likelihood  how much likelier what was seen is with a canary in than out: for server and outsider
many_runs   short runs with a client in or out, and their bounds
one_run     from correct guesses in one run to a bound: Steinke et al. 2023, Mahloujifar et al. 2024
planted     canaries among the clients of an experiment, and where server and outsider look
result      bounds, checks and their verdicts
setups      the federations of an audit: the run with canaries, and a tiny model for short runs
two_worlds  from true and false positives to a bound on ε, or on the μ of Gaussian DP
watch       a run with canaries, and what was seen of each in every round
whole_run   one run of the experiment itself, and its bounds
"""
