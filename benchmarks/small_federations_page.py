"""The page about small federations with its picture and table of runs, from what was measured and nothing else."""

from __future__ import annotations

import csv
import json
import shlex
import statistics
import textwrap
from pathlib import Path
from typing import Any

from benchmarks import small_federations

PAGE = Path("docs/results/small-federations.md")
FOLDER = PAGE.with_suffix("")
_SEEDS = 3
_LEVELS = ("patient", "hospital", "record")
_WAYS = tuple(name for level in _LEVELS for name in (level, f"{level}, {small_federations.PUBLIC} public records"))
"""In the order of the table's columns."""
_NAMES = {"patient": "patient", "hospital": "hospital", "record": "record, as published"}


def write_page(rows: list[dict[str, Any]]) -> None:
    natural = FOLDER / "eicu-demo.json"
    others = json.loads(natural.read_text(encoding="utf-8"))["rows"] if natural.exists() else []
    PAGE.write_text(page(rows, others), encoding="utf-8")
    draw(rows, FOLDER / "auroc.png")
    write_runs(rows, others, FOLDER / "runs.csv")


def page(rows: list[dict[str, Any]], natural: list[dict[str, Any]]) -> str:
    sections = [_head(rows), _reading(rows), _table(rows), _natural(natural), _meaning(), _chosen(rows), _limits(rows)]
    return "\n\n".join(section for section in [*sections, _commands()] if section) + "\n"


def _head(rows: list[dict[str, Any]]) -> str:
    return "\n\n".join(
        [
            "# Small federations: 5, 20 and 100 hospitals",
            _filled(
                "A consortium of hospitals trains one model that predicts death in hospital. This page says how good"
                " the model is for a given ε, and from which ε on a hospital gains by sharing. All hospitals take part"
                " in every round, so there is one ε against the server and an outsider."
            ),
            _filled(
                "The first question is whom the noise protects. To hide **one patient** the noise is added once, in the"
                " masked sum of all hospitals (`--unit patient`); a hospital as a whole then has no protection. To hide"
                " **a whole hospital** takes far more noise. At **record level as published** every hospital adds the"
                " whole noise to its own update, so the noise grows with the number of hospitals."
            ),
            "![AUROC against ε for 5, 20 and 100 hospitals, beside being alone and sharing without privacy]"
            "(small-federations/auroc.png)",
        ]
    )


def _meaning() -> str:
    return "## What the numbers mean\n\n" + "\n".join(
        [
            _filled(
                "**AUROC** is how well the model ranks patients by risk. 0.5 is chance, 1 is perfect. Take one"
                " patient who died and one who did not: the AUROC is the probability that the model gives the first"
                " a higher risk."
            ),
            "",
            _filled(
                "**ε** bounds what anybody can learn from all models of the run about one patient (*patient level*:"
                " were the patient's records at one hospital used at all?), about one hospital (*hospital level*) or"
                " about one admission (*record level*). Whatever somebody believed before about that question, the odds"
                " change at most by a factor of e^ε: 1.3 for ε = 0.25, 2.7 for ε = 1, 55 for ε = 4, 2,981 for ε = 8;"
                " with a probability of δ more can happen. ε = 1 is strong, ε = 8 is weak."
            ),
            "",
            _filled(
                "**Patient level** protects all records of one patient at one hospital together. Each hospital adds a"
                " share of the noise, and the server sees the masked sum alone. A hospital as a whole has no"
                " protection. **Hospital level** protects all patients of a hospital at once, and facts about the"
                " hospital. **Record level as published** protects one admission; a patient with several admissions has"
                " less protection, and the server sees the noisy update of each hospital."
            ),
            "",
            _filled(
                "**With public records**: 750 records belong to no hospital and have no protection. The model sees"
                " principal components of them (`--front-end pca`), or FL-TOP chooses weights by them. A consortium"
                " needs such records from elsewhere, or patients who agree."
            ),
        ]
    )


def _table(rows: list[dict[str, Any]]) -> str:
    titles = [f"{_NAMES[level]} | … with public records" for level in _LEVELS]
    lines = [
        "## AUROC on test patients",
        "",
        "| hospitals | ε | " + " | ".join(titles) + " |",
        "| --- | --- |" + " --- |" * len(_WAYS),
    ]
    for hospitals in _sizes(rows):
        for epsilon in _epsilons(rows):
            cells = [_spread(_tested(rows, hospitals, way, epsilon)) for way in _WAYS]
            lines.append(f"| {hospitals} | {epsilon:g} | " + " | ".join(cells) + " |")
        together = _spread(_scores(rows, step="no privacy", hospitals=hospitals))
        alone = _spread(_scores(rows, step="alone", hospitals=hospitals))
        lines.append(f"| {hospitals} | no privacy | together: **{together}** | each alone: **{alone}** | | | | |")
    lines += [
        "",
        _filled(
            "Mean of three seeds, lowest to highest in parentheses. A seed draws hospitals, batches and noise. A"
            " dash is a cell that was not run. δ is 10⁻⁵ at hospital level and 10⁻⁶ at patient and record level. Noise"
            ' is drawn on integers, as for masked sums, and ε is the tightest of three accountants. "Each alone": a'
            " hospital trains on its own records and shares nothing; mean of three hospitals. The test patients are the"
            " same in all runs; their number of deaths (about 310) makes every AUROC uncertain by about ±0.02, in the"
            " same direction for all rows."
        ),
    ]
    return "\n".join(lines)


def _reading(rows: list[dict[str, Any]]) -> str:
    """What follows from the table, as far as it does: sentences are made of the figures."""
    lines = ["## From which ε does sharing beat being alone?", ""]
    for hospitals in _sizes(rows):
        alone = _mean(_scores(rows, step="alone", hospitals=hospitals))
        together = _mean(_scores(rows, step="no privacy", hospitals=hospitals))
        text = f"- **{hospitals} hospitals.** Without privacy, sharing gains {together - alone:+.3f} over being alone."
        for level in _LEVELS:
            ways = [way for way in _WAYS if way.startswith(level)]
            means = {e: [_mean(s) for w in ways if (s := _tested(rows, hospitals, w, e))] for e in _epsilons(rows)}
            gains = {epsilon: max(found) - alone for epsilon, found in means.items() if found}
            worth = [epsilon for epsilon, gain in gains.items() if gain > 0]
            shown = ", ".join(f"{gain:+.3f} at ε = {epsilon:g}" for epsilon, gain in gains.items())
            if not gains:
                continue
            verdict = f"better than alone from ε = {min(worth):g}" if worth else "no better than alone"
            text += f" At {level} level, by the better way: {shown}: {verdict}."
        lines.append(_item(text))
    return "\n".join(lines)


def _natural(rows: list[dict[str, Any]]) -> str:
    """The eICU demo, whose hospitals are real."""
    if not rows:
        return ""
    lines = [
        "## Real hospitals: the eICU demo",
        "",
        _filled(
            "186 hospitals with five to 24 stays each, about 1,450 patients and 145 deaths in all. That is too few for"
            " any hospital alone, and very few for privacy: the noise is the same as for 57,000 patients."
        ),
        "",
        "| ε | AUROC at patient level |",
        "| --- | --- |",
    ]
    for epsilon in sorted({row["epsilon"] for row in rows if row["step"] == "tested"}):
        lines.append(f"| {epsilon:g} | {_plain(_scores(rows, step='tested', epsilon=epsilon))} |")
    lines.append(f"| no privacy, together | **{_plain(_scores(rows, step='no privacy'))}** |")
    lines.append(f"| no privacy, each alone | **{_plain(_scores(rows, step='alone'))}** |")
    lines += [
        "",
        _filled(
            "Mean of five seeds, lowest to highest in parentheses; δ = 10⁻⁴. Every seed has test patients of its own,"
            " with about 30 deaths among them, so one AUROC is uncertain by about ±0.05. Each alone: mean of ten"
            " hospitals that have both deaths and survivors. Settings are chosen on held-out patients of three other"
            " seeds."
        ),
    ]
    return "\n".join(lines)


def _chosen(rows: list[dict[str, Any]]) -> str:
    lines = [
        "## Chosen settings",
        "",
        "| hospitals | ε | way | chosen on held-out patients |",
        "| --- | --- | --- | --- |",
    ]
    for way in _WAYS:
        for epsilon in _epsilons(rows):
            said: dict[str, list[str]] = {}
            for hospitals in _sizes(rows):
                for row in _rows(rows, step="tested", hospitals=hospitals, way=way, epsilon=epsilon)[:1]:
                    said.setdefault(_settings(row["settings"]), []).append(str(hospitals))
            lines += [f"| {', '.join(sizes)} | {epsilon:g} | {way} | {text} |" for text, sizes in said.items()]
    return "\n".join(lines)


def _limits(rows: list[dict[str, Any]]) -> str:
    private = [row for row in rows if row["step"] == "tested"]
    apart = max(abs(row["epsilon_outsider"] - row["epsilon_server"]) for row in private)
    seconds = sum(row.get("cpu_seconds", 0) for row in rows)
    return "## What to know about these figures\n\n" + "\n".join(
        [
            _item(
                "- diabetes130 names no hospital. Hospitals here are virtual: random patients with all their"
                " records, so they are alike. Real hospitals differ, and then a joint model gains less, or more,"
                " than here."
            ),
            _item(
                "- Settings were chosen on held-out patients of the same hospitals, which is not counted in ε. A"
                " consortium chooses settings on public data, or takes those above."
            ),
            _item(
                "- At patient level settings were drawn from a grid for every ε, and the grid was extended twice. The"
                f" test figures of the earlier choices had been seen by then (first {_earlier(rows, 'first')}; second"
                f" {_earlier(rows, 'second')}). The extensions followed the held-out figures. The second choices were"
                " made with the noise of three seeds, among them the one by which they had come out best; these were"
                " made with five others. All runs are in the results."
            ),
            _item(
                "- At patient level hospitals of any number have the same figures up to the noise that a seed draws:"
                " the sum of all patients' clipped gradients does not depend on who holds which."
            ),
            *_masked(rows),
            _item(
                "- The settings tried at record level were extended once, because the first choice was at the edge of"
                " them. Its test figures had been seen by then; the extension followed the held-out figures."
            ),
            _item(
                "- Which diagnosis codes are columns was taken from the training records; the statement of every run"
                " says so. A schema that lists its codes reveals nothing."
            ),
            _item(
                f"- The server's ε and the outsider's are the same, since everybody takes part in every round (largest"
                f" difference in {len(private)} runs: {apart:.2g})."
            ),
            _item(f"- All runs together took {seconds / 60:.0f} minutes of one processor core."),
        ]
    )


def _commands() -> str:
    return "\n".join(
        [
            "## Run it again",
            "",
            "```",
            "python -m benchmarks.small_federations            # goes on where it was stopped",
            "python -m benchmarks.small_federations --write    # this page",
            "python -m benchmarks.natural_hospitals           # the eICU demo",
            "```",
            "",
            _filled(
                "Every run is a row of [runs.csv](small-federations/runs.csv), with a command that runs its settings,"
                " both ε and bytes; those that chose settings are there, too. The command draws test patients by its"
                " seed, and the benchmark keeps the same ones for all seeds."
            ),
        ]
    )


def _masked(rows: list[dict[str, Any]]) -> list[str]:
    """Masked sums beside sums in the clear, with the shares of the hospitals drawn one by one in both."""
    found = [_scores(rows, step=f"{mode} sums") for mode in ("simulated", "masked")]
    if not all(found):
        return []
    same = "the same AUROC to the last digit" if found[0] == found[1] else f"AUROC {found[1][0]} and {found[0][0]}"
    return [
        _item(
            "- These runs add up the hospitals' integers in the clear and draw the noise of a sum at once. A run with"
            f" masked sums and one in the clear, in both of which every hospital draws its share, have {same}"
            f" ({found[0][-1]:.4f}; five hospitals, ε = 1)."
        )
    ]


def _earlier(rows: list[dict[str, Any]], which: str) -> str:
    """What the settings of an earlier choice came to on the test patients."""
    means = []
    for way in _WAYS[:2]:
        for epsilon in _epsilons(rows):
            scores = _scores(rows, step=f"tested, {which} choice", way=way, epsilon=epsilon)
            if scores:
                public = " with public records" if "public" in way else ""
                means.append(f"{_mean(scores):.3f} at ε = {epsilon:g}{public}")
    return ", ".join(means)


def command(row: dict[str, Any], dataset: str) -> str:
    """The settings of a run as a command."""
    flags: dict[str, Any] = {"dataset": dataset, "model": "logistic", "sampling-rate": 1, "seed": row["seed"]}
    flags |= {"num-clients": row["hospitals"]} if "hospitals" in row else {}
    settings = dict(row.get("settings") or {})
    scheme = settings.pop("scheme.name", "fl-std")
    if "public" in row.get("way", ""):
        flags["public-records"] = small_federations.PUBLIC
    if "way" in row:
        level = row["way"].split(",")[0]
        flags |= {
            "epsilon": row["epsilon"],
            "delta": 1e-4 if dataset == "eicu-demo" else small_federations.DELTAS[level],
        }
        if level == "patient":
            flags["num-units"] = 1450 if dataset == "eicu-demo" else small_federations.PATIENTS[row["step"] == "tried"]
    if row["step"] == "tried":
        flags["holdout"] = 0.2
    for name, value in settings.items():
        section, key = name.split(".", 1)
        if name == "model.zero":
            flags["model-option"] = "zero=true"
        elif section == "front_end":
            flags["front-end" + ("" if key == "name" else f"-{key}")] = value
        else:
            flags[key.replace("_", "-")] = value
    return shlex.join(["laconic", "run", scheme, *(str(part) for k, v in flags.items() for part in (f"--{k}", v))])


def write_runs(rows: list[dict[str, Any]], natural: list[dict[str, Any]], path: Path) -> None:
    """Every run as a row, with a command. The figures of hospitals alone are means of runs."""
    columns = ["data", "step", "way", "hospitals", "asked_epsilon", "seed", "auroc", "epsilon_server"]
    columns += ["epsilon_outsider", "bytes_up", "bytes_down", "cpu_seconds", "command"]
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, columns, lineterminator="\n", extrasaction="ignore")
        writer.writeheader()
        for dataset, some in (("diabetes130", rows), ("eicu-demo", natural)):
            for row in some:
                shown = {key: round(v, 5) if isinstance(v, float) else v for key, v in row.items()}
                more = {"data": dataset, "asked_epsilon": row.get("epsilon")}
                writer.writerow(shown | more | {"command": "" if row["step"] == "alone" else command(row, dataset)})


_DRAWN = {
    "patient": ("one patient is protected", "#0072B2", "o", "-"),
    "patient, 750 public records": ("one patient, with 750 public records", "#56B4E9", "s", "-"),
    "hospital": ("a whole hospital is protected", "#D55E00", "^", "-"),
    "record": ("one admission, every hospital adds all noise (as published)", "#E69F00", "v", "-"),
}


def draw(rows: list[dict[str, Any]], path: Path) -> None:
    """One panel for each number of hospitals: AUROC against ε, beside both references."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot
    from matplotlib.ticker import NullLocator

    sizes, epsilons = _sizes(rows), _epsilons(rows)
    figure, axes = pyplot.subplots(1, len(sizes), figsize=(4.2 * len(sizes), 4.6), sharey=True, squeeze=False)
    for axis, hospitals in zip(axes[0], sizes, strict=True):
        together = _mean(_scores(rows, step="no privacy", hospitals=hospitals))
        alone = _mean(_scores(rows, step="alone", hospitals=hospitals))
        axis.axhline(together, color="black", linestyle=":", label="sharing without privacy")
        axis.axhline(alone, color="#CC79A7", linestyle="--", linewidth=2, label="alone: each hospital trains by itself")
        for way, (label, colour, marker, line) in _DRAWN.items():
            found = {e: scores for e in epsilons if (scores := _tested(rows, hospitals, way, e))}
            means = [_mean(scores) for scores in found.values()]
            bars = [
                [mean - min(s) for mean, s in zip(means, found.values(), strict=True)],
                [max(s) - mean for mean, s in zip(means, found.values(), strict=True)],
            ]
            axis.errorbar(list(found), means, bars, label=label, color=colour, marker=marker, linestyle=line, capsize=3)
        axis.set_xscale("log")
        axis.set_xticks(epsilons, [f"{epsilon:g}" for epsilon in epsilons])
        axis.xaxis.set_minor_locator(NullLocator())
        axis.set_title(f"{hospitals} hospitals")
        axis.set_xlabel("ε (smaller protects more)")
        axis.grid(alpha=0.3)
    axes[0][0].set_ylabel("AUROC on test patients")
    axes[0][0].set_ylim(0.45, 0.9)
    handles, labels = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="lower center", ncols=2, frameon=False)
    figure.suptitle("What a hospital gains by sharing (bars: lowest to highest of three seeds)")
    figure.tight_layout(rect=(0, 0.16, 1, 1))
    figure.savefig(path, dpi=130)
    pyplot.close(figure)


def _settings(settings: dict[str, Any]) -> str:
    said = [str(settings["scheme.name"]), f"{settings['run.rounds']} rounds"]
    if "front_end.features" in settings:
        said.append(f"{settings['front_end.features']} components, ridge {settings['front_end.ridge']:g}")
    if "scheme.ratio" in settings:
        said.append(f"{settings['scheme.ratio']:.0%} of the weights")
    if "scheme.local_steps" in settings:
        said.append(f"{settings['scheme.local_steps']} local steps")
    if "scheme.unit" in settings:
        said.append(f"weights of survivors and deaths {settings['scheme.class_weights']}")
        said += [f"step size {settings['scheme.server_lr']:g}", f"momentum {settings['scheme.momentum']:g}"]
        said += [f"mean of the last {settings['server.average_last']}"] if settings["server.average_last"] > 1 else []
    else:
        said.append(f"step size {settings['scheme.local_lr']:g}")
    return ", ".join([*said, f"clip {settings['scheme.clip_norm']:g}"])


def _rows(rows: list[dict[str, Any]], **key: Any) -> list[dict[str, Any]]:
    return [row for row in rows if all(row.get(name) == value for name, value in key.items())]


def _scores(rows: list[dict[str, Any]], **key: Any) -> list[float]:
    return [row["auroc"] for row in _rows(rows, **key)]


def _tested(rows: list[dict[str, Any]], hospitals: int, way: str, epsilon: float) -> list[float]:
    return _scores(rows, step="tested", hospitals=hospitals, way=way, epsilon=epsilon)


def _sizes(rows: list[dict[str, Any]]) -> list[int]:
    return sorted({row["hospitals"] for row in rows if row["step"] == "alone"})


def _epsilons(rows: list[dict[str, Any]]) -> list[float]:
    return sorted({row["epsilon"] for row in rows if row["step"] == "tested"})


def _mean(scores: list[float]) -> float:
    return statistics.fmean(scores) if scores else float("nan")


def _plain(scores: list[float]) -> str:
    return f"{_mean(scores):.3f} ({min(scores):.3f}–{max(scores):.3f})"


def _spread(scores: list[float]) -> str:
    if not scores:
        return "–"
    fewer = "" if len(scores) == _SEEDS else f", {len(scores)} of {_SEEDS} seeds"
    return f"{_mean(scores):.3f} ({min(scores):.3f}–{max(scores):.3f}{fewer})"


def _filled(text: str) -> str:
    return textwrap.fill(text, 120, break_long_words=False, break_on_hyphens=False)


def _item(text: str) -> str:
    return textwrap.fill(text, 120, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
