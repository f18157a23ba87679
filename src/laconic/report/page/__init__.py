"""The report of a run as a page, and several runs on one page.

curves    the metric over rounds, ε and bytes; the last model by class; who took part, bytes by kind, time by stage
document  the whole page, with its style and script inside: what was run, how it stands, its statement, how to repeat it
overlay   several runs: a table, and their curves in one picture
reading   `RunView`: what the files of a run folder say, finished or not; metrics by name
sure      how sure figures are, whether probabilities can be believed, thresholds, subgroups
verdict   what the run promises, to whom, and what it does not; what ε means to an attacker
"""
