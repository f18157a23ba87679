"""The report of a run as a page, and several runs on one page.

attacker  what ε and δ mean: the best that any test can do
classes   figures by class, confusion matrix, ROC, calibration
costs     who took part, bytes by kind, time by stage
curves    the metric over rounds, ε and bytes; both ε with the budget
document  the whole page, with its style and script inside
header    what was run, on what, when, and how it stands
metrics   metrics by name, and which one stands for a run
overlay   several runs: a table, and their curves in one picture
reading   `RunView`: what the files of a run folder say, finished or not
repeat    settings, the command that repeats the run, the statement in full
result    the result in words
verdict   what the run promises, to whom, and what it does not
"""
