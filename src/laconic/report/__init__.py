"""Reports of a run: bytes, curves, an HTML page.

html    the HTML report and the lines of the summary
ledger  bytes up, down and sent once, beside the papers' formula
plots   curves of several runs (only `measure` uses matplotlib)
"""
