"""The run folder: charges, rows and checkpoint under one chain of digests, and how a run goes on.

chain       `Chain`: one chain of digests through charges and saves
checkpoint  `RunState`, `save_state`, `load_state`
folder      `RunFolder`: files that survive a kill
front_end    the front end, kept when a run starts
identity    what makes two runs the same run; a folder is resumed by no other
journal     `Journal`: the charges, by round and attempt
redraw      whether the charged cohorts are those that the seed draws
restore     where a run begins: at the initial weights or at its last checkpoint, if the folder fits together
round_rows  `RoundRows`: the rows of finished rounds and their digest
saves       `Saves`: what was saved when, announced before and confirmed after
"""
