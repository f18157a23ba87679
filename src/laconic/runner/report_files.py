"""The files for people at the end of a run: figures that only the report shows, and the report."""

from __future__ import annotations

from laconic.report.page.document import run_page
from laconic.report.page.reading import read_run
from laconic.runner.progress import Progress
from laconic.runner.trade_off import privacy_profile
from laconic.store.folder import RunFolder, json_text


def write_report(run: Progress, folder: RunFolder) -> None:
    """`figures.json`, then `report.html` from all the files of the folder.

    The figures by class are of the test records and the last model, which are there anyway. They cost no privacy of the
    clients; the test records are not covered by any ε.
    """
    by_class = run.evaluation.classified(run.state.weights) or {}
    figures = {"round": run.state.rounds, **by_class, "trade_off": privacy_profile(run)}
    folder.write("figures.json", json_text(figures) + "\n")
    folder.write("report.html", run_page(read_run(folder.path)))
