"""The run folder: charges, rows and checkpoint under one hash chain, and how a run is resumed.

chain           `Chain`: one hash chain through charges and saves
checkpoint      `RunState`, `save_state`, `load_state`
finished        the files of a finished run, checked before they are believed
folder          `RunFolder`: files that survive a kill
front_end       the front end, kept when a run starts
identity        what identifies a run; a folder is resumed by the same run only
journal         `Journal`: the charges, by round and attempt
participations  how often each client took part
restore         the first state: initial weights or the last checkpoint, if files and drawn cohorts are consistent
round_rows      `RoundRows`: the rows of finished rounds and their digest
saves           `Saves`: what was saved when, announced before and confirmed after
"""
