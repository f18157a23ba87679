"""Many runs as one: a grid of settings, a run for every combination, one table and one picture.

grid      `Grid`: a base, axes of values and seeds; every combination a `Point`; what each will promise and cost
jobs      the folder of a sweep, one run in it, and who is told what became of the runs
progress  what a user sees while a sweep goes on
sweep     `Sweep` and `laconic.sweep`: what is not finished is run, and all of it is shown
table     a line per run, means over seeds, the metric against one axis
together  runs of one shape side by side: what they train becomes one large cohort
workers   several runs at the same time: in processes of this machine (`--jobs`), or on a Ray cluster
"""
