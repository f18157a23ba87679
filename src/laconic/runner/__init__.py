"""A run: one round after another, the budget, and the files at the end.

evaluation  how good the weights of a round are, also by class, and which round is the best
judged      the last model on test records: intervals, against chance, thresholds, subgroups
outcome     `RunResult`, and the files at the end of a run
progress    `Progress`: what a run knows of itself; `Spending`: whether one more round fits; `started_of`
run         `Run`: one round after another; `run_in`: a run in a folder, new or from where the last one there stopped
statement   which rounds a statement covers, what attackers do to the ε, ε at several δ
tested      group testing in a run: which sums go into the step, and who was excluded
"""
