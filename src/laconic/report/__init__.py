"""Reports of a run: bytes, curves, pages; and what a data set looks like.

`page/` has the report and the page of several runs.

dataset_view   a few records of a data set, and how they are divided among clients
drawing        elements, tables and charts as HTML and inline SVG
live           `laconic watch`: pages of runs that go on, from a server on this machine alone
ledger         bytes up, down and sent once, beside the papers' formula
model_card     the model card of a run, as Markdown
plots          pictures of runs with matplotlib; the curve of one run for `RunResult.plot`
summary_lines  the lines of a summary; a finished run in a few lines, as text and for notebooks
"""
