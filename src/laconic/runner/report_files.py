"""The files for people at the end of a run: figures of the last model by class, and the report."""

from __future__ import annotations

from laconic.report.page.document import run_page
from laconic.report.page.reading import read_run
from laconic.runner.progress import Progress
from laconic.store.folder import RunFolder, json_text


def write_report(run: Progress, folder: RunFolder) -> None:
    """`evaluation.json`, then `report.html` from all the files of the folder.

    The figures are of the test records and the last model, which are there anyway. They cost no privacy of the
    clients; the test records are not covered by any ε.
    """
    figures = run.evaluation.classified(run.state.weights)
    if figures is not None:
        rounds = run.state.rounds
        folder.write("evaluation.json", json_text({"round": rounds, **figures}) + "\n")
    folder.write("report.html", run_page(read_run(folder.path)))
