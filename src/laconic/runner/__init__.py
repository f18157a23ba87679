"""A run: one round after another, the budget, and the files at the end.

attacked      what is said of an attacked run: its result by class, and what it does to the ε
evaluation    how good the weights of a round are, and which round is the best
in_folder     a run in a folder: new, or from where the last one there stopped
outcome       `RunResult`, and the files at the end of a run
planned       which rounds a statement covers: the charged ones, or all planned ones
progress      `Progress`: what a run knows of itself, for statement and result
report_files  the files for people at the end: figures by class, and the report
run           `Run`: one round after another, whoever the clients are
spending      the budget: whether one more round fits, and what was spent
started       what observers are told when a run starts: its settings, as plain values
tested        group testing in a run: which sums go into the step, and who was excluded
trade_off     ε at several δ, for the report
"""
