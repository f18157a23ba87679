"""The run folder: charges, rows and checkpoint under one hash chain, and how a run is resumed.

chain       `Chain`: one hash chain through charges and saves
checkpoint  `RunState`, `save_state`, `load_state`; the front end
finished    the files of a finished run, checked before they are believed
folder      `RunFolder`: files that survive a kill
identity    what identifies a run; a folder is resumed by the same run only
journal     `Journal`: the charges, by round and attempt; how often each client took part
restore     the first state: initial weights or the last checkpoint, if files and drawn cohorts are consistent
saves       `Saves`: what was saved when, announced before and confirmed after; `RoundRows` and their digest
"""
