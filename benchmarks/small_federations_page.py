"""The page about small federations, from what was measured and nothing else."""

from __future__ import annotations

import statistics
import textwrap
from pathlib import Path
from typing import Any

PAGE = Path("docs/results/small-federations.md")
_SEEDS = 3
_WAYS = ("hospital", "hospital, 750 public records", "record", "record, 750 public records")


def write_page(rows: list[dict[str, Any]]) -> None:
    PAGE.write_text(page(rows), encoding="utf-8")


def page(rows: list[dict[str, Any]]) -> str:
    sections = [_head(), _meaning(), _table(rows), _reading(rows), _chosen(rows), _limits(rows), _commands()]
    return "\n\n".join(sections) + "\n"


def _head() -> str:
    return "# Small federations: 5, 20 and 100 hospitals\n\n" + _filled(
        "A consortium of hospitals trains one model that predicts death in hospital. All of them take part in every"
        " round, so the server and an outsider learn the same, and there is one ε against both. This page says how"
        " good the model is for a given ε, so that a data officer can see which privacy a consortium of this size"
        " can afford."
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
                "**ε** bounds what anybody can learn from all models of the run about one hospital (*hospital"
                " level*: were its records used at all?) or about one admission (*record level*). Whatever somebody"
                " believed before about that question, the odds change at most by a factor of e^ε: 2.7 for ε = 1, 55"
                " for ε = 4, 2,981 for ε = 8; with a probability of δ more can happen. ε = 1 is strong, ε = 8 is"
                " weak."
            ),
            "",
            _filled(
                "**Hospital level** protects all patients of a hospital at once, and facts about the hospital."
                " **Record level** protects one admission; a patient with several admissions has less protection,"
                " and facts about a hospital as a whole have none. With record level the server sees the noisy"
                " update of each hospital; with hospital level it sees only their sum."
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
    lines = [
        "## AUROC on test patients",
        "",
        "| hospitals | ε | hospital level | … with public records | record level | … with public records |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for hospitals in _sizes(rows):
        for epsilon in sorted({row["epsilon"] for row in rows if row["step"] == "tested"}):
            cells = [_spread(_tested(rows, hospitals, way, epsilon)) for way in _WAYS]
            lines.append(f"| {hospitals} | {epsilon:g} | " + " | ".join(cells) + " |")
        together = _spread(_scores(rows, step="no privacy", hospitals=hospitals))
        alone = _spread(_scores(rows, step="alone", hospitals=hospitals))
        lines.append(f"| {hospitals} | no privacy | together: **{together}** | | each alone: **{alone}** | |")
    lines += [
        "",
        _filled(
            "Mean of three seeds, lowest to highest in parentheses. A seed draws hospitals, batches and noise. A"
            " dash is a cell that was not run. δ is 10⁻⁵ at hospital level and 10⁻⁶ at record level. Noise is drawn"
            ' on integers, and ε is the tightest of three accountants. "Each alone": a hospital trains on its own'
            " records and shares nothing; mean of three hospitals. The test patients are the same in all runs; their"
            " number of deaths (about 330) makes every AUROC uncertain by about ±0.02, in the same direction for all"
            " rows."
        ),
    ]
    return "\n".join(lines)


def _reading(rows: list[dict[str, Any]]) -> str:
    """What follows from the table, as far as it does: sentences are made of the figures."""
    lines = ["## What follows", ""]
    for hospitals in _sizes(rows):
        alone = _mean(_scores(rows, step="alone", hospitals=hospitals))
        together = _mean(_scores(rows, step="no privacy", hospitals=hospitals))
        text = f"- **{hospitals} hospitals.** Without privacy, sharing gains {together - alone:+.3f} over being alone."
        for level, ways in (("hospital", _WAYS[:2]), ("record", _WAYS[2:])):
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


def _chosen(rows: list[dict[str, Any]]) -> str:
    lines = [
        "## Chosen settings",
        "",
        "| hospitals | ε | way | chosen on held-out patients |",
        "| --- | --- | --- | --- |",
    ]
    for hospitals in _sizes(rows):
        for way in _WAYS:
            for epsilon in _epsilons(rows):
                found = _rows(rows, step="tested", hospitals=hospitals, way=way, epsilon=epsilon)
                if found:
                    lines.append(f"| {hospitals} | {epsilon:g} | {way} | {_settings(found[0]['settings'])} |")
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
            "```",
            "",
            "Every run is in [results.json](small-federations/results.json), with its settings, both ε and bytes.",
        ]
    )


def _settings(settings: dict[str, Any]) -> str:
    said = [str(settings["scheme.name"]), f"{settings['run.rounds']} rounds"]
    if "front_end.features" in settings:
        said.append(f"{settings['front_end.features']} components")
    if "scheme.ratio" in settings:
        said.append(f"{settings['scheme.ratio']:.0%} of the weights")
    if "scheme.local_steps" in settings:
        said.append(f"{settings['scheme.local_steps']} local steps")
    said += [f"step size {settings['scheme.local_lr']:g}", f"clip {settings['scheme.clip_norm']:g}"]
    return ", ".join(said)


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


def _spread(scores: list[float]) -> str:
    if not scores:
        return "–"
    fewer = "" if len(scores) == _SEEDS else f", {len(scores)} of {_SEEDS} seeds"
    return f"{_mean(scores):.3f} ({min(scores):.3f}–{max(scores):.3f}{fewer})"


def _filled(text: str) -> str:
    return textwrap.fill(text, 120, break_long_words=False, break_on_hyphens=False)


def _item(text: str) -> str:
    return textwrap.fill(text, 120, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
