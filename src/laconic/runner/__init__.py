"""A run: one round after another, the budget, and the files at the end.

in_folder  a run in a folder: new, or from where the last one there stopped
outcome    `RunResult`, and the files at the end of a run
planned    which rounds a statement answers for: the charged ones, or the plan's
run        `Run`: one round after another, the budget, the end
"""
