"""Reports of a run: bytes, curves, an HTML page; and what a data set looks like.

curves              the curve of one run, for `RunResult.plot`
dataset_view        a few records of a data set, and how they are divided among clients
html                the HTML report and the lines of the summary
inference_pictures  pictures of membership inference and of reconstructions
ledger              bytes up, down and sent once, beside the papers' formula
plots               curves of several runs (only `measure` uses matplotlib)
property_picture    property inference: its rows as CSV, and a picture of them
result_table        a finished run in a few lines, as text and for notebooks
terminal_pictures   records for a terminal: pictures, series, numbers
"""
