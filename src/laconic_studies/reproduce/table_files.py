"""The files of a reproduced table: table.md, table.csv, and pictures."""

from __future__ import annotations

from laconic.report.plots import plots_available
from laconic.store.folder import RunFolder
from laconic_studies.reproduce.comparison import Results, markdown, table_csv
from laconic_studies.reproduce.reproduction import Reproduction


def write_table(reproduction: Reproduction, *, plots: bool) -> list[str]:
    """Write them from all runs that are finished; returns what could not be done."""
    results, table = reproduction.results(), reproduction.table
    text, warnings = markdown(table, results, reproduction.notes), []
    folder = RunFolder(reproduction.folder)
    folder.make()
    if plots and any(results.values()):
        drawable = plots_available()
        if not drawable:
            warnings.append("no pictures: matplotlib is not installed")
        text += _accuracy_picture(reproduction, results) if drawable and not table.of_attacks else ""
        text += _class_curves(reproduction) if drawable and table.figure == "class-curves" else ""
        text += _kept_weights(reproduction, drawable) if table.figure == "kept-weights" else ""
    folder.write("table.md", text)
    folder.write("table.csv", table_csv(table, results))
    return warnings


def _accuracy_picture(reproduction: Reproduction, results: Results) -> str:
    from laconic_studies.reproduce.table_plots import plot_table

    plot_table(reproduction.table, results, reproduction.folder / "table.png", quick=reproduction.quick)
    return "\n![Best accuracy against bytes](table.png)\n"


def _class_curves(reproduction: Reproduction) -> str:
    from laconic_studies.reproduce.class_curves import class_curves, plot_class_curves

    curves = class_curves(reproduction)
    if not curves:
        return ""
    plot_class_curves(curves, reproduction.folder / "figure.png")
    return "\n![Accuracy by round](figure.png)\n"


def _kept_weights(reproduction: Reproduction, drawable: bool) -> str:
    from laconic_studies.reproduce.kept_weight_runs import kept_weights
    from laconic_studies.reproduce.table_plots import plot_kept_weights

    weights = kept_weights(reproduction, seed=0)
    if weights is None:
        return ""
    text = f"\n## The kept weights, seed 0\n\n{weights.markdown()}"
    if drawable:
        plot_kept_weights(weights.values(), reproduction.folder / "figure.png")
        text += "\n![Values of the kept weights](figure.png)\n"
    return text
