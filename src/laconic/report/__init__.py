"""Reports of a run: bytes, curves, pages; and what a data set looks like. `page/` has the report and the page of
several runs, `drawing/` their charts, `live/` the server of `laconic watch`.

classified          the last model on test records: confusion, ROC, calibration
curves              the curve of one run, for `RunResult.plot`
dataset_view        a few records of a data set, and how they are divided among clients
ledger              bytes up, down and sent once, beside the papers' formula
model_card          the model card of a run, as Markdown
plots               curves of several runs (only `measure` uses matplotlib)
result_table        a finished run in a few lines, as text and for notebooks
summary_lines       the lines of a summary, for the terminal and the report
terminal_pictures   records for a terminal: pictures, series, numbers
"""
