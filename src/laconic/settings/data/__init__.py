"""From the `[data]` section to a federation's data: who holds which records, and which are set aside.

clinical        from health records
datasets        from a named data set, a folder or a table: where it is decided what `--dataset` names
divide          records divided among clients by a partition, pictures augmented
public_records  records that are nobody's secret, from elsewhere or set aside
"""
