"""The report of a run as a page, and several runs on one page.

classes   figures by class, confusion matrix, ROC, calibration
costs     who took part, bytes by kind, time by stage
curves    the metric over rounds, ε and bytes; both ε with the budget
document  the whole page, with its style and script inside
facts     what was run, on what, when, and how it stands; its result, its settings and how to repeat it, its statement
metrics   metrics by name, and which one stands for a run
overlay   several runs: a table, and their curves in one picture
reading   `RunView`: what the files of a run folder say, finished or not
verdict   what the run promises, to whom, and what it does not; what ε means to an attacker
"""
