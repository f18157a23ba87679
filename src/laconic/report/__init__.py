"""What a run shows: bytes counted, curves, an HTML page.

html    the HTML report and the lines of the summary
ledger  bytes up, down and once, beside the papers' formula
plots   curves of several runs (only `measure` uses matplotlib)
"""
