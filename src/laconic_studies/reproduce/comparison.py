"""Published and measured figures of a table, side by side: as data, as Markdown, as CSV.

Tables of attacks also have figures of the attacked class, runs that do not converge, and say what counts as met.
"""

from __future__ import annotations

import csv
import io
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

from laconic.figures import at_most
from laconic_studies.reproduce.tables import BYTES, PER_PARAMETER, Published, Row, Table

Entry = dict[str, Any]

CLOSE = 0.02
"""How far below the published accuracy a measured one may be and still count as reproduced."""


@dataclass(frozen=True, kw_only=True)
class Measured:
    """One run of one row. "Best" is the round with the best accuracy on the test data, as in the papers.

    `accuracy` is the metric by which that round was chosen: accuracy, or balanced accuracy for health records. Bytes
    are averages per client up to the best round: counted (`bytes_*`) and by the papers' formula. `bits_*` are those of
    one message over the number of weights. The ε: the papers' figure (moments) had the run been planned to end at its
    best round; and of the whole run the outsider's and the server's (pld, or the tightest that the sampler allows).
    Of an attacked run that does not converge, figures may be missing.
    """

    seed: int
    trained_on: str
    rounds: int
    accuracy: float | None
    round: int
    last_accuracy: float | None
    bytes_up: float
    bytes_down: float
    bytes_once: float
    formula_bytes_up: float
    formula_bytes_down: float
    bits_up: float
    bits_down: float
    formula_bits_up: float
    formula_bits_down: float
    noise_multiplier: float | None = None
    epsilon_best_moments: float | None = None
    epsilon_moments: float | None = None
    epsilon_released: float | None = None
    epsilon_participant: float | None = None
    seconds: float = 0.0
    environment: str = ""
    auroc: float | None = None
    last_auroc: float | None = None
    total_bytes_up: float | None = None
    total_bytes_down: float | None = None
    """Averages per client over all rounds."""
    converged: bool = True
    class_accuracy: float | None = None
    class_accuracy_last_min: float | None = None
    class_accuracy_last_mean: float | None = None
    attack_accuracy: float | None = None
    attack_accuracy_last_min: float | None = None
    attack_accuracy_last_mean: float | None = None
    """On the attacked class in the best round, and over the last ten evaluated ones."""
    epsilon_attacked: float | None = None
    """The outsider's ε without the noise that attackers left out, where the run's own does not hold."""

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Measured:
        return cls(**{f.name: data[f.name] for f in fields(cls) if f.name in data})

    def cost(self, direction: str, table: Table, *, formula: bool = False) -> float:
        """The cost up or down in the unit of the table, up to the best round or, where the table says so, of all."""
        kind = "bits" if table.unit == PER_PARAMETER else "bytes"
        value: float = getattr(self, f"{'formula_' if formula else ''}{kind}_{direction}")
        if table.all_rounds:
            total: float | None = getattr(self, f"total_bytes_{direction}")
            value = value * self.rounds / self.round if formula or total is None else total
        return value / BYTES.get(table.unit, 1.0)


Results = Mapping[int, Sequence[Measured]]
"""The runs of each row, by its number."""


def compared(table: Table, results: Results) -> list[dict[str, Any]]:
    """One flat entry per row of the table: published figures, and means over the runs there are."""
    return [_compared_row(table, row, results.get(row.number, ())) for row in table.rows]


def _compared_row(table: Table, row: Row, runs: Sequence[Measured]) -> dict[str, Any]:
    accuracy, aurocs = _mean(run.accuracy for run in runs), [run.auroc for run in runs if run.auroc is not None]
    accuracies = [run.accuracy for run in runs if run.accuracy is not None]
    published = row.published
    comparable = accuracy is not None and published.accuracy is not None and not row.published_on
    return {
        "row": row.number,
        "scheme": row.scheme,
        "ratio": row.ratio,
        "dataset": row.published_on or row.dataset,
        "another_data_set": bool(row.published_on),
        "trained_on": sorted({run.trained_on for run in runs}),
        "seeds": [run.seed for run in runs],
        "published": asdict(published),
        "accuracy": accuracy,
        "deviation": statistics.stdev(accuracies) if len(accuracies) > 1 else None,
        "accuracy_worst": min(accuracies, default=None),
        "accuracy_best": max(accuracies, default=None),
        "auroc": _mean(aurocs),
        "auroc_worst": min(aurocs, default=None),
        "auroc_best": max(aurocs, default=None),
        "difference": accuracy - published.accuracy if comparable else None,  # type: ignore[operator]
        "round": _mean(run.rounds if table.all_rounds else run.round for run in runs),
        "unit": table.unit,
        **{
            f"{prefix}{direction}": _mean(run.cost(direction, table, formula=bool(prefix)) for run in runs)
            for direction in ("up", "down")
            for prefix in ("", "formula_")
        },
        "epsilon": _mean(run.epsilon_best_moments for run in runs),
        "epsilon_released": _mean(run.epsilon_released for run in runs),
        "epsilon_participant": _mean(run.epsilon_participant for run in runs),
        "remark": row.remark,
        **attack_figures(row, runs),
    }


def reproduced_text(entries: Sequence[dict[str, Any]]) -> str:
    """How many of the rows that were run are no more than `CLOSE` below the published accuracy; or, of attacks, how
    many of the figures are met."""
    if any("agrees" in entry for entry in entries):
        return agreement_text(entries)
    differences = [entry["difference"] for entry in entries if entry["difference"] is not None]
    good = sum(difference >= -CLOSE for difference in differences)
    return f"{good} of {len(differences)} rows are within {CLOSE} of the published accuracy, or better."


def markdown(table: Table, results: Results, notes: Sequence[str] = ()) -> str:
    """The comparison as a document. `notes` say why it is not comparable; then nothing is counted as reproduced."""
    entries = compared(table, results)
    with_epsilon = any(row.private for row in table.rows)
    columns = _columns(table, with_epsilon)
    lines = [f"# {table.title}", "", *(f"**{note}**\n" for note in notes), f"Source: {table.source}.", ""]
    lines += ["| " + " | ".join(heading for heading, _ in columns) + " |"]
    lines += ["| " + " | ".join("---" for _ in columns) + " |"]
    for row, entry in zip(table.rows, entries, strict=True):
        lines.append("| " + " | ".join(cell(entry | {"label": row.label}) for _, cell in columns) + " |")
    lines += ["", *([] if notes else [reproduced_text(entries), ""])]
    lines += [f"- {text}" for text in _explained(table, results, with_epsilon)]
    lines += [f"- Row {row.number}: {row.remark}." for row in table.rows if row.remark]
    return "\n".join([*lines, *(f"- {text}" for text in table.remarks), ""])


def _explained(table: Table, results: Results, with_epsilon: bool) -> list[str]:
    if table.of_attacks:
        return [*ATTACKS_EXPLAINED, *_environments(results)]
    lines = [
        f"{table.metric.capitalize()} is that of the best round on the test data, as in the papers. With several seeds"
        + (" there are the worst, the best" if worst_and_best(table) else " there are mean, standard deviation")
        + " and number of seeds; rounds, costs and ε are means"
        + (". AUROC is that of the same round." if _with_auroc(table) else ", too."),
        f"Costs are averages per client {'over all rounds' if table.all_rounds else 'up to the best round'}"
        + (", in bits of a message by the number of weights" if table.unit == PER_PARAMETER else "")
        + ': "here" is counted from the messages, "formula" is the papers\' for the measured rounds.',
    ]
    if with_epsilon:
        lines.append(
            '"ε here" is that of the papers\' accountant had the run been planned to end at its best round, like the'
            " published one. The best round is known only after all of them, so its model has the outsider's and the"
            " server's ε, which are of the whole run, by the tightest accountant."
            + ("" if _of_records(table) else _AS_POISSON)
        )
    runs = [run for found in results.values() for run in found]
    once = max((run.bytes_once for run in runs), default=0.0)
    if once:
        lines.append("FL-TOP tells each client its weights' places once; these bytes are in table.csv (`bytes_once`).")
    return lines + _environments(results)


def _environments(results: Results) -> list[str]:
    runs = [run for found in results.values() for run in found]
    names = sorted({run.environment for run in runs if run.environment})
    return [f"Measured with {environment}." for environment in names]


def table_csv(table: Table, results: Results) -> str:
    """One line per run, every figure of it; rows that were not run have one line with the published figures alone."""
    stream = io.StringIO()
    published = [f.name for f in fields(Published)]
    used = [name for name in published if any(getattr(row.published, name) is not None for row in table.rows)]
    own = [f.name for f in fields(Measured)]
    head = ["row", "scheme", "ratio", "dataset", "cost_unit", *(f"published_{name}" for name in used), *own]
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(head)
    for row in table.rows:
        start = [row.number, row.scheme, row.ratio, row.dataset, table.unit]
        start += [getattr(row.published, name) for name in used]
        for run in results.get(row.number, ()):
            writer.writerow([*map(_plain, start), *(_plain(getattr(run, name)) for name in own)])
        if not results.get(row.number):
            writer.writerow([*map(_plain, start), *("" for _ in own)])
    return stream.getvalue()


def _plain(value: Any) -> Any:
    return "" if value is None else round(value, 6) if isinstance(value, float) else value


def _mean(values: Any) -> float | None:
    known = [float(value) for value in values if value is not None]
    return statistics.fmean(known) if known else None


def number_text(value: float | None, digits: int = 2) -> str:
    return "–" if value is None else f"{value:,.{digits}f}"


_AS_POISSON = " Cohorts of a fixed size are accounted as Poisson samples, as in the papers; no proof covers that."


def _of_records(table: Table) -> bool:
    return all("record_rate" in row.settings["scheme"] for row in table.rows if row.private)


def worst_and_best(table: Table) -> bool:
    """Whether the paper gives the worst and the best of several runs."""
    return any(row.published.accuracy_worst is not None for row in table.rows)


def _with_auroc(table: Table) -> bool:
    return any(row.published.auroc is not None for row in table.rows)


def data_text(entry: Entry) -> str:
    """The paper's data set, and in brackets what was taken instead."""
    instead = [name for name in entry["trained_on"] if name != entry["dataset"]]
    return f"{entry['dataset']} (here: {', '.join(instead)})" if instead else str(entry["dataset"])


def published_text(entry: Entry, name: str = "accuracy") -> str:
    """'0.64', or '0.63 to 0.64' where the paper gives the worst and the best."""
    best, worst = entry["published"][name], entry["published"][f"{name}_worst"]
    if name == "accuracy" and not entry["published"]["converges"]:
        return DIVERGES
    return number_text(best) if worst is None else f"{worst:.2f} to {best:.2f}"


def accuracy_text(entry: Entry) -> str:
    """'0.8123 ± 0.0045 (3)': mean, deviation, number of seeds; or '0.81 to 0.82 (3)' as the paper has it."""
    if entry.get("diverged"):
        found = "" if entry["accuracy"] is None else f" (best round {entry['accuracy']:.4f})"
        return DIVERGES + found
    if entry["accuracy"] is None:
        return "–"
    if entry["published"]["accuracy_worst"] is not None and len(entry["seeds"]) > 1:
        return f"{entry['accuracy_worst']:.4f} to {entry['accuracy_best']:.4f} ({len(entry['seeds'])})"
    spread = "" if entry["deviation"] is None else f" ± {entry['deviation']:.4f} ({len(entry['seeds'])})"
    return f"{entry['accuracy']:.4f}{spread}"


def auroc_text(entry: Entry) -> str:
    if entry["published"]["auroc_worst"] is not None and len(entry["seeds"]) > 1 and entry["auroc"] is not None:
        return f"{entry['auroc_worst']:.4f} to {entry['auroc_best']:.4f}"
    return number_text(entry["auroc"], 4)


def difference_text(entry: Entry) -> str:
    return "–" if entry["difference"] is None else f"{entry['difference']:+.4f}"


def bound_text(epsilon: float | None, decimals: int = 3) -> str:
    return "–" if epsilon is None else at_most(epsilon, decimals)


def _published(name: str, digits: int = 2) -> Callable[[Entry], str]:
    return lambda entry: number_text(entry["published"][name], digits)


def _measured(name: str, digits: int = 2) -> Callable[[Entry], str]:
    return lambda entry: number_text(entry[name], digits)


def _bound(name: str, decimals: int = 3) -> Callable[[Entry], str]:
    return lambda entry: bound_text(entry[name], decimals)


def _columns(table: Table, with_epsilon: bool) -> list[tuple[str, Callable[[Entry], str]]]:
    """Headings, and what stands under each."""
    columns: list[tuple[str, Callable[[Entry], str]]] = [
        ("row", lambda entry: str(entry["row"])),
        ("scheme", lambda entry: entry["label"]),
        ("data", data_text),
        (f"{table.metric}: paper", published_text),
        ("here", accuracy_text),
    ]
    if table.of_attacks:
        columns += [*attack_columns(table), ("round", _measured("round", 0))]
        private = [
            ("outsider's ε, without the attack", _bound("epsilon_released")),
            ("without the attackers' noise", _bound("epsilon_attacked")),
        ]
        return columns + (private if with_epsilon else [])
    if _with_auroc(table):
        columns += [("AUROC: paper", lambda entry: published_text(entry, "auroc")), ("here", auroc_text)]
    if not table.stands_in:
        columns.append(("difference", difference_text))
    columns += [("round: paper", _published("round", 0)), ("here", _measured("round", 0))]
    for direction in ("up", "down"):
        columns += [
            (f"{direction}, {table.unit}: paper", _published(direction)),
            ("here", _measured(direction)),
            ("formula", _measured(f"formula_{direction}")),
        ]
    if with_epsilon:
        columns += [
            ("ε: paper", _published("epsilon")),
            ("ε here", _bound("epsilon")),
            ("outsider's ε", _bound("epsilon_released")),
            ("server's ε", _bound("epsilon_participant", 2)),
        ]
    return columns


DIVERGES = "does not converge"
NEAR, NEAR_IN_BETWEEN = 0.03, 0.10
"""How far from the published figure one may be; an attack accuracy between 0.1 and 0.9, which one seed moves a lot."""
OF_THE_CLASS = {"class_accuracy": "attacked class", "attack_accuracy": "attack accuracy"}

ATTACKS_EXPLAINED = [
    "Both figures are those of the round with the best accuracy on the test data, as printed: means over seeds."
    " Accuracy is without the classes that honest clients do not have.",
    'The "attacked class" is the accuracy on it: low if the attack works. "Attack accuracy" is the share of that class'
    " that is taken for the target: high if it works.",
    'The last ten rounds are "at least, on average" for the attacked class and the attack accuracy: the best round'
    " hides what oscillates.",
    f'"{DIVERGES}": weights that are no longer finite, or a best round, or the last ten on average, within 0.015 of'
    " always saying one class; of most seeds.",
]


def attack_figures(row: Row, runs: Sequence[Measured]) -> Entry:
    """What a row of attacks has beside its accuracy; nothing for other rows."""
    if not row.attacked:
        return {}
    entry: Entry = {
        "malicious": row.settings["attack"]["fraction"],
        "boost": row.settings["attack"].get("boost"),
        "diverged": sum(not run.converged for run in runs) * 2 > len(runs),
    }
    of_class = [field for name in OF_THE_CLASS for field in (name, f"{name}_last_min", f"{name}_last_mean")]
    for field in (*of_class, "epsilon_attacked"):
        known = [value for run in runs if (value := getattr(run, field)) is not None]
        entry[field] = statistics.fmean(known) if known else None
    entry["agrees"] = _agrees(row, runs, entry) if runs else {}
    return entry


def _agrees(row: Row, runs: Sequence[Measured], entry: Entry) -> dict[str, bool]:
    """Which of the published figures are met."""
    published = row.published
    if not published.converges:
        return {"converges": entry["diverged"]}
    found: dict[str, bool] = {}
    known = [run.accuracy for run in runs if run.accuracy is not None]
    measured = {"accuracy": statistics.fmean(known) if known and not entry["diverged"] else None}
    measured |= {name: entry[name] for name in OF_THE_CLASS}
    for name, value in measured.items():
        wanted = getattr(published, name)
        if wanted is not None:
            near = NEAR_IN_BETWEEN if name == "attack_accuracy" and 0.1 < wanted < 0.9 else NEAR
            found[name] = value is not None and abs(value - wanted) <= near + 1e-9
    return found


def agreement_text(entries: Sequence[Entry]) -> str:
    """How many of the published figures that were measured are met."""
    every = [met for entry in entries for met in entry.get("agrees", {}).values()]
    not_run = sum(not entry.get("agrees") and not entry["seeds"] for entry in entries)
    text = (
        f"{sum(every)} of {len(every)} figures are within {NEAR} of the published one ({NEAR_IN_BETWEEN} for attack"
        " accuracies between 0.1 and 0.9)."
    )
    return text + (f" {not_run} rows were not run." if not_run else "")


def attack_columns(table: Table) -> list[tuple[str, Callable[[Entry], str]]]:
    """Headings and cells: the figures of the class beside the paper's, the last rounds, and whether all is met."""
    columns: list[tuple[str, Callable[[Entry], str]]] = []
    for name, heading in OF_THE_CLASS.items():
        if any(row.attacked and "source" in row.settings["attack"] for row in table.rows):
            columns += [
                (f"{heading}: paper", lambda entry, name=name: _number(entry["published"][name])),  # type: ignore[misc]
                ("here", lambda entry, name=name: _number(entry[name], 4)),  # type: ignore[misc]
                ("last ten", lambda entry, name=name: last_text(entry, name)),  # type: ignore[misc]
            ]
    return [*columns, ("met", met_text)]


def last_text(entry: Entry, name: str) -> str:
    """'0.12, 0.55': at least, on average."""
    low, mean = entry[f"{name}_last_min"], entry[f"{name}_last_mean"]
    return "–" if low is None or mean is None else f"{low:.2f}, {mean:.2f}"


def met_text(entry: Entry) -> str:
    """'yes', or what is not met; a dash where nothing can be compared."""
    agrees = entry.get("agrees", {})
    if not agrees:
        return "–"
    missed = [name.replace("_", " ") for name, met in agrees.items() if not met]
    return f"not {', '.join(missed)}" if missed else "yes"


def _number(value: float | None, digits: int = 2) -> str:
    return "–" if value is None else f"{value:.{digits}f}"
