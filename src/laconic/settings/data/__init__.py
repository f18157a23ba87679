"""From the `[data]` section to a federation's data: who holds which records, and which are set aside.

clinical     from health records
datasets     from a named data set, a folder or a table: where it is decided what `--dataset` names
declared     classes and channels: what the user says, or what the labels make; texts as records
divide       records set aside as public, or divided among clients by a partition; pictures augmented
new_records  records to predict for, read as those of the run were
own_records  from the user's own pictures and texts
record_kind  what a record of a run is, for those who predict with it
"""
