"""The run folder: charges, rows and checkpoint under one hash chain, and how a run is resumed.

checkpoint  `RunState`, `save_state`, `load_state`; the front end
finished    the files of a finished run, checked before they are believed
folder      `RunFolder`: files that survive a kill
journal     `Journal`: the charges, by round and attempt; how often each client took part
restore     whether it is the same run; its first state: initial weights or the last checkpoint
saves       `Saves`: what was saved when, announced before and confirmed after; `RoundRows`; `Chain`
"""
