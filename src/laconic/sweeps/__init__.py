"""Many runs as one: a grid of settings, a run for every combination, one table and one picture.

folder       the folder of a sweep: its grid, its runs, why runs failed
grid         `Grid`: a base, axes of values and seeds; every combination a `Point`
on_ray       runs on a Ray cluster
picture      the metric against one axis
planned      `--dry-run`: what each combination will promise and cost
processes    runs in processes of this machine (`--jobs`)
progress     what a user sees while a sweep goes on
single       one run in its folder, as `laconic run` would have it
sweep        `Sweep` and `laconic.sweep`: what is not finished is run, and all of it is shown
table        a line per run, and means over seeds
together     runs of one shape side by side: what they train becomes one large cohort
ways         jobs, and who is told what became of them
worker       the process of `--jobs`: one run after another
"""
